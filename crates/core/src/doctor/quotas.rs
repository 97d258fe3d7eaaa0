//! What the account may run of each pool's types: a new account may run no GPU at all.
//!
//! A quota says how many virtual CPUs may be in use at once, not how many are: what runs already is not taken off.

use std::collections::BTreeMap;

use super::facts::{Account, Counted, Facts, Pool};
use super::{Check, Finding};
use crate::ec2::vcpu_quota;
use crate::model::launch::CapacityType;
use crate::offering::InstanceTypeInfo;

const CHECK: Check = Check::Quotas;
/// Nodes of the smallest type that a larger quota is asked for.
const NODES_ASKED_FOR: u32 = 8;

/// The quotas that launches of these types count towards, with the smallest type of each, in order of capacity type and code.
#[must_use]
pub fn counted(types: &[&InstanceTypeInfo], capacity_types: &[CapacityType]) -> Vec<Counted> {
    let mut quotas: BTreeMap<(CapacityType, &str), Counted> = BTreeMap::new();
    for capacity_type in capacity_types {
        for info in types {
            let Some(quota) = vcpu_quota(&info.name, *capacity_type) else { continue };
            let new = Counted { quota, smallest: info.name.clone(), vcpu: info.vcpu };
            let smallest = quotas.entry((*capacity_type, quota.code)).or_insert_with(|| new.clone());
            if new.vcpu < smallest.vcpu {
                *smallest = new;
            }
        }
    }
    quotas.into_values().collect()
}

pub(super) fn judge(facts: &Facts, checks: &mut Vec<Finding>) {
    let Some(account) = facts.account.as_ref().filter(|account| account.known()) else { return };
    for pool in facts.pools.iter().filter(|pool| !pool.quotas.is_empty()) {
        of_pool(account, pool, checks);
    }
}

fn of_pool(account: &Account, pool: &Pool, checks: &mut Vec<Finding>) {
    let name = &pool.name;
    let (mut enough, mut short, mut unknown) = (Vec::new(), Vec::new(), None);
    for counted in &pool.quotas {
        match account.quotas.get(counted.quota.code) {
            Some(Ok(value)) if *value >= counted.vcpu => enough.push(format!("{value} of {}", counted.quota.name)),
            Some(Ok(value)) => short.push((counted, *value)),
            Some(Err(error)) => unknown = Some(error.to_string()),
            None => unknown = unknown.or_else(|| Some("Service Quotas was not asked".to_owned())),
        }
    }
    // As long as one family can be launched, or may be, the pool provisions with it; so it does in a reservation.
    let nothing = enough.is_empty() && unknown.is_none() && !pool.reserved;
    for (counted, value) in short {
        let Counted { quota, smallest, vcpu } = counted;
        let message = format!(
            "the account may run {value} virtual CPUs of quota {} ({}), and a {smallest} has {vcpu}",
            quota.code, quota.name
        );
        let mend = format!(
            "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {} --desired-value {} \
             # {NODES_ASKED_FOR} × {smallest}",
            quota.code,
            vcpu.saturating_mul(NODES_ASKED_FOR)
        );
        checks.push(if nothing {
            Finding::fail(CHECK, name, message, mend)
        } else {
            Finding::warn(CHECK, name, message, mend)
        });
    }
    if !enough.is_empty() {
        checks.push(Finding::ok(CHECK, name, format!("virtual CPUs at once: {}", enough.join("; "))));
    }
    if let Some(why) = unknown {
        checks.push(Finding::skipped(CHECK, name, format!("what the account may run is not known: {why}")));
    }
}
