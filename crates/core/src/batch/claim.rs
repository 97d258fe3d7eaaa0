//! NodeBatches as the ledger counts them: what each takes, or may take, of limits, cost ceilings, reservations and subnets.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::batch::{AttemptOutcome, Batch, BatchOffer, BatchPhase, BatchStatus, MemberState};
use crate::model::resources::Resources;
use crate::offering::ledger::{Addresses, Amounts, Claim, Hosts, Launch, Standing};
use crate::offering::limits::NODES;

/// What one node of an offer takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerNode {
    /// Of limits and cost ceilings, at today's price.
    pub amounts: Amounts,
    /// Addresses of its subnet.
    pub addresses: u32,
}

/// What a batch takes. `per_node` tells what one node of a pool and type takes; of a type that nobody knows a node counts
/// for itself alone, and for what was recorded when it was decided. Only pools that are `usable` can be launched from next:
/// what a batch may take of others holds nobody up.
#[must_use]
pub fn claim(
    batch: &Batch,
    per_node: impl Fn(&str, &str) -> Option<PerNode>,
    usable: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Claim {
    let status = &batch.status;
    let standing = standing(batch, now);
    let per_node = |pool: &str, instance_type: &str| per_node(pool, instance_type).unwrap_or_else(unknown);
    let (amounts, launch) = match (standing, &status.node_pool) {
        (Standing::Begun, Some(pool)) => {
            let each = per_node(pool, status.instance_type.as_deref().unwrap_or_default());
            let mut of_one = each.amounts;
            if let Some(recorded) = status.reserved.get(pool).and_then(one_of) {
                of_one.resources = recorded;
            }
            let mut amounts = times(&of_one, nodes(batch));
            // What the launch was decided at stays, whatever the price is by now.
            if let Some(recorded) = status.price {
                amounts.micro_usd_per_hour = match nodes(batch) {
                    0 => 0,
                    nodes if batch.spec.partial => recorded / u64::from(status.count.max(1)) * u64::from(nodes),
                    _ => recorded,
                };
            }
            (BTreeMap::from([(pool.clone(), amounts)]), launch(status, each.addresses))
        }
        (Standing::Begun, None) => (BTreeMap::new(), None),
        (Standing::Waiting | Standing::Resting, _) => {
            let mut most: BTreeMap<String, Amounts> = BTreeMap::new();
            for BatchOffer { node_pool, instance_type, count } in &batch.spec.offers {
                if usable(node_pool) {
                    let amounts = times(&per_node(node_pool, instance_type).amounts, *count);
                    let known = most.remove(node_pool).unwrap_or_default();
                    most.insert(node_pool.clone(), known.or(&amounts));
                }
            }
            for (pool, resources) in batch.spec.reserves.iter().filter(|(pool, _)| usable(pool)) {
                let recorded = Amounts { resources: resources.clone(), micro_usd_per_hour: 0 };
                let known = most.remove(pool).unwrap_or_default();
                most.insert(pool.clone(), known.or(&recorded));
            }
            (most, None)
        }
    };
    Claim { batch: batch.name.clone(), created: batch.created, standing, amounts, launch }
}

/// What the nodes of some offers take at most of each pool, by what one node of a pool and type takes.
#[must_use]
pub fn reserves<'a>(
    offers: impl Iterator<Item = (&'a str, &'a str, u32)>,
    each: impl Fn(&str, &str) -> Option<Resources>,
) -> BTreeMap<String, Resources> {
    let mut most: BTreeMap<String, Amounts> = BTreeMap::new();
    for (pool, instance_type, count) in offers {
        let each = each(pool, instance_type).unwrap_or_else(|| unknown().amounts.resources);
        let known = most.remove(pool).unwrap_or_default();
        most.insert(pool.to_owned(), known.or(&Amounts::of_nodes(&each, 0, count)));
    }
    most.into_iter().map(|(pool, amounts)| (pool, amounts.resources)).collect()
}

/// What one of the nodes takes that were recorded together; `None`: none was.
#[must_use]
pub fn one_of(recorded: &Resources) -> Option<Resources> {
    let nodes = Some(recorded.get(NODES)).filter(|nodes| *nodes > 0)?;
    let mut one = Resources::default();
    for (name, amount) in recorded.iter() {
        one.set(name.clone(), amount / nodes);
    }
    Some(one)
}

fn standing(batch: &Batch, now: Timestamp) -> Standing {
    let status = &batch.status;
    match status.phase {
        BatchPhase::Pending => {
            let pauses = status.next_attempt_after.is_some_and(|at| at > now);
            let rests = status.held.is_some() || pauses || batch.deleting;
            if rests { Standing::Resting } else { Standing::Waiting }
        }
        // Every other phase has an attempt or instances; so has what a newer version wrote.
        BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready
        | BatchPhase::InUse
        | BatchPhase::Idle
        | BatchPhase::Draining
        | BatchPhase::Terminating => Standing::Begun,
    }
}

/// Nodes of a batch that has begun. A node of a gang that was lost counts no more beside its replacement. Where nothing is
/// replaced, what was taken out of the count is paid for until it has ended.
fn nodes(batch: &Batch) -> u32 {
    let status = &batch.status;
    let counted = match status.phase {
        // It may have been given up before anything was launched.
        BatchPhase::Draining | BatchPhase::Terminating => {
            let left = status.instances.iter().filter(|one| one.state != MemberState::Gone).count();
            u32::try_from(left).unwrap_or(u32::MAX).min(status.count)
        }
        BatchPhase::Pending
        | BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready
        | BatchPhase::InUse
        | BatchPhase::Idle => status.count,
    };
    let ending = status.replaced.iter().filter(|one| batch.spec.partial && one.state != MemberState::Gone).count();
    counted.saturating_add(u32::try_from(ending).unwrap_or(u32::MAX))
}

fn launch(status: &BatchStatus, addresses_per_node: u32) -> Option<Launch> {
    let attempt = status.last()?;
    let won = match attempt.outcome {
        AttemptOutcome::Launching => None,
        AttemptOutcome::Won => Some(attempt.ended?),
        AttemptOutcome::Lost
        | AttemptOutcome::Retry
        | AttemptOutcome::Violated
        | AttemptOutcome::Misplaced
        | AttemptOutcome::ProbeJoined => return None,
    };
    let hosts = attempt.reservation.as_ref().map(|into| Hosts { reservation: into.id.clone(), count: attempt.count });
    let count = attempt.count.saturating_mul(addresses_per_node);
    Some(Launch { hosts, addresses: Addresses { subnet: attempt.subnet.clone(), count }, won })
}

fn times(each: &Amounts, count: u32) -> Amounts {
    Amounts::of_nodes(&each.resources, each.micro_usd_per_hour, count)
}

fn unknown() -> PerNode {
    let mut each = PerNode::default();
    each.amounts.resources.set(NODES, 1);
    each
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::fixtures;
    use super::*;
    use crate::model::batch::{Attempt, BatchMember, BatchSpec, Hold, HoldReason, MemberState};
    use crate::model::launch::Target;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn batch(status: BatchStatus) -> Batch {
        let offer = |pool: &str, instance_type: &str, count| BatchOffer {
            node_pool: pool.to_owned(),
            instance_type: instance_type.to_owned(),
            count,
        };
        let spec = BatchSpec {
            node_pools: vec!["one".to_owned(), "two".to_owned()],
            count: 4,
            offers: vec![offer("one", "large", 4), offer("one", "small", 8), offer("two", "small", 8)],
            ..BatchSpec::default()
        };
        Batch {
            name: "b-1".to_owned(),
            uid: "u".to_owned(),
            created: Some(time("2026-11-01T00:00:00Z")),
            deleting: false,
            spec: Arc::new(spec),
            status,
            newer: None,
        }
    }

    fn begun(phase: BatchPhase) -> BatchStatus {
        BatchStatus {
            phase,
            count: 4,
            node_pool: Some("one".to_owned()),
            instance_type: Some("large".to_owned()),
            price: Some(120),
            ..BatchStatus::default()
        }
    }

    fn per_node(_pool: &str, instance_type: &str) -> Option<PerNode> {
        let (cpu, price) = match instance_type {
            "large" => (96_000, 30),
            "small" => (32_000, 10),
            _ => return None,
        };
        let mut each = unknown();
        each.amounts.resources.set("cpu", cpu);
        each.amounts.micro_usd_per_hour = price;
        each.addresses = 3;
        Some(each)
    }

    fn of(batch: &Batch) -> Claim {
        claim(batch, per_node, |_| true, time("2026-11-01T01:00:00Z"))
    }

    /// Nodes, CPU and price of a pool.
    fn taken(claim: &Claim, pool: &str) -> Option<(i64, i64, u64)> {
        let amounts = claim.amounts.get(pool)?;
        Some((amounts.resources.get(NODES), amounts.resources.get("cpu"), amounts.micro_usd_per_hour))
    }

    fn resources(nodes: i64, cpu: i64) -> Resources {
        let mut resources = Resources::default();
        resources.set(NODES, nodes);
        resources.set("cpu", cpu);
        resources
    }

    #[test]
    fn a_batch_counts_from_its_creation_with_the_most_it_may_take_of_each_pool() {
        let claim = of(&batch(BatchStatus::default()));
        assert_eq!(claim.standing, Standing::Waiting);
        assert_eq!(taken(&claim, "one"), Some((8, 384_000, 120)));
        assert_eq!(taken(&claim, "two"), Some((8, 256_000, 80)));
    }

    #[test]
    fn what_was_reserved_at_the_creation_counts_where_no_catalogue_is_read_yet() {
        let mut waits = batch(BatchStatus::default());
        let spec = BatchSpec {
            reserves: BTreeMap::from([("one".to_owned(), resources(8, 384_000))]),
            ..BatchSpec::clone(&waits.spec)
        };
        waits.spec = Arc::new(spec);
        let of_unknown = |usable: &str| claim(&waits, |_, _| None, |pool| pool == usable, Timestamp::MAX);
        assert_eq!(taken(&of_unknown("one"), "one"), Some((8, 384_000, 0)));
        assert_eq!(taken(&of_unknown("two"), "one"), None, "a pool that cannot be used holds nobody up");
        let narrowed = BatchStatus {
            reserved: BTreeMap::from([("one".to_owned(), resources(4, 384_000))]),
            ..begun(BatchPhase::InUse)
        };
        let one = |status| taken(&claim(&batch(status), |_, _| None, |_| true, Timestamp::MAX), "one");
        assert_eq!(one(narrowed.clone()), Some((4, 384_000, 120)));
        let shrunk = BatchStatus { count: 3, ..narrowed };
        assert_eq!(one(shrunk), Some((3, 288_000, 120)), "an elastic gang that goes on with less");
    }

    #[test]
    fn a_record_that_names_no_nodes_says_nothing_of_one_of_them() {
        let mut only_cpu = Resources::default();
        only_cpu.set("cpu", 384_000);
        let status =
            BatchStatus { reserved: BTreeMap::from([("one".to_owned(), only_cpu)]), ..begun(BatchPhase::InUse) };
        assert_eq!(taken(&of(&batch(status)), "one"), Some((4, 384_000, 120)), "what the catalogue says");
    }

    #[test]
    fn what_is_reserved_is_the_most_of_any_offer_of_a_pool() {
        let offers = [("one", "large", 4), ("one", "small", 8), ("two", "odd", 2)];
        let each = |pool: &str, instance_type: &str| per_node(pool, instance_type).map(|each| each.amounts.resources);
        let reserved = reserves(offers.into_iter(), each);
        assert_eq!(reserved["one"], resources(8, 384_000));
        assert_eq!(reserved["two"], resources(2, 0), "of a type that nobody knows a node counts for itself");
    }

    #[test]
    fn once_an_attempt_has_begun_a_batch_counts_with_what_that_takes_at_its_recorded_price() {
        let attempt = Attempt {
            subnet: "s-1".to_owned(),
            count: 4,
            reservation: Some(Target { id: "cr-1".to_owned(), block: false }),
            outcome: AttemptOutcome::Launching,
            ..fixtures::attempt()
        };
        let status = BatchStatus { price: Some(90), attempts: vec![attempt], ..begun(BatchPhase::Launching) };
        let claim = of(&batch(status));
        assert_eq!(claim.standing, Standing::Begun);
        assert_eq!((taken(&claim, "one"), taken(&claim, "two")), (Some((4, 384_000, 90)), None));
        let launch = claim.launch.unwrap();
        assert_eq!(launch.hosts, Some(Hosts { reservation: "cr-1".to_owned(), count: 4 }));
        assert_eq!(launch.addresses, Addresses { subnet: "s-1".to_owned(), count: 12 });
        assert_eq!(launch.won, None);
    }

    #[test]
    fn a_launch_that_was_won_says_when_and_one_that_was_lost_takes_nothing() {
        let ended = Some(time("2026-11-01T00:30:00Z"));
        let with = |outcome| {
            let attempt = Attempt { outcome, ended, ..fixtures::attempt() };
            of(&batch(BatchStatus { attempts: vec![attempt], ..begun(BatchPhase::Launched) })).launch
        };
        assert_eq!(with(AttemptOutcome::Won).unwrap().won, ended);
        for outcome in [AttemptOutcome::Lost, AttemptOutcome::Retry, AttemptOutcome::Violated] {
            assert_eq!(with(outcome), None, "{outcome:?}");
        }
    }

    #[test]
    fn a_node_under_notice_does_not_count_beside_its_replacement() {
        let member = |id: &str| BatchMember::new(id.into(), 1, MemberState::Ready);
        let status = BatchStatus {
            instances: ["i-1", "i-2", "i-3"].map(member).into(),
            replaced: vec![member("i-4")],
            ..begun(BatchPhase::Replacing)
        };
        assert_eq!(taken(&of(&batch(status)), "one"), Some((4, 384_000, 120)));
    }

    #[test]
    fn where_nothing_is_replaced_a_lost_node_counts_until_it_has_ended() {
        let member = |state| BatchMember::new("i-1".into(), 1, state);
        let of_pods = |status| {
            let batch = batch(status);
            let spec = BatchSpec { partial: true, ..BatchSpec::clone(&batch.spec) };
            of(&Batch { spec: Arc::new(spec), ..batch })
        };
        let ending = vec![member(MemberState::Lost), member(MemberState::Terminating), member(MemberState::Gone)];
        let status = BatchStatus { replaced: ending.clone(), ..begun(BatchPhase::InUse) };
        assert_eq!(taken(&of_pods(status), "one"), Some((6, 576_000, 180)));
        let status = BatchStatus { replaced: ending, ..begun(BatchPhase::Draining) };
        assert_eq!(taken(&of_pods(status), "one"), Some((2, 192_000, 60)));
    }

    #[test]
    fn a_batch_that_was_given_up_before_its_launch_takes_nothing() {
        for phase in [BatchPhase::Draining, BatchPhase::Terminating] {
            assert_eq!(taken(&of(&batch(begun(phase))), "one"), Some((0, 0, 0)));
        }
    }

    #[test]
    fn a_batch_that_pauses_or_waits_for_a_person_rests() {
        let pauses = |at: &str| BatchStatus { next_attempt_after: Some(time(at)), ..BatchStatus::default() };
        let hold = Hold { reason: HoldReason::RequiredLevelNotMet, seen: String::new() };
        let held = BatchStatus { held: Some(hold), ..BatchStatus::default() };
        for status in [pauses("2026-11-01T01:00:01Z"), held] {
            assert_eq!(of(&batch(status)).standing, Standing::Resting);
        }
        assert_eq!(of(&batch(pauses("2026-11-01T01:00:00Z"))).standing, Standing::Waiting);
        let deleted = Batch { deleting: true, ..batch(BatchStatus::default()) };
        assert_eq!(of(&deleted).standing, Standing::Resting);
    }

    #[test]
    fn a_pool_that_cannot_be_used_is_not_held_for_a_batch_that_waits() {
        let now = time("2026-11-01T01:00:00Z");
        let claim = claim(&batch(BatchStatus::default()), per_node, |pool| pool == "two", now);
        assert_eq!(claim.amounts.keys().collect::<Vec<_>>(), ["two"]);
    }
}
