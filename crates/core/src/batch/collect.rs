//! Orphans, both ways: what EC2 has and no NodeBatch knows, and what a NodeBatch knows and EC2 has no more.
//!
//! The account must have been read **before** the NodeBatches: every intent is written down before its call, so what
//! was seen in EC2 and is still in no batch afterwards has none. Ours is only what carries the tags of this cluster
//! **and** of a batch; the tag `kubernetes.io/cluster/<name>` decides nothing, since node groups of others carry it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::ec2::seen::{Instance, InstanceState, LaunchTemplate, PlacementGroup};
use crate::model::batch::{AttemptOutcome, Batch, BatchMember};
use crate::model::digest::Fields;
use crate::model::names::{InstanceId, NodeName};
use crate::model::tags::{TAG_ATTEMPT, TAG_BATCH, TAG_CLUSTER_UID, Tags};

/// Everything with this cluster's tag, as EC2 described it at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Instances, terminated ones included for as long as EC2 shows them.
    pub instances: Vec<Instance>,
    /// Placement groups.
    pub groups: Vec<PlacementGroup>,
    /// Launch templates.
    pub templates: Vec<LaunchTemplate>,
}

/// A NodeBatch as the collection sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownBatch {
    /// Name.
    pub name: String,
    /// UID: the value of the tag.
    pub uid: String,
    /// Number of the attempt whose outcome is open.
    pub in_flight: Option<u32>,
    /// Attempts up to this number are closed: what they launched is named in `instances[]`, or was not kept. 0: none.
    pub closed: u32,
    /// What `instances[]` names.
    pub instances: Vec<KnownInstance>,
    /// Its placement group.
    pub group: Option<String>,
    /// Names of its launch templates.
    pub templates: BTreeSet<String>,
    /// It is being terminated or rolled back: its own sweep finds everything, and a missing instance is no loss.
    pub ending: bool,
}

impl KnownBatch {
    /// A NodeBatch as the collection sees it.
    #[must_use]
    pub fn of(batch: &Batch) -> Self {
        let status = &batch.status;
        let open = status.last().filter(|last| last.is_open());
        let unfinished = status.last().is_some_and(|last| last.outcome == AttemptOutcome::Launching);
        let since = |attempt: u32| {
            let attempt = status.attempts.iter().find(|known| known.number == attempt);
            attempt.and_then(|attempt| attempt.ended.or(attempt.started))
        };
        let listed = |instance: &BatchMember, settled: bool| KnownInstance {
            id: instance.id.clone(),
            // An attempt that is no longer in the list was long ago.
            since: since(instance.attempt).or(status.since),
            settled: settled || instance.state.is_written_off(),
        };
        let instances = status.instances.iter().map(|instance| listed(instance, false));
        let replaced = status.replaced.iter().map(|instance| listed(instance, true));
        Self {
            name: batch.name.clone(),
            uid: batch.uid.clone(),
            in_flight: open.map(|open| open.number),
            // Whether an attempt whose call has not been written down was sent is not known: it counts as open.
            closed: status.attempt.saturating_sub(u32::from(unfinished)),
            instances: instances.chain(replaced).collect(),
            group: status.placement_group.clone(),
            templates: status.launch_templates.iter().cloned().collect(),
            // Of what a newer version wrote nothing is concluded.
            ending: !status.phase.expects_instances() || batch.newer.is_some(),
        }
    }
}

/// An entry of `instances[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownInstance {
    /// Id.
    pub id: InstanceId,
    /// When its launch was decided: EC2 may not show it for a minute or two.
    pub since: Option<Timestamp>,
    /// Already known to be lost, or on its way out.
    pub settled: bool,
}

/// A Node with the label of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// Name.
    pub name: NodeName,
    /// Its instance, from the provider id.
    pub instance: InstanceId,
}

/// What one round looks at.
#[derive(Clone, Copy, Debug)]
pub struct Collection<'a> {
    /// UID of the namespace kube-system.
    pub cluster_uid: &'a str,
    /// The account, read first.
    pub account: &'a Account,
    /// All NodeBatches, read after the account.
    pub batches: &'a [KnownBatch],
    /// Nodes with the label of a batch.
    pub nodes: &'a [KnownNode],
    /// What is younger than this is left alone.
    pub grace: SignedDuration,
    /// Now.
    pub now: Timestamp,
}

/// What to do about it. Every finding is confirmed by a second look before it is acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "findings that nobody acts on cost money"]
pub struct Findings {
    /// Instances of ours that no batch knows: terminate.
    pub instances: BTreeSet<InstanceId>,
    /// Those among them that a batch which is there has closed the attempt of without keeping them. Nobody's memory was lost,
    /// so they are never held.
    pub explained: BTreeSet<InstanceId>,
    /// Entries without an instance, by name of the batch: the node is lost.
    pub lost: BTreeMap<String, BTreeSet<InstanceId>>,
    /// Nodes of ours without an instance, with the instance each stood for: delete.
    pub nodes: BTreeMap<NodeName, InstanceId>,
    /// Instances of `lost` and `nodes` that EC2 does not show at all, not even as terminated. It shows those that have ended
    /// for about an hour (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html>): so many of these
    /// at once are more likely the wrong account or Region.
    pub unseen: BTreeSet<InstanceId>,
    /// Groups of ours that are empty and that no batch wants: delete, by name.
    pub groups: BTreeSet<String>,
    /// Templates of ours that no batch wants: delete, by id.
    pub templates: BTreeSet<String>,
    /// Live instances of ours, the base of the safety threshold for orphans.
    pub live: usize,
    /// Instances that batches list and Nodes stand for, the base of the safety threshold for what is unseen.
    pub listed: usize,
}

impl Findings {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { instances, explained: _, lost, nodes, unseen: _, groups, templates, live: _, listed: _ } = self;
        instances.is_empty() && lost.is_empty() && nodes.is_empty() && groups.is_empty() && templates.is_empty()
    }

    /// What both looks found.
    pub fn confirmed_by(&self, second: &Self) -> Self {
        let both = |one: &BTreeSet<String>, other: &BTreeSet<String>| one.intersection(other).cloned().collect();
        let lost = self.lost.iter().filter_map(|(batch, ids)| {
            let ids: BTreeSet<_> = ids.intersection(second.lost.get(batch)?).cloned().collect();
            (!ids.is_empty()).then(|| (batch.clone(), ids))
        });
        let nodes = self.nodes.iter().filter(|(node, id)| second.nodes.get(*node) == Some(*id));
        Self {
            instances: self.instances.intersection(&second.instances).cloned().collect(),
            explained: self.explained.intersection(&second.explained).cloned().collect(),
            lost: lost.collect(),
            nodes: nodes.map(|(node, id)| (node.clone(), id.clone())).collect(),
            unseen: self.unseen.intersection(&second.unseen).cloned().collect(),
            groups: both(&self.groups, &second.groups),
            templates: both(&self.templates, &second.templates),
            live: second.live,
            listed: second.listed,
        }
    }

    /// Orphans that are allowed at once: a tenth of what lives, five in small clusters.
    #[must_use]
    pub fn allowed(&self) -> usize {
        credible(self.live)
    }

    /// Instances that may be unseen at once: a tenth of what is listed, five in small clusters.
    #[must_use]
    pub fn may_be_unseen(&self) -> usize {
        credible(self.listed)
    }

    /// Instances that only lost memory explains: no batch knows them, or a batch has not come to their attempt yet.
    #[must_use]
    pub fn unexplained(&self) -> BTreeSet<InstanceId> {
        self.instances.difference(&self.explained).cloned().collect()
    }

    /// Whether so much is orphaned without an explanation that it is more likely the API server that lost its memory, or so
    /// much is unseen that it is more likely that EC2 answers for another account: then nothing but what is explained is
    /// deleted or written off before a person says so.
    #[must_use]
    pub fn held(&self) -> bool {
        !self.held_orphans().is_empty() || !self.held_unseen().is_empty()
    }

    /// Instances without an explanation, if they are more than is credible.
    #[must_use]
    pub fn held_orphans(&self) -> BTreeSet<InstanceId> {
        Some(self.unexplained()).filter(|orphans| orphans.len() > self.allowed()).unwrap_or_default()
    }

    /// Instances that EC2 does not show, if they are more than is credible.
    #[must_use]
    pub fn held_unseen(&self) -> BTreeSet<InstanceId> {
        Some(self.unseen.clone()).filter(|unseen| unseen.len() > self.may_be_unseen()).unwrap_or_default()
    }

    /// What is done about while the rest is held: what is explained, and nothing else. An instance that EC2 shows as ended has
    /// ended, whatever else is in doubt.
    pub fn explained_alone(&self) -> Self {
        let explained = self.explained.clone();
        let seen = |id: &InstanceId| !self.unseen.contains(id);
        let lost = self.lost.iter().filter_map(|(batch, ids)| {
            let ids: BTreeSet<_> = ids.iter().filter(|id| seen(id)).cloned().collect();
            (!ids.is_empty()).then(|| (batch.clone(), ids))
        });
        Self {
            instances: explained.clone(),
            explained,
            lost: lost.collect(),
            nodes: self.nodes.iter().filter(|(_, id)| seen(id)).map(|(node, id)| (node.clone(), id.clone())).collect(),
            live: self.live,
            listed: self.listed,
            ..Self::default()
        }
    }

    /// Names exactly this set of instances: what a person confirms is what they saw.
    #[must_use]
    pub fn digest(&self) -> String {
        let fields = Fields::new("muster orphans 1");
        let fields = self.unexplained().iter().fold(fields, |fields, id| fields.text(id.as_str()));
        let unseen = self.held_unseen();
        let fields = if unseen.is_empty() { fields } else { fields.text("unseen") };
        let text = unseen.iter().fold(fields, |fields, id| fields.text(id.as_str())).finish();
        text.chars().take(12).collect()
    }
}

/// Surprises that are credible at once among so many: a tenth, five among few.
pub(super) fn credible(among: usize) -> usize {
    (among / 10).max(5)
}

/// What a round does, and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "findings that nobody acts on cost money"]
pub struct SweepRound {
    /// To be done now.
    pub act: Findings,
    /// What waits for a person, if anything does.
    pub held: Option<Findings>,
}

/// What follows from two looks: only what both found is acted on, and what exceeds the threshold only if a person has
/// confirmed exactly that set. `confirmed` are the sets that people have named.
pub fn sweep_round(first: &Findings, second: &Findings, confirmed: &BTreeSet<&str>) -> SweepRound {
    let found = first.confirmed_by(second);
    if found.held() && !confirmed.contains(found.digest().as_str()) {
        SweepRound { act: found.explained_alone(), held: Some(found) }
    } else {
        SweepRound { act: found, held: None }
    }
}

/// Finds orphans both ways. Pure: the same account and objects give the same findings.
pub fn collect(input: &Collection<'_>) -> Findings {
    let Collection { cluster_uid, account, batches, nodes, grace, now } = *input;
    let by_uid: BTreeMap<&str, &KnownBatch> = batches.iter().map(|batch| (batch.uid.as_str(), batch)).collect();
    let listed: BTreeSet<&InstanceId> =
        batches.iter().flat_map(|batch| batch.instances.iter().map(|instance| &instance.id)).collect();
    let ours = |tags: &Tags| tags.get(TAG_CLUSTER_UID).map(String::as_str) == Some(cluster_uid);
    let batch_of = |tags: &Tags| tags.get(TAG_BATCH).filter(|_| ours(tags)).cloned();
    let old = |at: Option<Timestamp>| at.is_some_and(|at| now.duration_since(at) >= grace);

    let mut findings = Findings::default();
    for instance in &account.instances {
        let Some(uid) = batch_of(&instance.tags) else { continue };
        if ended(instance.state) {
            continue;
        }
        findings.live += 1;
        let attempt = instance.tags.get(TAG_ATTEMPT).and_then(|number| number.parse::<u32>().ok());
        let in_flight =
            by_uid.get(uid.as_str()).is_some_and(|batch| batch.in_flight.is_some() && batch.in_flight == attempt);
        if !listed.contains(&instance.id) && !in_flight && old(instance.launch_time) {
            findings.instances.insert(instance.id.clone());
            let closed = by_uid.get(uid.as_str()).map_or(0, |batch| batch.closed);
            if attempt.is_some_and(|attempt| attempt <= closed) {
                findings.explained.insert(instance.id.clone());
            }
        }
    }
    // An instance whose tags are not visible yet is found by its id alone, so absence is judged by ids of all.
    let there: BTreeSet<&InstanceId> =
        account.instances.iter().filter(|instance| !ended(instance.state)).map(|instance| &instance.id).collect();
    for batch in batches.iter().filter(|batch| !batch.ending) {
        let lost: BTreeSet<InstanceId> = batch
            .instances
            .iter()
            .filter(|instance| !instance.settled && old(instance.since) && !there.contains(&instance.id))
            .map(|instance| instance.id.clone())
            .collect();
        if !lost.is_empty() {
            findings.lost.insert(batch.name.clone(), lost);
        }
    }
    // A Node whose instance a batch still waits for may be ahead of what EC2 shows.
    let young: BTreeSet<&InstanceId> = batches
        .iter()
        .flat_map(|batch| &batch.instances)
        .filter(|instance| !old(instance.since))
        .map(|instance| &instance.id)
        .collect();
    findings.nodes = nodes
        .iter()
        .filter(|node| !there.contains(&node.instance) && !young.contains(&node.instance))
        .map(|node| (node.name.clone(), node.instance.clone()))
        .collect();
    let shown: BTreeSet<&InstanceId> = account.instances.iter().map(|instance| &instance.id).collect();
    let missed = findings.lost.values().flatten().chain(findings.nodes.values());
    findings.unseen = missed.filter(|id| !shown.contains(id)).cloned().collect();
    let expected = batches.iter().filter(|batch| !batch.ending).flat_map(|batch| &batch.instances);
    let expected = expected.filter(|instance| !instance.settled).map(|instance| &instance.id);
    findings.listed = expected.chain(nodes.iter().map(|node| &node.instance)).collect::<BTreeSet<_>>().len();
    let occupied: BTreeSet<&str> = account
        .instances
        .iter()
        .filter(|instance| instance.state != InstanceState::Terminated)
        .filter_map(|instance| instance.placement_group.as_deref())
        .collect();
    for group in &account.groups {
        let Some(uid) = batch_of(&group.tags) else { continue };
        let wanted = by_uid.get(uid.as_str()).is_some_and(|batch| batch.group.as_ref() == Some(&group.name));
        if !wanted && !occupied.contains(group.name.as_str()) {
            findings.groups.insert(group.name.clone());
        }
    }
    for template in &account.templates {
        let Some(uid) = batch_of(&template.tags) else { continue };
        if !by_uid.get(uid.as_str()).is_some_and(|batch| batch.templates.contains(&template.name)) {
            findings.templates.insert(template.id.clone());
        }
    }
    findings
}

/// Whether the instance is gone or on its way out by itself.
fn ended(state: InstanceState) -> bool {
    match state {
        InstanceState::ShuttingDown | InstanceState::Terminated => true,
        InstanceState::Pending
        | InstanceState::Running
        | InstanceState::Stopping
        | InstanceState::Stopped
        | InstanceState::Unknown => false,
    }
}

/// When the next round is due: often after a change of the leader, whose predecessor may have left things behind.
#[must_use]
pub fn next_round(rounds: u32, often: SignedDuration, seldom: SignedDuration) -> SignedDuration {
    if rounds < 10 { often } else { seldom }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::batch::fixtures::attempt;
    use crate::model::batch::{Attempt, BatchPhase, BatchSpec, BatchStatus, MemberState};
    use crate::model::launch::tests::parameters;

    #[test]
    fn an_attempt_in_flight_is_the_last_one_with_parameters() {
        let open = Attempt { number: 3, parameters: Some(parameters().into()), ..attempt() };
        let mut batch = Batch {
            name: "b-1".to_owned(),
            uid: "u".to_owned(),
            created: None,
            deleting: false,
            spec: Arc::new(BatchSpec::default()),
            status: BatchStatus {
                phase: BatchPhase::Launching,
                attempt: 3,
                attempts: vec![open],
                ..BatchStatus::default()
            },
            newer: None,
        };
        assert_eq!((KnownBatch::of(&batch).in_flight, KnownBatch::of(&batch).closed), (Some(3), 2), "it is open");
        assert!(KnownBatch::of(&batch).ending, "nothing can be missing that was not launched");
        batch.status.attempts[0].outcome = AttemptOutcome::Won;
        assert_eq!((KnownBatch::of(&batch).in_flight, KnownBatch::of(&batch).closed), (None, 3));
        batch.status.attempts[0].outcome = AttemptOutcome::Launching;
        batch.status.attempts[0].parameters = None;
        assert_eq!(KnownBatch::of(&batch).in_flight, None, "no call was sent");
        assert_eq!(KnownBatch::of(&batch).closed, 2, "whether it was sent is not known");
    }

    #[test]
    fn what_a_batch_lists_is_missed_from_its_launch_on_unless_it_is_lost_already_or_the_batch_is_a_newer_version_s() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let [mut listed, lost, mut forgotten] =
            ["i-1", "i-2", "i-3"].map(|id| BatchMember::new(id.into(), 1, MemberState::Ready));
        listed.attempt = 2;
        forgotten.attempt = 7;
        forgotten.state = MemberState::Lost;
        let launch = |number, ended| Attempt { number, started: Some(at(0)), ended, ..attempt() };
        let status = BatchStatus {
            phase: BatchPhase::InUse,
            since: Some(at(50)),
            attempts: vec![launch(1, None), launch(2, Some(at(9)))],
            instances: vec![listed, forgotten],
            replaced: vec![lost],
            placement_group: Some("group".to_owned()),
            launch_templates: vec!["template".to_owned()],
            ..BatchStatus::default()
        };
        let mut batch = Batch {
            name: "b-1".to_owned(),
            uid: "u".to_owned(),
            created: None,
            deleting: false,
            spec: Arc::new(BatchSpec::default()),
            status,
            newer: None,
        };
        let known = KnownBatch::of(&batch);
        let of = |id: &str, since, settled| KnownInstance { id: id.into(), since: Some(at(since)), settled };
        assert_eq!(known.instances, [of("i-1", 9, false), of("i-3", 50, true), of("i-2", 0, true)]);
        assert_eq!((known.name.as_str(), known.uid.as_str(), known.ending), ("b-1", "u", false));
        assert_eq!((known.group.as_deref(), known.templates.contains("template")), (Some("group"), true));
        batch.newer = Some("phase Dozing".to_owned());
        assert!(KnownBatch::of(&batch).ending, "nothing is concluded of what is not understood");
    }

    #[test]
    fn nothing_is_to_be_done_only_if_no_finding_is_left() {
        assert!(Findings { live: 9, explained: ["i-1".into()].into(), ..Findings::default() }.is_empty());
        let findings = [
            Findings { instances: ["i-1".into()].into(), ..Findings::default() },
            Findings { lost: [("b-1".to_owned(), ["i-1".into()].into())].into(), ..Findings::default() },
            Findings { nodes: [("n-1".into(), "i-1".into())].into(), ..Findings::default() },
            Findings { groups: ["group".to_owned()].into(), ..Findings::default() },
            Findings { templates: ["lt-1".to_owned()].into(), ..Findings::default() },
        ];
        for found in &findings {
            assert!(!found.is_empty(), "{found:?}");
            assert_eq!(found.confirmed_by(found), *found);
            assert!(found.confirmed_by(&Findings::default()).is_empty());
        }
    }

    #[test]
    fn what_is_explained_is_all_that_is_done_while_the_rest_is_held() {
        let found = Findings {
            instances: ["i-1".into(), "i-2".into()].into(),
            explained: ["i-1".into()].into(),
            lost: [("b-1".to_owned(), ["i-3".into(), "i-4".into()].into()), ("b-2".to_owned(), ["i-5".into()].into())]
                .into(),
            nodes: [("n-3".into(), "i-3".into()), ("n-4".into(), "i-4".into())].into(),
            unseen: ["i-4".into(), "i-5".into()].into(),
            live: 9,
            listed: 7,
            ..Findings::default()
        };
        let explained: BTreeSet<InstanceId> = ["i-1".into()].into();
        let alone = Findings {
            instances: explained.clone(),
            explained,
            lost: [("b-1".to_owned(), ["i-3".into()].into())].into(),
            nodes: [("n-3".into(), "i-3".into())].into(),
            live: 9,
            listed: 7,
            ..Findings::default()
        };
        assert_eq!(found.explained_alone(), alone);
    }

    #[test]
    fn rounds_are_frequent_after_a_change_of_the_leader() {
        let (often, seldom) = (SignedDuration::from_secs(1), SignedDuration::from_secs(60));
        assert_eq!((next_round(0, often, seldom), next_round(9, often, seldom)), (often, often));
        assert_eq!((next_round(10, often, seldom), next_round(99, often, seldom)), (seldom, seldom));
    }
}
