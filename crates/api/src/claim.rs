//! NodeBatches as the ledger counts them: what each takes, or may take, of limits, cost ceilings, reservations and subnets.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::batch::micros;
use muster_core::offering::{Addresses, Amounts, Claim, Hosts, Launch, NODES, Standing};

use crate::crd::{BatchOffer, NodeBatch, NodeBatchStatus};

/// What one node of an offer takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerNode {
    /// Of limits and cost ceilings, at today's price.
    pub amounts: Amounts,
    /// Addresses of its subnet.
    pub addresses: u32,
}

/// What a batch takes. `per_node` tells what one node of a pool and type takes; of a type that nobody knows a node counts
/// for itself alone. Only pools that are `usable` can be provisioned from next: what a batch may take of others holds nobody up.
#[must_use]
pub fn claim(
    batch: &NodeBatch,
    per_node: impl Fn(&str, &str) -> Option<PerNode>,
    usable: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Claim {
    let default = NodeBatchStatus::default();
    let status = batch.status.as_ref().unwrap_or(&default);
    let standing = standing(batch, status, now);
    let per_node = |pool: &str, instance_type: &str| per_node(pool, instance_type).unwrap_or_else(unknown);
    let (amounts, launch) = match (standing, &status.node_pool) {
        (Standing::Begun, Some(pool)) => {
            let each = per_node(pool, status.instance_type.as_deref().unwrap_or_default());
            let mut amounts = times(&each.amounts, nodes(status));
            // What the launch was decided at stays, whatever the price is by now.
            if let Some(recorded) = status.price_per_hour.as_deref().and_then(micros) {
                amounts.micro_usd_per_hour = if nodes(status) == 0 { 0 } else { recorded };
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
            (most, None)
        }
    };
    Claim {
        batch: batch.metadata.name.clone().unwrap_or_default(),
        created: batch.metadata.creation_timestamp.as_ref().map(|time| time.0),
        standing,
        amounts,
        launch,
    }
}

fn standing(batch: &NodeBatch, status: &NodeBatchStatus, now: Timestamp) -> Standing {
    match status.phase.as_str() {
        "" | "Pending" => {
            let pauses = status.next_attempt_after.is_some_and(|at| at > now);
            let rests = status.held.is_some() || pauses || batch.metadata.deletion_timestamp.is_some();
            if rests { Standing::Resting } else { Standing::Waiting }
        }
        // Every other phase has an attempt or instances, those of a newer version included.
        _ => Standing::Begun,
    }
}

/// Nodes of a batch that has begun. A node that was lost counts no more beside its replacement.
fn nodes(status: &NodeBatchStatus) -> u32 {
    match status.phase.as_str() {
        // It may have been given up before anything was launched.
        "Draining" | "Terminating" => u32::try_from(status.instances.len()).unwrap_or(u32::MAX).min(status.count),
        _ => status.count,
    }
}

fn launch(status: &NodeBatchStatus, addresses_per_node: u32) -> Option<Launch> {
    let attempt = status.attempts.last()?;
    let won = match attempt.outcome.as_str() {
        "Launching" => None,
        "Won" => Some(attempt.ended?),
        _ => return None,
    };
    let hosts = attempt.reservation.clone().map(|reservation| Hosts { reservation, count: attempt.count });
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
    use super::*;

    fn batch(status: &serde_json::Value) -> NodeBatch {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch",
            "metadata": {"name": "b-1", "uid": "u", "creationTimestamp": "2026-11-01T00:00:00Z"},
            "spec": {"nodePools": ["one", "two"], "count": 4, "offers": [
                {"nodePool": "one", "instanceType": "large", "count": 4},
                {"nodePool": "one", "instanceType": "small", "count": 8},
                {"nodePool": "two", "instanceType": "small", "count": 8},
            ]},
            "status": status,
        }))
        .unwrap()
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

    fn of(status: &serde_json::Value) -> Claim {
        let now = "2026-11-01T01:00:00Z".parse().unwrap();
        claim(&batch(status), per_node, |_| true, now)
    }

    /// Nodes, CPU and price of a pool.
    fn taken(claim: &Claim, pool: &str) -> Option<(i64, i64, u64)> {
        let amounts = claim.amounts.get(pool)?;
        Some((amounts.resources.get(NODES), amounts.resources.get("cpu"), amounts.micro_usd_per_hour))
    }

    #[test]
    fn a_batch_counts_from_its_creation_with_the_most_it_may_take_of_each_pool() {
        for status in [serde_json::json!(null), serde_json::json!({"phase": "Pending"})] {
            let claim = of(&status);
            assert_eq!(claim.standing, Standing::Waiting);
            assert_eq!(taken(&claim, "one"), Some((8, 384_000, 120)));
            assert_eq!(taken(&claim, "two"), Some((8, 256_000, 80)));
        }
    }

    #[test]
    fn once_an_attempt_has_begun_a_batch_counts_with_what_that_takes_at_its_recorded_price() {
        let claim = of(&serde_json::json!({
            "phase": "Launching", "count": 4, "nodePool": "one", "instanceType": "large", "pricePerHour": "0.00009",
            "attempts": [{"number": 1, "nodePool": "one", "instanceType": "large", "zone": "a", "subnet": "s-1",
                "capacityType": "reserved", "count": 4, "reservation": "cr-1", "outcome": "Launching"}],
        }));
        assert_eq!(claim.standing, Standing::Begun);
        assert_eq!((taken(&claim, "one"), taken(&claim, "two")), (Some((4, 384_000, 90)), None));
        let launch = claim.launch.unwrap();
        assert_eq!(launch.hosts, Some(Hosts { reservation: "cr-1".to_owned(), count: 4 }));
        assert_eq!(launch.addresses, Addresses { subnet: "s-1".to_owned(), count: 12 });
    }

    #[test]
    fn a_node_under_notice_does_not_count_beside_its_replacement() {
        let instance = |id: &str| serde_json::json!({"id": id, "attempt": 1, "state": "Ready"});
        let claim = of(&serde_json::json!({
            "phase": "Replacing", "count": 4, "nodePool": "one", "instanceType": "large", "pricePerHour": "0.00012",
            "instances": [instance("i-1"), instance("i-2"), instance("i-3")], "replaced": [instance("i-4")],
        }));
        assert_eq!(taken(&claim, "one"), Some((4, 384_000, 120)));
    }

    #[test]
    fn a_batch_that_was_given_up_before_its_launch_takes_nothing() {
        let status = serde_json::json!({
            "phase": "Draining", "count": 4, "nodePool": "one", "instanceType": "large", "pricePerHour": "0.00012",
        });
        assert_eq!(taken(&of(&status), "one"), Some((0, 0, 0)));
    }

    #[test]
    fn a_batch_that_pauses_or_waits_for_a_person_rests() {
        for status in [
            serde_json::json!({"phase": "Pending", "nextAttemptAfter": "2026-11-01T01:00:01Z"}),
            serde_json::json!({"phase": "Pending", "held": {"reason": "RequiredLevelNotMet", "seen": ""}}),
        ] {
            assert_eq!(of(&status).standing, Standing::Resting);
        }
        let over = serde_json::json!({"phase": "Pending", "nextAttemptAfter": "2026-11-01T01:00:00Z"});
        assert_eq!(of(&over).standing, Standing::Waiting);
    }

    #[test]
    fn what_a_newer_version_wrote_still_counts() {
        let claim = of(&serde_json::json!({
            "version": 9, "phase": "Novel", "count": 2, "nodePool": "two", "instanceType": "unheard-of",
        }));
        assert_eq!((claim.standing, taken(&claim, "two")), (Standing::Begun, Some((2, 0, 0))));
    }

    #[test]
    fn a_pool_that_cannot_be_used_is_not_held_for_a_batch_that_waits() {
        let now = "2026-11-01T01:00:00Z".parse().unwrap();
        let claim = claim(&batch(&serde_json::json!(null)), per_node, |pool| pool == "two", now);
        assert_eq!(claim.amounts.keys().collect::<Vec<_>>(), ["two"]);
    }
}
