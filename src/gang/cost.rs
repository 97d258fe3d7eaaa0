//! What the nodes provisioned for a gang cost, read off its NodeBatches.

use std::collections::BTreeMap;

use kube::ResourceExt;
use muster_api::crd::{GangBatchCost, GangCost};
use muster_core::batch::dollars;
use muster_core::model::gang::Phase;

use crate::cluster::SeenBatch;

/// The sums now. A batch that is gone keeps the last figures it had; `None` if nothing was ever provisioned. A gang that
/// finished costs nothing per hour any more: what its nodes cost until they end is the batch's, and counts as stranded.
pub(super) fn of<'a>(
    before: Option<&GangCost>,
    gang: &str,
    phase: Option<Phase>,
    batches: impl Iterator<Item = &'a SeenBatch>,
) -> Option<GangCost> {
    let mut known: BTreeMap<String, GangBatchCost> = before.map(|before| before.batches.clone()).unwrap_or_default();
    let mut per_hour: u64 = 0;
    for seen in batches.filter(|seen| seen.object().spec.gang_ref.as_ref().is_some_and(|owner| owner.uid == gang)) {
        let Some(status) = seen.object().status.as_ref() else { continue };
        if phase != Some(Phase::Finished) {
            per_hour = per_hour.saturating_add(seen.batch().status.price_now());
        }
        let Some(billing) = &status.billing else { continue };
        let cost = GangBatchCost {
            spent_micro_usd: billing.spent_micro_usd,
            stranded_micro_usd: billing.stranded_micro_usd.values().fold(0, |sum, more| sum.saturating_add(*more)),
        };
        known.insert(seen.object().name_any(), cost);
    }
    if known.is_empty() && per_hour == 0 {
        return None;
    }
    let sum =
        |of: fn(&GangBatchCost) -> u64| dollars(known.values().fold(0, |sum: u64, one| sum.saturating_add(of(one))));
    Some(GangCost {
        per_hour: dollars(per_hour),
        spent: sum(|one| one.spent_micro_usd),
        stranded: sum(|one| one.stranded_micro_usd),
        batches: known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(name: &str, gang: &str, instances: usize, spent: u64, stranded: u64) -> SeenBatch {
        let instances: Vec<_> = (0..instances)
            .map(|number| serde_json::json!({"id": format!("i-{number}"), "attempt": 1, "state": "Ready"}))
            .collect();
        let batch = serde_json::json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch", "metadata": {"name": name},
            "spec": {"nodePools": [], "count": 2, "offers": [],
                     "gangRef": {"namespace": "ml", "name": "train", "uid": gang}},
            "status": {"phase": "InUse", "count": 2, "pricePerHour": "110.08", "instances": instances,
                       "billing": {"spentMicroUsd": spent, "strandedMicroUsd": {"join": stranded}}},
        });
        SeenBatch::new(std::sync::Arc::new(serde_json::from_value(batch).unwrap()))
    }

    #[test]
    fn sums_are_over_the_batches_of_the_gang_and_of_no_other() {
        let batches = [batch("a-1", "a", 2, 3_000_000, 500_000), batch("b-1", "b", 2, 9_000_000, 0)];
        let cost = of(None, "a", None, batches.iter()).unwrap();
        assert_eq!((cost.per_hour.as_str(), cost.spent.as_str(), cost.stranded.as_str()), ("110.08", "3.00", "0.50"));
        assert_eq!(of(None, "c", None, batches.iter()), None, "nothing was provisioned");
    }

    #[test]
    fn a_gang_that_finished_costs_nothing_per_hour_and_keeps_what_was_spent() {
        let batches = [batch("a-1", "a", 2, 3_000_000, 500_000)];
        let cost = of(None, "a", Some(Phase::Finished), batches.iter()).unwrap();
        assert_eq!((cost.per_hour.as_str(), cost.spent.as_str(), cost.stranded.as_str()), ("0.00", "3.00", "0.50"));
    }

    #[test]
    fn a_batch_that_is_gone_keeps_its_figures_and_costs_nothing_more() {
        let before = of(None, "a", None, [batch("a-1", "a", 2, 3_000_000, 0)].iter()).unwrap();
        let after = of(Some(&before), "a", None, [batch("a-2", "a", 1, 1_000_000, 0)].iter()).unwrap();
        assert_eq!((after.per_hour.as_str(), after.spent.as_str()), ("55.04", "4.00"));
        assert_eq!(after.batches.len(), 2);
    }
}
