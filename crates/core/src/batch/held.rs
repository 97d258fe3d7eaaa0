//! What the collection holds for a person: what it costs meanwhile, and how it is put to them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::collect::{Account, Findings};
use crate::ec2::seen::Instance;
use crate::model::launch::CapacityType;
use crate::model::money::usd;
use crate::model::names::InstanceId;
use crate::offering::PriceBook;

/// What is held costs meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldCost {
    /// Micro-dollars per hour, as far as prices are known.
    pub micro_usd_per_hour: u64,
    /// Age of the oldest instance.
    pub oldest: SignedDuration,
}

/// What held instances cost, at the price on demand.
#[must_use]
pub fn held_cost(held: &BTreeSet<InstanceId>, account: &Account, prices: &PriceBook, now: Timestamp) -> HeldCost {
    let mut cost = HeldCost::default();
    for instance in account.instances.iter().filter(|instance| held.contains(&instance.id)) {
        let price = prices.price(&instance.instance_type, &instance.zone, CapacityType::OnDemand).unwrap_or(0);
        cost.micro_usd_per_hour = cost.micro_usd_per_hour.saturating_add(price);
        let age = instance.launch_time.map_or(SignedDuration::ZERO, |launched| now.duration_since(launched));
        cost.oldest = cost.oldest.max(age);
    }
    cost
}

/// Instances that a sentence names; what people decide on must be seen, and a condition has an end.
const NAMED: usize = 20;

impl Findings {
    /// What is held, and what releases it. `cluster_uid` is what `muster gc --account` asks for.
    #[must_use]
    pub fn sentence(&self, account: &Account, cost: HeldCost, cluster_uid: &str) -> String {
        let (orphans, unseen) = (self.held_orphans(), self.held_unseen());
        let seen: BTreeMap<&InstanceId, &Instance> = account.instances.iter().map(|one| (&one.id, one)).collect();
        let mut why = Vec::new();
        if !orphans.is_empty() {
            let shown = |id: &InstanceId| match seen.get(id) {
                Some(one) => format!("{id} {} {}", one.instance_type, one.zone),
                None => id.to_string(),
            };
            why.push(format!(
                "{} of {} instances of this cluster, {}/h, belong to no NodeBatch, more than the {} that are collected at once \
                 ({})",
                orphans.len(),
                self.live,
                usd(cost.micro_usd_per_hour),
                self.allowed(),
                list(&orphans, shown),
            ));
        }
        if !unseen.is_empty() {
            let of: BTreeMap<&InstanceId, &str> =
                self.lost.iter().flat_map(|(batch, ids)| ids.iter().map(move |id| (id, batch.as_str()))).collect();
            let shown = |id: &InstanceId| of.get(id).map_or_else(|| id.to_string(), |batch| format!("{id} of {batch}"));
            why.push(format!(
                "{} of {} instances that NodeBatches list or Nodes stand for are not in what EC2 shows, not even as terminated, \
                 more than the {} that are written off at once; are credentials and Region those of this cluster? ({})",
                unseen.len(),
                self.listed,
                self.may_be_unseen(),
                list(&unseen, shown),
            ));
        }
        format!(
            "{}: `muster gc --account --cluster-uid {cluster_uid}` lists what AWS has, `muster gc --confirm` ends and writes off \
             exactly these (set {})",
            why.join("; "),
            self.digest()
        )
    }
}

fn list(ids: &BTreeSet<InstanceId>, shown: impl Fn(&InstanceId) -> String) -> String {
    let mut all: Vec<String> = ids.iter().take(NAMED).map(shown).collect();
    if ids.len() > NAMED {
        all.push(format!("and {} more", ids.len() - NAMED));
    }
    all.join(", ")
}
