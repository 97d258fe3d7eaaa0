//! What an answer to a launch call proves, and what it does not.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ec2::error::{CallError, ErrorClass, classify};
use crate::model::launch::Pool;
use crate::model::launch::{FleetError, LaunchAnswer, LaunchParameters, LaunchedInstance};
use crate::model::names::InstanceId;

/// State of an attempt after one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[must_use = "a launch whose verdict is dropped leaks instances"]
pub enum Verdict {
    /// N instances (where part will do: 1 to N), one type, one zone, as asked for.
    Won(Vec<InstanceId>),
    /// Instances, but not a clean N: roll back, sweep, attempt+1.
    Violated(Vec<InstanceId>),
    /// Nothing was launched; `why.kind.next()` says what to try.
    Lost {
        /// The reason.
        why: Why,
        /// Pools named with a capacity code: enter them into the unavailable offerings at N.
        unavailable: Vec<Pool>,
        /// What must be looked at before the loss counts.
        confirm: Confirm,
    },
    /// A quota: nothing was launched and no other zone helps.
    Quota {
        /// The reason; its code names the quota.
        why: Why,
        /// Pools named with a capacity code beside it.
        unavailable: Vec<Pool>,
        /// What must be looked at before the loss counts.
        confirm: Confirm,
    },
    /// Configuration or permission: nothing was launched, and only a person or a changed object helps.
    Configuration {
        /// The reason; its kind is `Configuration` or `Permission`.
        why: Why,
        /// Pools named with a capacity code beside it.
        unavailable: Vec<Pool>,
        /// What must be looked at before the loss counts.
        confirm: Confirm,
    },
    /// HTTP 200 without instances, and among its items one that says nothing about capacity (a throttle, trouble in
    /// EC2, a resource not visible yet). Look at fleet and sweep; nothing found: back off, then attempt+1 **on the same
    /// candidate**, since the same token would only give the same answer.
    Throttled {
        /// The reason.
        why: Why,
        /// Pools named with a capacity code beside it.
        unavailable: Vec<Pool>,
    },
    /// Refused before anything was decided: the same call with the same token again after a back-off.
    NotDecided {
        /// The reason.
        why: Why,
    },
    /// EC2 refuses the token (mismatch, or its instances are gone): look at fleet and sweep, then attempt+1.
    TokenRefused {
        /// The reason.
        why: Why,
    },
    /// Open. Replay the same call until there is an answer, then judge by what exists.
    Unknown {
        /// What was heard, if anything.
        why: Option<Why>,
        /// Pools named with a capacity code, worth remembering whatever the outcome.
        unavailable: Vec<Pool>,
    },
}

/// What must be looked at before a loss counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Confirm {
    /// Nothing: EC2 refused the request as a whole.
    Nothing,
    /// DescribeFleets by id and one sweep by tags: an empty list of instances in a 200 proves nothing.
    FleetAndSweep,
}

/// A reason in EC2's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// What it means.
    pub kind: ErrorClass,
    /// EC2's code, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// EC2's text.
    pub message: String,
    /// The type that EC2 names, of an item of a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The zone that EC2 names, of an item of a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

impl Why {
    fn of_call(error: &CallError) -> Self {
        Self {
            kind: error.kind,
            code: error.code.clone(),
            message: error.message.clone(),
            instance_type: None,
            zone: None,
        }
    }

    fn of_item(item: &FleetError) -> Self {
        Self {
            kind: classify(Some(&item.code), None),
            code: (!item.code.is_empty()).then(|| item.code.clone()),
            message: item.message.clone(),
            instance_type: item.instance_type.clone(),
            zone: item.zone.clone(),
        }
    }
}

/// Judges one answer to a launch call.
///
/// `first_answer` is true only if no earlier call with this token may have reached EC2: after a timeout, a reset, a
/// restart or a [`Verdict::NotDecided`] with [`ErrorClass::Server`] (the work may have been done before the trouble)
/// every answer is that of a replay, and a replay without instances proves nothing (AWS does not document what a known
/// token answers). Instances are counted as distinct ids; a type or zone that the answer excludes is taken as
/// asked for, and the sweep sees the rest.
pub fn judge(wanted: &LaunchParameters, first_answer: bool, answer: &Result<LaunchAnswer, CallError>) -> Verdict {
    match answer {
        Ok(answer) if !answer.instances.is_empty() => judge_instances(wanted, answer),
        Ok(answer) => judge_empty(wanted, first_answer, &answer.errors),
        Err(error) => judge_exception(wanted, first_answer, error),
    }
}

fn judge_instances(wanted: &LaunchParameters, answer: &LaunchAnswer) -> Verdict {
    let ids: BTreeSet<_> = answer.instances.iter().map(|instance| instance.id.clone()).collect();
    let clean = launched_as(wanted, &answer.instances).is_some();
    let got = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    // Where part will do, fewer are a shrink, which is recorded; more are never what was asked for.
    let enough = if wanted.partial { got <= wanted.count } else { got == wanted.count };
    let complete = enough && ids.len() == answer.instances.len();
    let ids = ids.into_iter().collect();
    if clean && complete { Verdict::Won(ids) } else { Verdict::Violated(ids) }
}

/// The one type and zone of instances that a launch made; a type or zone that is not stated is the one asked for first. `None`:
/// they are several, or none that was asked for.
#[must_use]
pub(super) fn launched_as(wanted: &LaunchParameters, instances: &[LaunchedInstance]) -> Option<Pool> {
    let agrees = |stated: &str, asked: &str| stated.is_empty() || stated == asked;
    let is_all = |pool: &Pool| {
        let agrees =
            |one: &LaunchedInstance| agrees(&one.instance_type, &pool.instance_type) && agrees(&one.zone, &pool.zone);
        instances.iter().all(agrees)
    };
    wanted.pools().into_iter().find(is_all)
}

fn judge_empty(wanted: &LaunchParameters, first_answer: bool, items: &[FleetError]) -> Verdict {
    let reasons: Vec<Why> = items.iter().map(Why::of_item).collect();
    let unavailable = capacity_pools(wanted, items);
    // The item that decides is the one that leaves least to try; the rank of a class says how little that is.
    let Some(why) = reasons.into_iter().min_by_key(|why| rank(why.kind)) else {
        return Verdict::Unknown { why: None, unavailable };
    };
    // Where nothing but capacity is named it is what all of them lacked, however few items EC2 makes of it.
    let all = why.kind == ErrorClass::Capacity && !wanted.overrides.is_empty();
    let unavailable = if all { wanted.pools() } else { unavailable };
    let settled = settle(why.kind);
    if let Settled::Throttled = settled {
        return Verdict::Throttled { why, unavailable };
    }
    if let Settled::Token = settled {
        return Verdict::TokenRefused { why };
    }
    if !first_answer {
        return Verdict::Unknown { why: Some(why), unavailable };
    }
    let confirm = Confirm::FleetAndSweep;
    match settled {
        Settled::Lost => Verdict::Lost { why, unavailable, confirm },
        Settled::Quota => Verdict::Quota { why, unavailable, confirm },
        Settled::Configuration => Verdict::Configuration { why, unavailable, confirm },
        Settled::Throttled | Settled::Token | Settled::Open => Verdict::Unknown { why: Some(why), unavailable },
    }
}

fn judge_exception(wanted: &LaunchParameters, first_answer: bool, error: &CallError) -> Verdict {
    let why = Why::of_call(error);
    let unavailable = if error.kind == ErrorClass::Capacity { wanted.pools() } else { Vec::new() };
    let confirm = Confirm::Nothing;
    match settle(error.kind) {
        Settled::Throttled => Verdict::NotDecided { why },
        Settled::Token => Verdict::TokenRefused { why },
        Settled::Lost if first_answer => Verdict::Lost { why, unavailable, confirm },
        Settled::Quota if first_answer => Verdict::Quota { why, unavailable, confirm },
        Settled::Configuration if first_answer => Verdict::Configuration { why, unavailable, confirm },
        Settled::Lost | Settled::Quota | Settled::Configuration | Settled::Open => {
            Verdict::Unknown { why: Some(why), unavailable }
        }
    }
}

/// What a class alone settles about a launch.
#[derive(Clone, Copy)]
enum Settled {
    Lost,
    Quota,
    Configuration,
    Throttled,
    Token,
    Open,
}

fn settle(class: ErrorClass) -> Settled {
    match class {
        ErrorClass::Capacity
        | ErrorClass::SpotQuota
        | ErrorClass::SpotForbidden
        | ErrorClass::FleetLimit
        | ErrorClass::GroupLimit
        | ErrorClass::ReservationFull
        | ErrorClass::ReservationNotStarted
        | ErrorClass::NotOffered
        | ErrorClass::SubnetFull => Settled::Lost,
        ErrorClass::Quota => Settled::Quota,
        ErrorClass::Configuration | ErrorClass::Permission => Settled::Configuration,
        ErrorClass::Throttle | ErrorClass::Server | ErrorClass::NotVisibleYet | ErrorClass::NotSent => {
            Settled::Throttled
        }
        ErrorClass::TokenMismatch | ErrorClass::TokenSpent => Settled::Token,
        ErrorClass::AlreadyExists | ErrorClass::InUse | ErrorClass::DryRunPassed | ErrorClass::Unknown => Settled::Open,
    }
}

/// Which of several items decides: what is open before what is settled, what stops before what goes on.
fn rank(class: ErrorClass) -> u8 {
    match settle(class) {
        Settled::Token => 0,
        Settled::Throttled => 1,
        Settled::Open => 2,
        Settled::Quota => 3,
        Settled::Configuration => 4,
        Settled::Lost if class == ErrorClass::Capacity => 6,
        Settled::Lost => 5,
    }
}

/// Pools named with a capacity code; type and zone that an item excludes are those of the call.
pub(super) fn capacity_pools(wanted: &LaunchParameters, items: &[FleetError]) -> Vec<Pool> {
    let pools: BTreeSet<Pool> = items
        .iter()
        .filter(|item| classify(Some(&item.code), None) == ErrorClass::Capacity)
        .map(|item| Pool {
            instance_type: item.instance_type.clone().unwrap_or_else(|| wanted.instance_type.clone()),
            zone: item.zone.clone().unwrap_or_else(|| wanted.zone.clone()),
            ..wanted.pool()
        })
        .collect();
    pools.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::LaunchedInstance;
    use crate::model::launch::tests::parameters;

    const FIRST: bool = true;
    const REPLAY: bool = false;

    fn launched(count: usize) -> Vec<LaunchedInstance> {
        (0..count)
            .map(|index| LaunchedInstance {
                id: format!("i-{index:02}").into(),
                instance_type: "p5.48xlarge".to_owned(),
                zone: "us-east-1a".to_owned(),
            })
            .collect()
    }

    fn ok(instances: Vec<LaunchedInstance>, codes: &[&str]) -> Result<LaunchAnswer, CallError> {
        let item = |code: &&str| FleetError {
            code: (*code).to_owned(),
            message: String::new(),
            instance_type: Some("p5.48xlarge".to_owned()),
            zone: Some("us-east-1a".to_owned()),
        };
        Ok(LaunchAnswer {
            fleet_id: Some("fleet-1".to_owned()),
            request_id: None,
            instances,
            errors: codes.iter().map(item).collect(),
        })
    }

    fn exception(code: Option<&str>, status: Option<u16>) -> Result<LaunchAnswer, CallError> {
        Err(CallError {
            operation: "CreateFleet".to_owned(),
            kind: classify(code, status),
            code: code.map(str::to_owned),
            message: String::new(),
            http_status: status,
            request_id: None,
        })
    }

    fn verdict(first: bool, answer: &Result<LaunchAnswer, CallError>) -> Verdict {
        judge(&parameters(), first, answer)
    }

    #[test]
    fn row_1_n_ids_of_one_type_in_one_zone_win_first_or_replayed() {
        for first in [FIRST, REPLAY] {
            let Verdict::Won(ids) = verdict(first, &ok(launched(4), &[])) else { panic!("not won") };
            assert_eq!(ids.len(), 4);
        }
        // Items beside a full launch are other overrides' troubles.
        assert!(matches!(verdict(FIRST, &ok(launched(4), &["RequestLimitExceeded"])), Verdict::Won(_)));
    }

    #[test]
    fn row_2_anything_but_a_clean_n_is_violated_and_names_every_id() {
        let mut other_zone = launched(4);
        other_zone[3].zone = "us-east-1b".to_owned();
        let mut other_type = launched(4);
        other_type[0].instance_type = "p5e.48xlarge".to_owned();
        let mut twice = launched(4);
        twice[1] = twice[0].clone();
        let wrong =
            [(launched(1), 1), (launched(3), 3), (launched(5), 5), (other_zone, 4), (other_type, 4), (twice, 3)];
        for (instances, distinct) in wrong {
            for first in [FIRST, REPLAY] {
                let Verdict::Violated(ids) = verdict(first, &ok(instances.clone(), &[])) else {
                    panic!("not violated")
                };
                assert_eq!(ids.len(), distinct);
            }
        }
    }

    #[test]
    fn where_part_will_do_fewer_are_won_and_more_are_not() {
        let partial = LaunchParameters { partial: true, ..parameters() };
        for count in 1..=4 {
            let verdict = judge(&partial, FIRST, &ok(launched(count), &["InsufficientInstanceCapacity"]));
            assert!(matches!(verdict, Verdict::Won(ids) if ids.len() == count));
        }
        assert!(matches!(judge(&partial, FIRST, &ok(launched(5), &[])), Verdict::Violated(_)));
        assert!(matches!(
            judge(&partial, FIRST, &ok(Vec::new(), &["InsufficientInstanceCapacity"])),
            Verdict::Lost { .. }
        ));
    }

    #[test]
    fn a_type_or_zone_excluded_of_the_answer_is_no_violation() {
        let mut silent = launched(4);
        silent[0].zone.clear();
        silent[1].instance_type.clear();
        assert!(matches!(verdict(FIRST, &ok(silent, &[])), Verdict::Won(_)));
    }

    #[test]
    fn row_3_only_capacity_items_in_a_first_answer_are_lost_after_a_look() {
        for code in ["InsufficientInstanceCapacity", "UnfulfillableCapacity"] {
            let Verdict::Lost { why, unavailable, confirm } = verdict(FIRST, &ok(Vec::new(), &[code])) else {
                panic!("not lost")
            };
            assert_eq!(why.kind, ErrorClass::Capacity);
            assert_eq!(unavailable, [parameters().pool()]);
            assert_eq!(confirm, Confirm::FleetAndSweep);
        }
    }

    #[test]
    fn row_4_an_unavailable_exception_as_first_answer_is_lost_at_once() {
        let Verdict::Lost { unavailable, confirm, .. } =
            verdict(FIRST, &exception(Some("InsufficientInstanceCapacity"), Some(500)))
        else {
            panic!("not lost")
        };
        assert_eq!(unavailable, [parameters().pool()]);
        assert_eq!(confirm, Confirm::Nothing);
    }

    #[test]
    fn row_5_no_ids_and_no_items_prove_nothing() {
        for first in [FIRST, REPLAY] {
            assert_eq!(verdict(first, &ok(Vec::new(), &[])), Verdict::Unknown { why: None, unavailable: Vec::new() });
        }
    }

    #[test]
    fn row_5_a_replay_without_ids_is_unknown_and_marks_only_capacity() {
        let Verdict::Unknown { unavailable, .. } = verdict(REPLAY, &ok(Vec::new(), &["InsufficientInstanceCapacity"]))
        else {
            panic!("not unknown")
        };
        assert_eq!(unavailable, [parameters().pool()]);
        for code in ["VcpuLimitExceeded", "Unsupported", "UnauthorizedOperation"] {
            let answers = [ok(Vec::new(), &[code]), exception(Some(code), Some(400))];
            for answer in answers {
                let Verdict::Unknown { unavailable, .. } = verdict(REPLAY, &answer) else {
                    panic!("{code} not unknown")
                };
                assert!(unavailable.is_empty(), "{code}");
            }
        }
        assert!(matches!(
            verdict(REPLAY, &exception(Some("InsufficientInstanceCapacity"), Some(500))),
            Verdict::Unknown { .. }
        ));
    }

    #[test]
    fn row_6_a_throttle_among_the_items_is_no_verdict_on_capacity() {
        let codes = ["InsufficientInstanceCapacity", "RequestLimitExceeded"];
        for first in [FIRST, REPLAY] {
            let Verdict::Throttled { why, unavailable } = verdict(first, &ok(Vec::new(), &codes)) else {
                panic!("not throttled")
            };
            assert_eq!(why.kind, ErrorClass::Throttle);
            assert_eq!(unavailable, [parameters().pool()]);
            let alone = verdict(first, &ok(Vec::new(), &["InternalError"]));
            assert!(matches!(alone, Verdict::Throttled { unavailable, .. } if unavailable.is_empty()));
        }
    }

    #[test]
    fn row_7_a_throttle_or_server_exception_decides_nothing() {
        for first in [FIRST, REPLAY] {
            for (code, status) in [("RequestLimitExceeded", 503), ("InternalError", 500), ("Novelty", 500)] {
                let verdict = verdict(first, &exception(Some(code), Some(status)));
                assert!(matches!(verdict, Verdict::NotDecided { .. }), "{code}");
            }
        }
    }

    #[test]
    fn a_group_or_template_not_visible_yet_decides_nothing_either() {
        for code in ["InvalidPlacementGroup.Unknown", "InvalidLaunchTemplateId.NotFound"] {
            assert!(matches!(verdict(FIRST, &exception(Some(code), Some(400))), Verdict::NotDecided { .. }));
            // In a 200 the token has its answer: only a new attempt can give another.
            assert!(matches!(verdict(FIRST, &ok(Vec::new(), &[code])), Verdict::Throttled { .. }));
        }
    }

    #[test]
    fn row_8_quota_configuration_and_permission_are_lost_and_mark_no_pool() {
        for (code, class) in [
            ("VcpuLimitExceeded", ErrorClass::Quota),
            ("InvalidParameterValue", ErrorClass::Configuration),
            ("UnauthorizedOperation", ErrorClass::Permission),
        ] {
            let looks = [
                (ok(Vec::new(), &[code]), Confirm::FleetAndSweep),
                (exception(Some(code), Some(400)), Confirm::Nothing),
            ];
            for (answer, look) in looks {
                match verdict(FIRST, &answer) {
                    Verdict::Quota { why, unavailable, confirm }
                    | Verdict::Configuration { why, unavailable, confirm } => {
                        assert_eq!((why.kind, unavailable, confirm), (class, Vec::new(), look));
                    }
                    other => panic!("{code}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_quota_beside_capacity_stops_and_still_marks_the_pool() {
        let codes = ["InsufficientInstanceCapacity", "VcpuLimitExceeded"];
        let Verdict::Quota { unavailable, .. } = verdict(FIRST, &ok(Vec::new(), &codes)) else { panic!("not a quota") };
        assert_eq!(unavailable, [parameters().pool()]);
    }

    #[test]
    fn losses_that_another_candidate_can_heal_mark_no_pool() {
        for code in
            ["Unsupported", "InsufficientFreeAddressesInSubnet", "MaxFleetCountExceeded", "ReservationCapacityExceeded"]
        {
            let Verdict::Lost { unavailable, .. } = verdict(FIRST, &ok(Vec::new(), &[code])) else {
                panic!("{code} not lost")
            };
            assert!(unavailable.is_empty(), "{code}");
        }
    }

    #[test]
    fn rows_9_and_10_a_refused_token_asks_for_a_look_and_a_new_attempt() {
        for first in [FIRST, REPLAY] {
            for code in ["IdempotentParameterMismatch", "IdempotentInstanceTerminated"] {
                assert!(matches!(verdict(first, &exception(Some(code), Some(400))), Verdict::TokenRefused { .. }));
            }
        }
    }

    #[test]
    fn row_11_timeouts_resets_and_nameless_5xx_are_unknown() {
        for first in [FIRST, REPLAY] {
            for status in [None, Some(500), Some(502), Some(504)] {
                assert!(
                    matches!(verdict(first, &exception(None, status)), Verdict::Unknown { unavailable, .. } if unavailable.is_empty())
                );
            }
        }
    }

    #[test]
    fn of_several_items_the_one_that_leaves_least_to_try_decides() {
        let lacking = "InsufficientInstanceCapacity";
        for codes in [[lacking, "InsufficientFreeAddressesInSubnet"], ["InsufficientFreeAddressesInSubnet", lacking]] {
            let Verdict::Lost { why, unavailable, .. } = judge(&parameters(), FIRST, &ok(Vec::new(), &codes)) else {
                panic!("{codes:?}");
            };
            assert_eq!((why.kind, unavailable.len()), (ErrorClass::SubnetFull, 1), "{codes:?}");
        }
    }

    #[test]
    fn what_an_item_names_lacks_capacity_and_not_what_was_asked_for() {
        let mut answer = ok(Vec::new(), &["InsufficientInstanceCapacity"]).unwrap();
        answer.errors[0].instance_type = Some("p4d.24xlarge".to_owned());
        answer.errors[0].zone = Some("us-east-1b".to_owned());
        let lost = |answer: LaunchAnswer| match judge(&parameters(), FIRST, &Ok(answer)) {
            Verdict::Lost { unavailable, .. } => unavailable,
            other => panic!("{other:?}"),
        };
        let pool = &lost(answer.clone())[0];
        assert_eq!((pool.instance_type.as_str(), pool.zone.as_str()), ("p4d.24xlarge", "us-east-1b"));
        (answer.errors[0].instance_type, answer.errors[0].zone) = (None, None);
        assert_eq!(lost(answer), [parameters().pool()]);
    }
}
