//! NodePools: what they allow, what is left of them, and what the gang loop and the ranking see of them.

pub(super) mod allowed;
pub(super) mod ledger;
pub(super) mod offers;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{EC2NodeClass, JoinBlocked, NodePool, NodePoolStatus, is_true, set_condition};
use muster_api::supply::{self, Supplied};
use muster_api::{keys, new_node, node_class, pool as rules};
use muster_core::batch::{Probe, Probes, dollars, micros, replacements};
use muster_core::ec2::{CapacityType, Subnet};
use muster_core::gang::PoolView;
use muster_core::model::batch::BatchStatus;
use muster_core::model::names::ResourceName;
use muster_core::offering::{InstanceTypeInfo, Ledger, PoolOffer, UsageClass};
use serde_json::json;

use super::batch::ranking;
use super::catalogue::Catalogue;
use super::{Context, class};
use crate::clock::now_real;
use crate::cluster::State;
use crate::step::{Step, step};
use allowed::Seen;

/// Describes all pools: for the gang loop, and in their status.
pub(super) async fn reconcile(context: &Context, state: &State) -> anyhow::Result<()> {
    let mut views = Vec::new();
    context.allowed.keep(|name| state.pools.contains_key(name));
    let batches = state.batches.values().map(|seen| &**seen.batch());
    let left = Ledger::beside_all(&ledger::inputs(context, state, batches));
    for pool in state.pools.values() {
        let problem = problem(context, state, pool);
        // A blocked pool is not Ready, and yet gangs ask it: who waits for it is who tries whether its nodes join again.
        if problem.is_none() || only_blocked(context, state, pool) {
            views.extend(view(context, state, pool, &left));
        }
        write_status(context, state, pool, problem).await?;
    }
    if **context.pools.load() != views {
        context.pools.store(Arc::new(views));
        context.requeue.notify_one();
    }
    Ok(())
}

/// The class of a pool, if it exists and is ours.
pub(super) fn class_of<'a>(state: &'a State, pool: &NodePool) -> Option<&'a EC2NodeClass> {
    let reference = &pool.spec.template.spec.node_class_ref;
    (reference.group == keys::GROUP && reference.kind == "EC2NodeClass")
        .then(|| state.classes.get(&reference.name))
        .flatten()
        .map(AsRef::as_ref)
}

/// Whether nothing but a block stands against the pool: most nodes of a batch did not join.
pub(super) fn only_blocked(context: &Context, state: &State, pool: &NodePool) -> bool {
    blocked(state, pool).is_some() && problem_but_block(context, state, pool).is_none()
}

/// Why the pool cannot be used: reason and message.
pub(super) fn problem(context: &Context, state: &State, pool: &NodePool) -> Option<(&'static str, String)> {
    problem_but_block(context, state, pool).or_else(|| {
        let blocked = blocked(state, pool)?;
        let join = &pool.spec.join;
        let tried = probes(blocked);
        let message = format!(
            "most nodes of NodeBatch {} {}; one node is tried alone now and then, and no batch is provisioned before it joins \
             or this pool or its EC2NodeClass changes; tried so far: {} of {} nodes, for at most ${} of ${}",
            blocked.batch,
            blocked.cause,
            tried.count,
            join.max_probes,
            dollars(tried.micro_usd),
            join.max_probe_usd.0
        );
        Some(("JoinBlocked", message))
    })
}

/// Nodes that were tried alone under a block.
pub(super) fn probes(blocked: &JoinBlocked) -> Probes {
    let Some(probes) = &blocked.probes else { return Probes::default() };
    // What cannot be read costs so much that nothing more is tried.
    let read = |text: &str| micros(text).unwrap_or(u64::MAX);
    Probes {
        count: probes.count,
        micro_usd: read(&probes.usd),
        last: Some(Probe {
            batch: probes.batch.clone(),
            attempt: probes.attempt,
            micro_usd: micros(&probes.last_usd).unwrap_or(0),
        }),
    }
}

fn problem_but_block(context: &Context, state: &State, pool: &NodePool) -> Option<(&'static str, String)> {
    let reference = &pool.spec.template.spec.node_class_ref;
    if let Err((reason, message)) = validate(pool) {
        return Some((reason, message));
    }
    if context.options.ceiling.is_none() {
        return Some(("MaxUsdPerHourNotSet", NO_CEILING.to_owned()));
    }
    let Some(class) = class_of(state, pool) else {
        return Some((
            "NodeClassNotFound",
            format!(
                "spec.template.spec.nodeClassRef: no {} named {} in group {}",
                reference.kind, reference.name, reference.group
            ),
        ));
    };
    // Known before the class's own status shows it.
    if let Some(denied) = context.cloud.blocked(&reference.name) {
        return Some(("NotAuthorized", denied));
    }
    let conditions = class.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if !is_true(conditions, "Ready") {
        let why = conditions.iter().find(|c| c.type_ == "Ready").map_or("not looked at yet", |c| c.message.as_str());
        return Some(("NodeClassNotReady", format!("EC2NodeClass {}: {why}", reference.name)));
    }
    // Known before the class's own status shows it.
    if let Some(fault) = class::fault(context, class) {
        return Some(("NodeClassNotReady", format!("EC2NodeClass {}: {}", reference.name, fault.message)));
    }
    if rules::capacity_types(pool) == [CapacityType::Reserved]
        && class.spec.capacity_reservation_selector_terms.is_empty()
    {
        return Some((
            "RequirementInvalid",
            format!(
                "spec.template.spec.requirements: only reserved capacity is allowed, and EC2NodeClass {} chooses none; \
                 set its capacityReservationSelectorTerms, or allow on-demand",
                reference.name
            ),
        ));
    }
    let catalogue = context.catalogue.load();
    if catalogue.types.is_empty() {
        return Some(("CatalogueNotRead", "the instance types of this Region cannot be read yet".to_owned()));
    }
    if let Some(why) = no_type(context, pool, class, &catalogue) {
        return Some(("RequirementInvalid", why));
    }
    if let Some(why) = rules::unknown_limit_of(pool, allowed(context, pool, &catalogue)) {
        return Some(("LimitInvalid", why));
    }
    let efa = instance_types(context, pool, class, &catalogue).any(|info| node_class::has_efa(class, info));
    if efa && !class.status.as_ref().is_some_and(|status| status.self_reference) {
        return Some((
            "NodeClassNotReady",
            format!(
                "EC2NodeClass {}: spec.securityGroupSelectorTerms: no chosen group allows all traffic from and to \
                 itself, which EFA needs",
                reference.name
            ),
        ));
    }
    if zones(state, pool).is_empty() {
        return Some((
            "RequirementInvalid",
            "spec.template.spec.requirements: no zone is allowed that has a subnet of the EC2NodeClass".to_owned(),
        ));
    }
    None
}

/// Why nothing is provisioned without a ceiling on dollars per hour.
const NO_CEILING: &str = "provisioner.maxUsdPerHour of the configuration is not set, and nothing is provisioned without it: set the \
     dollars per hour that everything together may cost, or unlimited";

/// Why none of these pools can be used now; `None` if one can.
pub(super) fn unready(context: &Context, state: &State, names: &[String]) -> Option<String> {
    let mut stated = Vec::new();
    for name in names {
        let Some(pool) = state.pools.get(name) else { continue };
        let (reason, why) = problem(context, state, pool)?;
        stated.push(format!("NodePool {name}: {reason}: {why}"));
    }
    (!stated.is_empty()).then(|| stated.join("; "))
}

/// The block of a pool whose nodes do not join, as long as neither it nor its class has changed since.
pub(super) fn blocked<'a>(state: &State, pool: &'a NodePool) -> Option<&'a JoinBlocked> {
    let blocked = pool.status.as_ref()?.join_blocked.as_ref()?;
    let class = class_of(state, pool).and_then(|class| class.metadata.generation).unwrap_or_default();
    let same =
        blocked.pool_generation == pool.metadata.generation.unwrap_or_default() && blocked.class_generation == class;
    same.then_some(blocked)
}

fn validate(pool: &NodePool) -> Result<(), (&'static str, String)> {
    for key in pool.spec.template.metadata.labels.keys() {
        if key.starts_with(keys::PREFIX) || key == keys::HOSTNAME {
            return Err(("LabelRestricted", format!("spec.template.metadata.labels: {key} is set by Muster alone")));
        }
    }
    rules::limits(pool).map_err(|message| ("LimitInvalid", message))?;
    rules::max_usd_per_hour(pool).map_err(|message| ("LimitInvalid", message))?;
    rules::max_probe_usd(pool).map_err(|message| ("LimitInvalid", message))?;
    rules::taints(pool).map_err(|message| ("TaintInvalid", message))?;
    if replacements(&pool.spec.join.max_replacements.0, 1).is_none() {
        let text = &pool.spec.join.max_replacements.0;
        return Err((
            "DurationInvalid",
            format!("spec.join.maxReplacements: \"{text}\" is neither a number nor a share such as 10%"),
        ));
    }
    for (field, text) in [
        ("join.registerWithin", &pool.spec.join.register_within),
        ("join.readyWithin", &pool.spec.join.ready_within),
        ("join.replaceAfter", &pool.spec.join.replace_after),
        ("disruption.consolidateAfter", &pool.spec.disruption.consolidate_after),
        ("disruption.foreignPodsAfter", &pool.spec.disruption.foreign_pods_after),
    ] {
        if text != "Never" && duration(text).is_none() {
            return Err((
                "DurationInvalid",
                format!("spec.{field}: \"{text}\" is not a duration such as 90s, 15m or 1h"),
            ));
        }
    }
    Ok(())
}

/// Reads a Go duration such as `1h30m`, `45s`, `500ms`.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    text.parse().ok().filter(|duration: &SignedDuration| !duration.is_negative())
}

/// Types the pool allows. Looked for in the whole catalogue only if the pool's spec or the catalogue has changed.
pub(super) fn allowed<'a>(
    context: &Context,
    pool: &NodePool,
    catalogue: &'a Catalogue,
) -> impl Iterator<Item = &'a InstanceTypeInfo> + use<'a> {
    let seen = Seen {
        uid: pool.uid().unwrap_or_default(),
        generation: pool.metadata.generation.unwrap_or_default(),
        catalogue: catalogue.number,
    };
    let scan = || {
        let allowed = catalogue.types.values().filter(|info| rules::allows_type(pool, info));
        allowed.map(|info| info.name.clone()).collect()
    };
    let names = context.allowed.get(&pool.name_any(), &seen, scan);
    (0..names.len()).filter_map(move |number| catalogue.types.get(names.get(number)?))
}

/// Types the pool allows that the class can launch: with an image, and with interfaces that fit.
pub(super) fn instance_types<'a>(
    context: &Context,
    pool: &NodePool,
    class: &'a EC2NodeClass,
    catalogue: &'a Catalogue,
) -> impl Iterator<Item = &'a InstanceTypeInfo> + use<'a> {
    allowed(context, pool, catalogue).filter(move |info| supply::launches(class, info))
}

/// Why the pool has no type to launch.
fn no_type(context: &Context, pool: &NodePool, class: &EC2NodeClass, catalogue: &Catalogue) -> Option<String> {
    if instance_types(context, pool, class, catalogue).next().is_some() {
        return None;
    }
    let Some(allowed) = allowed(context, pool, catalogue).next() else {
        return Some(
            "spec.template.spec.requirements: no instance type of this Region meets all of them; widen \
             muster.dev/instance-family, node.kubernetes.io/instance-type or the others"
                .to_owned(),
        );
    };
    Some(supply::why_not_launched(class, allowed))
}

/// Types that some pool may provision on spot, in order of name.
pub(super) fn spot_types(context: &Context, state: &State) -> Vec<String> {
    let catalogue = context.catalogue.load();
    let pools = state.pools.values().filter(|pool| rules::capacity_types(pool).contains(&CapacityType::Spot));
    let types: BTreeSet<String> = pools
        .flat_map(|pool| allowed(context, pool, &catalogue))
        .filter(|info| info.usage_classes.contains(&UsageClass::Spot))
        .map(|info| info.name.clone())
        .collect();
    types.into_iter().collect()
}

/// Zones that the pool allows and in which its class has subnets.
pub(super) fn zones(state: &State, pool: &NodePool) -> BTreeSet<String> {
    supply::zones(pool, class_of(state, pool))
}

/// Extended resources every node of a batch must offer before a member can use it: those its launch template was made for.
pub(super) fn devices(context: &Context, state: &State, status: &BatchStatus) -> Vec<(ResourceName, i64)> {
    let catalogue = context.catalogue.load();
    let Some(info) = status.instance_type.as_ref().and_then(|name| catalogue.types.get(name)) else {
        return Vec::new();
    };
    let pool = status.node_pool.as_ref().and_then(|name| state.pools.get(name));
    new_node::of_class(pool.and_then(|pool| class_of(state, pool)), info).devices()
}

/// The pool as the gang loop sees it.
fn view(context: &Context, state: &State, pool: &NodePool, ledger: &Ledger) -> Option<PoolView> {
    let catalogue = context.catalogue.load();
    let class = class_of(state, pool)?;
    let supplied = Supplied { pool, class: Some(class), zones: &zones(state, pool) };
    let types = instance_types(context, pool, class, &catalogue);
    Some(supplied.view(types, &catalogue.prices, &state.daemons, ledger, blocked(state, pool).is_some()))
}

/// The pool as the ranking sees it, with what is left for the batch that asks.
pub(super) fn offer(context: &Context, state: &State, pool: &NodePool, ledger: &Ledger) -> Option<PoolOffer> {
    if problem(context, state, pool).is_some() { None } else { describe(context, state, pool, ledger) }
}

/// As [`offer`], for a pool that is blocked.
pub(super) fn blocked_offer(context: &Context, state: &State, pool: &NodePool, ledger: &Ledger) -> Option<PoolOffer> {
    if only_blocked(context, state, pool) { describe(context, state, pool, ledger) } else { None }
}

fn describe(context: &Context, state: &State, pool: &NodePool, ledger: &Ledger) -> Option<PoolOffer> {
    let class = class_of(state, pool)?;
    let catalogue = context.catalogue.load();
    let read = class::subnets_read(context, class);
    let free = |subnet: Subnet| Subnet { free_addresses: ledger.addresses(&subnet, read), ..subnet };
    let subnets = supply::subnets(class).into_iter().map(free).collect();
    let supplied = Supplied { pool, class: Some(class), zones: &zones(state, pool) };
    let types = instance_types(context, pool, class, &catalogue);
    Some(supplied.offer(types, subnets, ranking::reservations(context, class, ledger), ledger))
}

async fn write_status(
    context: &Context,
    state: &State,
    pool: &NodePool,
    problem: Option<(&'static str, String)>,
) -> anyhow::Result<()> {
    let name = pool.name_any();
    let before = pool.status.clone().unwrap_or_default();
    let mut status = NodePoolStatus {
        conditions: before.conditions.clone(),
        join_blocked: before.join_blocked.clone(),
        ..NodePoolStatus::default()
    };
    let over = before.join_blocked.is_some() && blocked(state, pool).is_none();
    let mut price: u64 = 0;
    for batch in state.batches.values().filter_map(|seen| seen.object().status.as_ref()) {
        if batch.node_pool.as_deref() == Some(name.as_str()) && !batch.instances.is_empty() {
            status.batches += 1;
            status.nodes = status.nodes.saturating_add(u32::try_from(batch.instances.len()).unwrap_or(u32::MAX));
            price = price.saturating_add(batch.price_per_hour.as_deref().and_then(micros).unwrap_or(0));
        }
    }
    status.price_per_hour = Some(dollars(price));
    let (ready, reason, message) = match &problem {
        None => (true, "Ready", ""),
        Some((reason, message)) => (false, *reason, message.as_str()),
    };
    set_condition(&mut status.conditions, "Ready", ready, reason, message, now_real());
    if let Some(held) = context.held() {
        set_condition(&mut status.conditions, "OrphanSweepHeld", true, "OrphanSweepHeld", &held.message, now_real());
    } else if is_true(&status.conditions, "OrphanSweepHeld") {
        set_condition(&mut status.conditions, "OrphanSweepHeld", false, "Swept", "", now_real());
    }
    if status == before && !over {
        return Ok(());
    }
    let pools: Api<NodePool> = Api::all(context.client.clone());
    let mut patch = json!({"status": status});
    // A block is written by the batch that found it out, perhaps since this pool was read: only its end is written here.
    if let Some(status) = patch["status"].as_object_mut() {
        status.remove("joinBlocked");
        if over {
            status.insert("joinBlocked".to_owned(), serde_json::Value::Null);
        }
    }
    step(Step::WriteStatus, pools.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read_and_nonsense_is_not() {
        assert_eq!(duration("1h30m"), Some(SignedDuration::from_mins(90)));
        assert_eq!(duration("500ms"), Some(SignedDuration::from_millis(500)));
        assert_eq!(duration("soon"), None);
        assert_eq!(duration("-5s"), None);
    }
}
