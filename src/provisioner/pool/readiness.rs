//! Whether a NodePool can be used now, and what stands against it.

use muster_api::crd::{EC2NodeClass, NodePool, condition, is_true};
use muster_api::{node_class, pool as rules, pool_check, supply};
use muster_core::ec2::CapacityType;
use muster_core::model::money::usd;

use super::reading::{allowed, blocked, class_of, instance_types, launched, probes, zones};
use crate::cluster::State;
use crate::provisioner::catalogue::Catalogue;
use crate::provisioner::{Context, class};

/// Whether nothing but a block stands against the pool: most nodes of a batch did not join.
pub(in crate::provisioner) fn only_blocked(context: &Context, state: &State, pool: &NodePool) -> bool {
    blocked(state, pool).is_some() && problem_but_block(context, state, pool).is_none()
}

/// Why the pool cannot be used: reason and message.
pub(in crate::provisioner) fn problem(
    context: &Context,
    state: &State,
    pool: &NodePool,
) -> Option<(&'static str, String)> {
    problem_but_block(context, state, pool).or_else(|| {
        let blocked = blocked(state, pool)?;
        let join = &pool.spec.join;
        let tried = probes(blocked);
        let message = format!(
            "most nodes of NodeBatch {} {}; one test node is launched from time to time, and no batch is provisioned before it joins \
             or this pool or its EC2NodeClass changes; launched so far: {} of {} nodes, for at most {} of ${}",
            blocked.batch,
            blocked.cause,
            tried.count,
            join.max_probes,
            usd(tried.micro_usd),
            join.max_probe_usd.0
        );
        Some(("JoinBlocked", message))
    })
}

fn problem_but_block(context: &Context, state: &State, pool: &NodePool) -> Option<(&'static str, String)> {
    let reference = &pool.spec.template.spec.node_class_ref;
    if let Some(first) = pool_check::problems(pool).into_iter().next() {
        return Some(first);
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
        let why = condition(conditions, "Ready").map_or("not looked at yet", |c| c.message.as_str());
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
    if let Some(why) = no_device(context, state, pool, class, &catalogue) {
        return Some(("DevicesBlocked", why));
    }
    if let Some(why) = rules::unknown_limit_of(pool, allowed(context, pool, &catalogue), []) {
        return Some(("LimitInvalid", why));
    }
    let efa = instance_types(context, state, pool, class, &catalogue).any(|info| node_class::has_efa(class, info));
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
pub(in crate::provisioner) fn unready(context: &Context, state: &State, names: &[String]) -> Option<String> {
    let mut stated = Vec::new();
    for name in names {
        let Some(pool) = state.pools.get(name) else { continue };
        let (reason, why) = problem(context, state, pool)?;
        stated.push(format!("NodePool {name}: {reason}: {why}"));
    }
    (!stated.is_empty()).then(|| stated.join("; "))
}

/// Why the pool has no type to launch.
fn no_type(context: &Context, pool: &NodePool, class: &EC2NodeClass, catalogue: &Catalogue) -> Option<String> {
    if launched(context, pool, class, catalogue).next().is_some() {
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

/// Why no type of the pool would ever have its devices.
fn no_device(
    context: &Context,
    state: &State,
    pool: &NodePool,
    class: &EC2NodeClass,
    catalogue: &Catalogue,
) -> Option<String> {
    if instance_types(context, state, pool, class, catalogue).next().is_some() {
        return None;
    }
    let blocked = supply::blocked_devices(pool, class, &state.plugins);
    let mut types = launched(context, pool, class, catalogue);
    let why = types.find_map(|info| supply::blocks(&blocked, class, info))?;
    Some(format!("spec.template.spec.taints: nothing is launched whose devices would never come up: {why}"))
}
