//! The clocks of a batch that joins: whom to wait for, whom to replace, when to give up, and when the fault is ours.
//!
//! Source of the clocks: `join.*` of the NodePool. A node that does not come is replaced while few are missing; many
//! that miss for one cause are no bad luck but a configuration that no money mends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::model::names::InstanceId;

/// The clocks of a pool, for a batch of known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinRules {
    /// From the registration of the median node: who is still missing is replaced.
    pub replace_after: SignedDuration,
    /// From an instance's launch: who has no Node by then has failed.
    pub register_within: SignedDuration,
    /// From the last registration: who is not ready by then has failed.
    pub ready_within: SignedDuration,
    /// Nodes that may still be replaced.
    pub replacements_left: u32,
    /// Everything, one replacement included, must be over by then.
    pub deadline: Timestamp,
    /// No clock of an instance ends before: nobody could register, or say that it is ready. `deadline` is no earlier.
    pub not_before: Timestamp,
}

/// One instance of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joiner {
    /// Id.
    pub id: InstanceId,
    /// When its launch was decided.
    pub launched: Timestamp,
    /// How far it is.
    pub stage: JoinStage,
}

/// How far an instance is on its way to a node that a gang can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinStage {
    /// EC2 has not started it.
    Pending,
    /// It runs and has no Node.
    Running,
    /// It has a Node that lacks something.
    Registered {
        /// Since when.
        at: Timestamp,
        /// What is missing, by name of resource, label or taint.
        lacks: BTreeSet<String>,
    },
    /// It can be used.
    Ready {
        /// Since when it has a Node.
        registered: Timestamp,
    },
    /// EC2 ended it, or is about to.
    Gone {
        /// The code of the state reason.
        code: Option<String>,
    },
}

/// Why a node does not come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JoinCause {
    /// The instance ended; with EC2's code.
    Died(Option<String>),
    /// EC2 never started it.
    NeverRan,
    /// It ran and never registered.
    NeverRegistered,
    /// It registered and lacks this.
    Lacks(String),
}

impl JoinCause {
    /// Whether another candidate would fail alike: the image, the user data, the network or a DaemonSet is at fault,
    /// not EC2's capacity. A person who ends instances is neither.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Died(Some(code)) => code.starts_with("Client.") && code != "Client.UserInitiatedShutdown",
            Self::Died(None) | Self::NeverRan => false,
            Self::NeverRegistered | Self::Lacks(_) => true,
        }
    }
}

impl fmt::Display for JoinCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Died(Some(code)) => write!(f, "ended by EC2 ({code})"),
            Self::Died(None) => f.write_str("ended by EC2"),
            Self::NeverRan => f.write_str("never left pending"),
            Self::NeverRegistered => f.write_str("never registered as a node"),
            Self::Lacks(what) => write!(f, "never had {what}"),
        }
    }
}

/// What to do with a joining batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinVerdict {
    /// All nodes can be used.
    Ready,
    /// Nothing before this time, unless something changes.
    Wait(Timestamp),
    /// Replace these in place.
    Replace(BTreeMap<InstanceId, JoinCause>),
    /// Too many to replace, or too late: all n go, the next candidate is tried.
    RollBack(BTreeMap<InstanceId, JoinCause>),
    /// Most fail for one cause that another candidate would share: all n go, and the pool provisions nothing more.
    Block {
        /// The cause they share.
        cause: JoinCause,
        /// All that failed.
        failed: BTreeMap<InstanceId, JoinCause>,
    },
}

/// Decides about a joining batch. `joiners` has one entry per instance of the batch.
#[must_use]
pub fn judge_join(joiners: &[Joiner], rules: &JoinRules, now: Timestamp) -> JoinVerdict {
    let after = |at: Timestamp, pause: SignedDuration| at.saturating_add(pause).unwrap_or(Timestamp::MAX);
    let mut registrations: Vec<Timestamp> = joiners
        .iter()
        .filter_map(|joiner| match &joiner.stage {
            JoinStage::Registered { at, .. } | JoinStage::Ready { registered: at } => Some(*at),
            JoinStage::Pending | JoinStage::Running | JoinStage::Gone { .. } => None,
        })
        .collect();
    registrations.sort_unstable();
    // The median of the whole batch, not of those that came: it exists once half of the batch is there.
    let median = joiners.len().checked_sub(1).and_then(|last| registrations.get(last / 2)).copied();
    let last = registrations.last().copied();

    let mut failed: BTreeMap<InstanceId, JoinCause> = BTreeMap::new();
    let mut due: Option<Timestamp> = None;
    let mut ready = 0_usize;
    for joiner in joiners {
        let (at, cause) = match &joiner.stage {
            JoinStage::Ready { .. } => {
                ready += 1;
                continue;
            }
            JoinStage::Gone { code } => {
                failed.insert(joiner.id.clone(), JoinCause::Died(code.clone()));
                continue;
            }
            JoinStage::Pending | JoinStage::Running => {
                let by = after(joiner.launched, rules.register_within);
                // A replacement was launched after the others had come: it gets a boot of its own.
                let by = match median.filter(|median| joiner.launched <= *median) {
                    Some(median) => by.min(after(median, rules.replace_after)),
                    None => by,
                };
                let ran = joiner.stage == JoinStage::Running;
                (by, if ran { JoinCause::NeverRegistered } else { JoinCause::NeverRan })
            }
            JoinStage::Registered { at, lacks } => {
                let by = after(last.unwrap_or(*at), rules.ready_within);
                (by, JoinCause::Lacks(lacks.first().cloned().unwrap_or_else(|| "Ready".to_owned())))
            }
        };
        let at = at.max(rules.not_before);
        if at <= now {
            failed.insert(joiner.id.clone(), cause);
        } else {
            due = Some(due.map_or(at, |due| due.min(at)));
        }
    }
    if ready == joiners.len() {
        return JoinVerdict::Ready;
    }
    if let Some(cause) = shared_cause(&failed, joiners.len()).filter(JoinCause::is_configuration) {
        return JoinVerdict::Block { cause, failed };
    }
    if rules.deadline <= now {
        return JoinVerdict::RollBack(failed);
    }
    if failed.is_empty() {
        return JoinVerdict::Wait(due.unwrap_or(rules.deadline).min(rules.deadline));
    }
    let few = u32::try_from(failed.len()).is_ok_and(|failed| failed <= rules.replacements_left);
    if few { JoinVerdict::Replace(failed) } else { JoinVerdict::RollBack(failed) }
}

/// The cause that more than half of the batch share.
fn shared_cause(failed: &BTreeMap<InstanceId, JoinCause>, all: usize) -> Option<JoinCause> {
    let mut counts: BTreeMap<&JoinCause, usize> = BTreeMap::new();
    for cause in failed.values() {
        *counts.entry(cause).or_default() += 1;
    }
    counts.into_iter().find(|(_, count)| count * 2 > all).map(|(cause, _)| cause.clone())
}

/// `maxReplacements`: a number, or a share of the batch in percent, rounded up. `None` if it is neither.
#[must_use]
pub fn replacements(text: &str, nodes: u32) -> Option<u32> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: u32 = percent.parse().ok().filter(|percent| *percent <= 100)?;
            Some(nodes.saturating_mul(percent).div_ceil(100))
        }
        None => text.parse().ok(),
    }
}

/// Failed nodes in one sentence, by cause: `2 × never registered as a node (i-1, i-2)`.
#[must_use]
pub fn describe_failures(failed: &BTreeMap<InstanceId, JoinCause>) -> String {
    let mut by_cause: BTreeMap<&JoinCause, Vec<&str>> = BTreeMap::new();
    for (id, cause) in failed {
        by_cause.entry(cause).or_default().push(id.as_str());
    }
    let texts = by_cause.into_iter().map(|(cause, ids)| {
        let shown = ids.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        let more = if ids.len() > 3 { format!(" and {} more", ids.len() - 3) } else { String::new() };
        format!("{} × {cause} ({shown}{more})", ids.len())
    });
    texts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(T0 + seconds).unwrap()
    }

    fn rules(replacements_left: u32) -> JoinRules {
        JoinRules {
            replace_after: SignedDuration::from_mins(5),
            register_within: SignedDuration::from_mins(15),
            ready_within: SignedDuration::from_mins(10),
            replacements_left,
            deadline: at(3_000),
            not_before: Timestamp::MIN,
        }
    }

    fn joiners(stages: &[JoinStage]) -> Vec<Joiner> {
        let joiner = |(number, stage): (usize, &JoinStage)| Joiner {
            id: InstanceId::from(format!("i-{number}")),
            launched: at(0),
            stage: stage.clone(),
        };
        stages.iter().enumerate().map(joiner).collect()
    }

    fn ready(count: usize) -> Vec<JoinStage> {
        vec![JoinStage::Ready { registered: at(100) }; count]
    }

    fn lacking(what: &str) -> JoinStage {
        JoinStage::Registered { at: at(100), lacks: BTreeSet::from([what.to_owned()]) }
    }

    fn failed(ids: &[usize], cause: &JoinCause) -> BTreeMap<InstanceId, JoinCause> {
        ids.iter().map(|id| (InstanceId::from(format!("i-{id}")), cause.clone())).collect()
    }

    fn with(mut stages: Vec<JoinStage>, more: &[JoinStage]) -> Vec<Joiner> {
        stages.extend(more.iter().cloned());
        joiners(&stages)
    }

    #[test]
    fn one_missing_node_of_eight_is_replaced_five_minutes_after_the_median_registered() {
        let batch = with(ready(7), &[JoinStage::Running]);
        assert_eq!(judge_join(&batch, &rules(1), at(399)), JoinVerdict::Wait(at(400)));
        assert_eq!(
            judge_join(&batch, &rules(1), at(400)),
            JoinVerdict::Replace(failed(&[7], &JoinCause::NeverRegistered))
        );
    }

    #[test]
    fn while_less_than_half_registered_the_clock_runs_from_the_launch() {
        let batch = with(ready(3), &vec![JoinStage::Running; 5]);
        assert_eq!(judge_join(&batch, &rules(8), at(899)), JoinVerdict::Wait(at(900)));
    }

    #[test]
    fn a_dead_instance_is_replaced_at_once_and_two_of_eight_are_too_many() {
        let gone = JoinStage::Gone { code: Some("Server.InternalError".to_owned()) };
        let cause = JoinCause::Died(Some("Server.InternalError".to_owned()));
        let one = with(vec![JoinStage::Pending; 7], std::slice::from_ref(&gone));
        assert_eq!(judge_join(&one, &rules(1), at(1)), JoinVerdict::Replace(failed(&[7], &cause)));
        let two = with(vec![JoinStage::Pending; 6], &[gone.clone(), gone.clone()]);
        assert_eq!(judge_join(&two, &rules(1), at(1)), JoinVerdict::RollBack(failed(&[6, 7], &cause)));
        let none_left = with(vec![JoinStage::Pending; 7], &[gone]);
        assert_eq!(judge_join(&none_left, &rules(0), at(1)), JoinVerdict::RollBack(failed(&[7], &cause)));
    }

    #[test]
    fn most_nodes_without_gpus_are_a_configuration_and_not_bad_luck() {
        let batch = joiners(&vec![lacking("nvidia.com/gpu"); 8]);
        let cause = JoinCause::Lacks("nvidia.com/gpu".to_owned());
        assert_eq!(judge_join(&batch, &rules(1), at(699)), JoinVerdict::Wait(at(700)));
        let verdict = judge_join(&batch, &rules(1), at(700));
        assert_eq!(verdict, JoinVerdict::Block { failed: failed(&[0, 1, 2, 3, 4, 5, 6, 7], &cause), cause });
    }

    #[test]
    fn instances_that_die_for_want_of_capacity_are_no_configuration_and_those_that_fail_to_boot_are() {
        let of = |code: &str| joiners(&vec![JoinStage::Gone { code: Some(code.to_owned()) }; 4]);
        let verdict = |code| judge_join(&of(code), &rules(1), at(1));
        assert!(matches!(verdict("Server.InsufficientInstanceCapacity"), JoinVerdict::RollBack(_)));
        assert!(matches!(verdict("Client.UserInitiatedShutdown"), JoinVerdict::RollBack(_)));
        assert!(matches!(verdict("Client.InvalidSnapshot.NotFound"), JoinVerdict::Block { .. }));
    }

    #[test]
    fn all_that_never_leave_pending_are_ec2s_trouble() {
        let batch = joiners(&vec![JoinStage::Pending; 4]);
        assert!(matches!(judge_join(&batch, &rules(1), at(900)), JoinVerdict::RollBack(_)));
    }

    #[test]
    fn a_replacement_has_a_boot_of_its_own() {
        let mut batch = with(ready(7), &[JoinStage::Running]);
        batch[7].launched = at(500);
        assert_eq!(judge_join(&batch, &rules(0), at(700)), JoinVerdict::Wait(at(500 + 900)));
    }

    #[test]
    fn no_clock_ends_while_nobody_can_register() {
        let until =
            |seconds| JoinRules { not_before: at(seconds), deadline: at(seconds).max(rules(1).deadline), ..rules(1) };
        let joiners = with(vec![JoinStage::Running; 3], &[lacking("Ready")]);
        let judged = |rules: &JoinRules, now| judge_join(&joiners, rules, at(now));
        assert!(!matches!(judged(&rules(1), 900), JoinVerdict::Wait(_)), "a clock has run out");
        assert_eq!(judged(&until(5_000), 900), JoinVerdict::Wait(at(5_000)));
        assert_eq!(judged(&until(5_000), 4_999), JoinVerdict::Wait(at(5_000)), "nor has the one of all");
        assert_eq!(judged(&until(5_000), 5_000), judged(&rules(1), 5_000));
        assert_eq!(judged(&until(10), 50), judged(&rules(1), 50), "what was before changes nothing");
    }

    #[test]
    fn the_deadline_of_all_rolls_back_whatever_is_left() {
        let batch = with(ready(7), &[JoinStage::Running]);
        let rules = JoinRules { deadline: at(300), ..rules(1) };
        assert_eq!(judge_join(&batch, &rules, at(200)), JoinVerdict::Wait(at(300)));
        assert!(matches!(judge_join(&batch, &rules, at(300)), JoinVerdict::RollBack(_)));
    }

    #[test]
    fn a_share_of_replacements_is_rounded_up() {
        assert_eq!(replacements("10%", 8), Some(1));
        assert_eq!(replacements("10%", 11), Some(2));
        assert_eq!(replacements("0%", 8), Some(0));
        assert_eq!(replacements("3", 8), Some(3));
        assert_eq!(replacements("101%", 8), None);
        assert_eq!(replacements("some", 8), None);
    }

    #[test]
    fn failures_are_reported_by_cause() {
        let mut all = failed(&[0, 1, 2, 3], &JoinCause::NeverRegistered);
        all.extend(failed(&[9], &JoinCause::Lacks("nvidia.com/gpu".to_owned())));
        assert_eq!(
            describe_failures(&all),
            "4 × never registered as a node (i-0, i-1, i-2 and 1 more); 1 × never had nvidia.com/gpu (i-9)"
        );
    }

    #[test]
    fn exactly_half_of_a_batch_shares_nothing() {
        let lacks = JoinStage::Registered { at: at(0), lacks: ["nvidia.com/gpu".to_owned()].into() };
        let half = joiners(&[JoinStage::Ready { registered: at(0) }, lacks.clone()]);
        let cause = JoinCause::Lacks("nvidia.com/gpu".to_owned());
        assert_eq!(judge_join(&half, &rules(1), at(600)), JoinVerdict::Replace(failed(&[1], &cause)));
        let more = joiners(&[JoinStage::Ready { registered: at(0) }, lacks.clone(), lacks]);
        assert!(matches!(judge_join(&more, &rules(2), at(600)), JoinVerdict::Block { .. }));
    }

    #[test]
    fn three_failed_nodes_are_named_and_of_more_how_many() {
        let cause = JoinCause::NeverRegistered;
        assert_eq!(describe_failures(&failed(&[0, 1, 2], &cause)), "3 × never registered as a node (i-0, i-1, i-2)");
        let four = "4 × never registered as a node (i-0, i-1, i-2 and 1 more)";
        assert_eq!(describe_failures(&failed(&[0, 1, 2, 3], &cause)), four);
    }
}
