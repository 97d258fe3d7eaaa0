//! EC2NodeClasses: what their selectors resolve to, and what is wrong with them.

mod looked;
mod memory;
mod network;
pub(super) mod region;
pub(super) mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{
    AmiSelectorTerm, AmiStatus, EC2NodeClass, EC2NodeClassStatus, MatchCriteria, NodePool, ReservationStatus,
    SubnetStatus, condition, is_true, set_condition,
};
use muster_api::node_class::{self, Problem};
use muster_api::pool as rules;
use muster_api::supply;
use muster_core::ec2::{
    Alias, BatchTags, Blame, CallError, CapacityType, Efa, ErrorClass, ImageKind, LaunchParameters, LaunchWay,
    Offering, Reservation, ReservationState, Variant, is_due, kubernetes_version, outlives, placement_group_name,
};
use muster_core::gang::GangEvent;
use muster_core::offering::InstanceTypeInfo;
use muster_ec2::{ImageQuery, ReservationQuery};
use serde_json::json;
use tracing::warn;

pub(in crate::provisioner) use looked::Seen;
use looked::{Looked, is_news};
use network::{Network, without_ipv6};

use super::catalogue::Catalogue;
use super::{Context, REFRESH, RETRY, pool};
use crate::clock::now_real;
use crate::cloud::{for_class, selectors};
use crate::cluster::State;
use crate::step::{Step, step};

/// A refused launch keeps its class not ready for this long, unless the class changes: what is wrong may lie outside.
const FAULT: jiff::SignedDuration = jiff::SignedDuration::from_mins(15);

/// The conditions of a class, `Authorized` and `Ready` aside.
const CONDITIONS: [&str; 6] = [
    "SubnetsReady",
    "SecurityGroupsReady",
    "AMIsReady",
    "InstanceProfileReady",
    "CapacityReservationsReady",
    "ValidationSucceeded",
];

/// Which object, by UID, and which spec of it, by generation: a class that was deleted and made again under its name is another.
pub(super) type Version = (Option<String>, Option<i64>);

fn version(class: &EC2NodeClass) -> Version {
    (class.metadata.uid.clone(), class.metadata.generation)
}

/// What a launch was refused for.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    version: Version,
    until: Timestamp,
    problem: Problem,
}

/// Remembers that EC2 refused a launch because of the class: nothing more is launched with it until it changes, or a
/// quarter of an hour has passed.
pub(super) fn blame(
    context: &Context,
    class: &EC2NodeClass,
    kind: ErrorClass,
    code: Option<&str>,
    message: &str,
) -> Option<Problem> {
    let problem = problem_of(class, kind, code, message)?;
    let until = context.clock.now().saturating_add(FAULT).unwrap_or(Timestamp::MAX);
    let fault = Fault { version: version(class), until, problem: problem.clone() };
    let mut faults = context.faults.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    faults.insert(class.name_any(), fault);
    Some(problem)
}

/// What a refusal of EC2 says about the class, for a person; `None` if it says nothing about it.
pub(super) fn blamed(class: &EC2NodeClass, kind: ErrorClass, code: Option<&str>, message: &str) -> Option<String> {
    problem_of(class, kind, code, message).map(|problem| problem.message)
}

fn problem_of(class: &EC2NodeClass, kind: ErrorClass, code: Option<&str>, message: &str) -> Option<Problem> {
    Some(refused(class, Blame::of(kind, code, message)?, "EC2 refused a launch", code, message))
}

fn refused(class: &EC2NodeClass, blame: Blame, what: &str, code: Option<&str>, message: &str) -> Problem {
    let stated = code.map_or_else(|| message.to_owned(), |code| format!("{code}: {message}"));
    let field = match blame {
        Blame::InstanceProfile if class.spec.role.is_some() => "spec.role",
        Blame::InstanceProfile => "spec.instanceProfile",
        Blame::Image | Blame::Subnets | Blame::SecurityGroups | Blame::Reservations | Blame::Parameters => {
            blame.field()
        }
    };
    Problem { condition: blame.condition(), reason: blame.reason(), message: format!("{field}: {what}, {stated}") }
}

/// What EC2 refused a launch of this class for, as long as that is trusted.
pub(super) fn fault(context: &Context, class: &EC2NodeClass) -> Option<Problem> {
    let faults = context.faults.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let fault = faults.get(&class.name_any())?;
    (fault.version == version(class) && context.clock.now() < fault.until).then(|| fault.problem.clone())
}

/// The name of the class of a pool.
pub(super) fn name_of(state: &State, pool: Option<&str>) -> Option<String> {
    pool::class_of(state, state.pools.get(pool?)?).map(ResourceExt::name_any)
}

/// When the free addresses of the class's subnets were read. What a former process read was at most a refresh ago.
pub(super) fn subnets_read(context: &Context, class: &EC2NodeClass) -> Timestamp {
    let subnets = context.subnets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let long_ago = || context.clock.now().saturating_sub(REFRESH).unwrap_or(Timestamp::MIN);
    subnets.get(&class.name_any()).copied().unwrap_or_else(long_ago)
}

/// Resolves classes whose spec changed, and all of them now and then. One whose status cannot be written is looked at again after
/// [`RETRY`], and holds up no other.
pub(super) async fn reconcile(context: &Context, state: &State, seen: &mut Seen) -> anyhow::Result<()> {
    let classes: Vec<_> = due(context, state, seen, context.clock.now()).cloned().collect();
    let mut failed = Ok(());
    for class in classes {
        let name = class.name_any();
        let status = resolve(context, state, &class).await;
        let looked = |at| Looked {
            generation: class.metadata.generation,
            at,
            kinds: kinds(context, state, &class),
            network: Network::of(context, state),
            memory: status.memory.clone(),
        };
        if class.status.as_ref() != Some(&status) {
            let classes: Api<EC2NodeClass> = Api::all(context.client.clone());
            let patch = json!({"status": null_absent(&status)});
            let params = PatchParams::default();
            let written = step(Step::WriteStatus, classes.patch_status(&name, &params, &Patch::Merge(&patch))).await;
            if let Err(error) = written {
                warn!(class = %name, %error, "the status of an EC2NodeClass is not written, tried again");
                let again = context.clock.now().saturating_sub(REFRESH).and_then(|at| at.checked_add(RETRY));
                seen.insert(name, looked(again.unwrap_or(Timestamp::MIN)));
                failed = failed.and(Err(error.into()));
                continue;
            }
            if let Some(event) = turned(class.status.as_ref(), &status) {
                context.events.publish(class.as_ref(), &event).await;
            }
        }
        seen.insert(name, looked(context.clock.now()));
    }
    seen.retain(|name, _| state.classes.contains_key(name));
    failed
}

/// In a merge patch what is absent stays: lists that have become empty are named.
fn null_absent(status: &EC2NodeClassStatus) -> serde_json::Value {
    let mut patch = json!(status);
    if let Some(fields) = patch.as_object_mut() {
        for field in [
            "amis",
            "subnets",
            "securityGroups",
            "selfReference",
            "capacityReservations",
            "ipv6",
            "prefixDelegation",
            "memory",
        ] {
            fields.entry(field).or_insert(serde_json::Value::Null);
        }
    }
    patch
}

/// What people are informed of when a class turns, or stays not ready for another reason.
fn turned(before: Option<&EC2NodeClassStatus>, after: &EC2NodeClassStatus) -> Option<GangEvent> {
    let ready = |conditions: &[Condition]| condition(conditions, "Ready").cloned();
    let before = before.and_then(|status| ready(&status.conditions));
    let after = ready(&after.conditions)?;
    let reported = |one: &Condition| (one.status.clone(), one.message.clone());
    if before.as_ref().map(reported) == Some(reported(&after)) || (before.is_none() && after.status == "True") {
        return None;
    }
    if after.status == "True" {
        return Some(GangEvent { reason: "ClassReady", message: "can be used again".to_owned(), warning: false });
    }
    let message = format!("{}: {}", after.reason, after.message);
    Some(GangEvent { reason: "ClassNotReady", message, warning: true })
}

/// Classes whose spec changed, those that were not ready a while ago, those with a new fault or without an image that
/// one of their pools needs, all of them where the network of the cluster is another, and now and then.
pub(super) fn due<'a>(
    context: &'a Context,
    state: &'a State,
    seen: &'a Seen,
    now: Timestamp,
) -> impl Iterator<Item = &'a Arc<EC2NodeClass>> {
    state.classes.values().filter(move |class| {
        let status = class.status.as_ref();
        let ready = status.is_some_and(|status| is_true(&status.conditions, "Ready"));
        let known = seen.get(&class.name_any());
        let wants = || status.is_some_and(|status| is_news(known, status, &kinds(context, state, class)));
        let fresh = fault(context, class).is_some() && ready;
        let lacks_right = context.cloud.lacks(Some(&class.name_any())).unwrap_or_default();
        let reported = status.and_then(|status| condition(&status.conditions, "Authorized"));
        let reported = reported.is_some_and(|one| one.message == lacks_right);
        fresh
            || (ready && wants())
            || known.is_some_and(|known| known.network != Network::of(context, state))
            || known.zip(status).is_some_and(|(known, status)| {
                ready
                    && known.is_old(class.metadata.generation, RETRY, now)
                    && known.memory != memory::known(state, class, &status.amis)
            })
            || (status.is_some() && !reported)
            || (ready && !tried(context, class) && trial(context, state, (class, status)).is_some())
            || known
                .is_none_or(|known| known.is_old(class.metadata.generation, if ready { REFRESH } else { RETRY }, now))
    })
}

/// Pools of the class.
fn pools_of<'a>(state: &'a State, class: &EC2NodeClass) -> impl Iterator<Item = &'a NodePool> + use<'a> {
    let name = class.name_any();
    let of_class =
        move |pool: &&NodePool| pool::class_of(state, pool).is_some_and(|of_pool| of_pool.name_any() == name);
    state.pools.values().map(AsRef::as_ref).filter(of_class)
}

/// Types that pools of the class allow.
fn types_of<'a>(
    context: &'a Context,
    state: &'a State,
    catalogue: &'a Catalogue,
    class: &EC2NodeClass,
) -> impl Iterator<Item = &'a InstanceTypeInfo> + use<'a> {
    pools_of(state, class).flat_map(move |pool| pool::allowed(context, pool, catalogue))
}

/// Architectures and accelerators the pools of the class allow; the plainest one while there are none.
fn kinds(context: &Context, state: &State, class: &EC2NodeClass) -> BTreeSet<ImageKind> {
    let catalogue = context.catalogue.load();
    let mut kinds: BTreeSet<ImageKind> = types_of(context, state, &catalogue, class).map(ImageKind::of).collect();
    if kinds.is_empty() {
        kinds.insert(ImageKind { architecture: "x86_64".to_owned(), variant: Variant::Standard });
    }
    kinds
}

async fn resolve(context: &Context, state: &State, class: &EC2NodeClass) -> EC2NodeClassStatus {
    let before = class.status.clone().unwrap_or_default();
    let Network { ipv6, prefixes } = Network::of(context, state);
    let mut status = EC2NodeClassStatus {
        conditions: before.conditions.clone(),
        observed_generation: class.metadata.generation,
        ipv6,
        prefix_delegation: prefixes,
        ..EC2NodeClassStatus::default()
    };
    // What becomes of the class is a matter of the network as it is now.
    let class = &EC2NodeClass {
        status: Some(EC2NodeClassStatus { ipv6, prefix_delegation: prefixes, ..before.clone() }),
        ..class.clone()
    };
    let way = context.options.way.load_full();
    let mut problems = node_class::problems(class, &way.access);
    if let Some(message) = way.problem_for(class) {
        problems.insert(0, problem("ValidationSucceeded", "ClusterAccess", message));
    }
    let read = context.clock.now();
    match subnets(context, class).await {
        Ok((subnets, vpcs)) => {
            let mut known = context.subnets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            known.insert(class.name_any(), read);
            drop(known);
            if subnets.is_empty() {
                problems.push(problem(
                    "SubnetsReady",
                    "SubnetsNotFound",
                    "spec.subnetSelectorTerms: no subnet matches; check ids and tags, and that the Region is right",
                ));
            }
            problems.extend(elsewhere(&vpcs, way.vpc.as_deref()));
            problems.extend(without_ipv6(&subnets, ipv6));
            status.subnets = subnets;
        }
        Err(error) => {
            // The other calls would wait as long for the same answer; what was resolved before still stands.
            problems.push(problem("SubnetsReady", "Unreachable", &error));
            let conditions = status.conditions;
            let observed_generation = class.metadata.generation;
            status =
                EC2NodeClassStatus { conditions, observed_generation, ipv6, prefix_delegation: prefixes, ..before };
            return conclude(status, problems, &context.permissions(class));
        }
    }
    match security_groups(context, class).await {
        Ok((groups, self_reference)) => {
            if groups.is_empty() {
                problems.push(problem(
                    "SecurityGroupsReady",
                    "SecurityGroupsNotFound",
                    "spec.securityGroupSelectorTerms: no security group matches; check ids, names and tags",
                ));
            } else if !self_reference && wants_efa(context, state, class) {
                problems.push(problem("SecurityGroupsReady", "NoSelfReference", NO_SELF_REFERENCE));
            }
            status.security_groups = groups;
            status.self_reference = self_reference;
        }
        Err(error) => problems.push(problem("SecurityGroupsReady", "Unreachable", &error)),
    }
    match images(context, class, &before.amis, &kinds(context, state, class)).await {
        Ok(amis) => status.amis = amis,
        Err(problem) => problems.push(problem),
    }
    status.memory = memory::known(state, class, &status.amis);
    match reservations(context, class).await {
        Ok(found) => {
            if found.is_empty() && !class.spec.capacity_reservation_selector_terms.is_empty() {
                problems.push(problem(
                    "CapacityReservationsReady",
                    "ReservationNotFound",
                    "spec.capacityReservationSelectorTerms: no reservation matches; check ids, tags and owner",
                ));
            }
            status.capacity_reservations = found.iter().map(|one| of_reservation(one, context.clock.now())).collect();
        }
        Err(error) => problems.push(problem(
            "CapacityReservationsReady",
            if error.kind == ErrorClass::Configuration { "ReservationNotFound" } else { "Unreachable" },
            &format!("spec.capacityReservationSelectorTerms: {error}"),
        )),
    }
    if problems.is_empty() {
        problems.extend(try_out(context, state, class, &status).await);
    }
    problems.extend(fault(context, class));
    conclude(status, problems, &context.permissions(class))
}

/// Whether the class was tried out as it is now.
fn tried(context: &Context, class: &EC2NodeClass) -> bool {
    let tried = context.tried.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    tried.get(&class.name_any()) == Some(&version(class))
}

/// The first launch that pools of the class could ask for: pool, type and subnet.
fn trial<'a>(
    context: &Context,
    state: &'a State,
    (class, resolved): (&EC2NodeClass, Option<&'a EC2NodeClassStatus>),
) -> Option<(&'a NodePool, InstanceTypeInfo, &'a SubnetStatus)> {
    let catalogue = context.catalogue.load();
    for pool in pools_of(state, class) {
        let types = pool::allowed(context, pool, &catalogue);
        for info in types.filter(|info| node_class::interfaces_fit(class, info).is_ok()) {
            if supply::image(resolved?, info).is_none() {
                continue;
            }
            let sold = |subnet: &&SubnetStatus| {
                (subnet.ipv6 || !node_class::is_ipv6(class))
                    && rules::allows_zone(pool, &subnet.zone)
                    && catalogue
                        .offerings
                        .contains(&Offering { instance_type: info.name.clone(), zone: subnet.zone.clone() })
            };
            if let Some(subnet) = resolved?.subnets.iter().find(sold) {
                return Some((pool, info.clone(), subnet));
            }
        }
    }
    None
}

/// Tries out a launch of the class before a gang needs one: mistakes that only EC2 knows of, such as a role that does
/// not exist, and permissions that are missing. Nothing is launched, and nothing is learned about capacity.
async fn try_out(
    context: &Context,
    state: &State,
    class: &EC2NodeClass,
    resolved: &EC2NodeClassStatus,
) -> Option<Problem> {
    let (pool, info, subnet) = trial(context, state, (class, Some(resolved)))?;
    let tags = BatchTags {
        cluster_uid: context.options.cluster_uid.clone(),
        cluster_name: context.cluster_name(),
        batch_uid: "dry-run".to_owned(),
        gang_uid: None,
        attempt: 0,
    };
    let spec = match template::trial(context, (class, resolved), pool, &info, &subnet.id, &tags) {
        Ok(spec) => spec,
        Err(message) => return Some(problem("ValidationSucceeded", "LaunchRefused", &message)),
    };
    let parameters = LaunchParameters {
        count: 1,
        instance_type: info.name.clone(),
        zone: subnet.zone.clone(),
        subnet_id: subnet.id.clone(),
        capacity_type: CapacityType::OnDemand,
        template_id: String::new(),
        template_version: 1,
        placement_group: None,
        way: LaunchWay::Fleet,
        reservation: None,
        partial: false,
        tags,
        fleet_tags: muster_core::ec2::FleetTags::Documented,
        overrides: Vec::new(),
        token: String::new(),
    };
    let group = placement_group_name(&context.cluster_name(), "dry-run", 1);
    let answer = for_class(class.name_any().into(), context.cloud.try_out(&spec, parameters, &group)).await;
    let mut tried = context.tried.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    tried.insert(class.name_any(), version(class));
    let error = answer.err()?;
    match Blame::of(error.kind, error.code.as_deref(), &error.message)? {
        // EC2 does not say how far a dry run looks at the rest: a launch would tell.
        Blame::Parameters => None,
        blame @ (Blame::Image
        | Blame::Subnets
        | Blame::SecurityGroups
        | Blame::InstanceProfile
        | Blame::Reservations) => {
            Some(refused(class, blame, "EC2 would refuse a launch", error.code.as_deref(), &error.message))
        }
    }
}

const NO_SELF_REFERENCE: &str = "spec.securityGroupSelectorTerms: no chosen group allows all traffic from and to \
     itself, which EFA needs; add a rule for all protocols in both directions that names the group, or set spec.efa to \
     Never";

/// Whether some node of the class may carry EFA.
fn wants_efa(context: &Context, state: &State, class: &EC2NodeClass) -> bool {
    let catalogue = context.catalogue.load();
    rules::efa(class) == Efa::Always
        || types_of(context, state, &catalogue, class).any(|info| node_class::has_efa(class, info))
}

fn problem(condition: &'static str, reason: &'static str, message: &str) -> Problem {
    Problem { condition, reason, message: message.to_owned() }
}

/// What the identity may not do, in a sentence; and whether nothing is provisioned for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Permissions {
    lacks: Option<String>,
    blocks: Option<String>,
}

impl Context {
    fn permissions(&self, class: &EC2NodeClass) -> Permissions {
        let name = class.name_any();
        Permissions { lacks: self.cloud.lacks(Some(&name)), blocks: self.cloud.blocked(&name) }
    }
}

/// Writes the problems as conditions. A missing right goes before all others, which may follow from it.
fn conclude(
    mut status: EC2NodeClassStatus,
    mut problems: Vec<Problem>,
    permissions: &Permissions,
) -> EC2NodeClassStatus {
    let now = now_real();
    if let Some(message) = &permissions.blocks {
        problems.insert(0, problem("Authorized", "NotAuthorized", message));
    }
    let mut set = |kind: &str, problem: Option<&Problem>| {
        let (reason, message) = problem.map_or((kind, ""), |problem| (problem.reason, problem.message.as_str()));
        set_condition(&mut status.conditions, kind, problem.is_none(), reason, message, now);
    };
    for kind in CONDITIONS {
        set(kind, problems.iter().find(|problem| problem.condition == kind));
    }
    set("Ready", problems.first());
    let lacks = permissions.lacks.as_ref().map(|message| problem("Authorized", "NotAuthorized", message));
    set("Authorized", lacks.as_ref());
    status
}

/// A subnet outside the cluster's VPC: its nodes would run and never be part of the cluster.
fn elsewhere(vpcs: &BTreeMap<String, String>, cluster: Option<&str>) -> Option<Problem> {
    let cluster = cluster?;
    let (subnet, vpc) = vpcs.iter().find(|(_, vpc)| *vpc != cluster)?;
    Some(problem(
        "SubnetsReady",
        "SubnetsElsewhere",
        &format!(
            "spec.subnetSelectorTerms: {subnet} is in {vpc}, and the cluster is in {cluster}; choose subnets of the cluster's VPC"
        ),
    ))
}

/// Subnets, and the VPC of each. Several subnets of a zone are fine: each launch takes the one with most free addresses.
async fn subnets(
    context: &Context,
    class: &EC2NodeClass,
) -> Result<(Vec<SubnetStatus>, BTreeMap<String, String>), String> {
    let mut found: BTreeMap<String, SubnetStatus> = BTreeMap::new();
    let mut vpcs = BTreeMap::new();
    for term in &class.spec.subnet_selector_terms {
        let subnets = match context.cloud.subnets(&selectors::subnets(term)).await {
            Ok(subnets) => subnets,
            Err(error) if error.kind == ErrorClass::Configuration => continue,
            Err(error) => return Err(format!("spec.subnetSelectorTerms: {error}")),
        };
        for subnet in subnets {
            vpcs.insert(subnet.id.clone(), subnet.vpc_id);
            found.insert(
                subnet.id.clone(),
                SubnetStatus {
                    id: subnet.id,
                    zone: subnet.zone,
                    zone_id: subnet.zone_id,
                    available_addresses: subnet.free_addresses,
                    ipv6: subnet.ipv6,
                },
            );
        }
    }
    Ok((found.into_values().collect(), vpcs))
}

/// Ids, and whether one of the groups allows all traffic from and to itself.
async fn security_groups(context: &Context, class: &EC2NodeClass) -> Result<(Vec<String>, bool), String> {
    let mut found = BTreeMap::new();
    for term in &class.spec.security_group_selector_terms {
        let groups = match context.cloud.security_groups(&selectors::security_groups(term)).await {
            Ok(groups) => groups,
            Err(error) if error.kind == ErrorClass::Configuration => continue,
            Err(error) => return Err(format!("spec.securityGroupSelectorTerms: {error}")),
        };
        found.extend(groups.into_iter().map(|group| (group.id, group.allows_itself)));
    }
    let self_reference = found.values().any(|allows_itself| *allows_itself);
    Ok((found.into_keys().collect(), self_reference))
}

/// One image per architecture and accelerator, each of the first term that gives one. A kind without an image is no
/// problem as long as another has one: its types are no candidates.
async fn images(
    context: &Context,
    class: &EC2NodeClass,
    before: &[AmiStatus],
    kinds: &BTreeSet<ImageKind>,
) -> Result<Vec<AmiStatus>, Problem> {
    let mut found: Vec<AmiStatus> = Vec::new();
    let mut last = problem("AMIsReady", "AMINotFound", "spec.amiSelectorTerms: nothing resolves");
    for term in &class.spec.ami_selector_terms {
        let missing: Vec<ImageKind> = kinds
            .iter()
            .filter(|kind| {
                !found.iter().any(|ami| ami.architecture == kind.architecture && ami.variant == kind.variant.as_str())
            })
            .cloned()
            .collect();
        if missing.is_empty() {
            break;
        }
        match of_term(context, term, before, &missing).await {
            Ok(amis) => found.extend(amis),
            Err(problem) => last = problem,
        }
    }
    if found.is_empty() { Err(last) } else { Ok(found) }
}

/// The image of a parameter and when it was read: the one of the status as long as it is fresh, and after that as long as
/// the parameter cannot be read.
///
/// Errors: that of reading it, if there is no image to go on with.
async fn of_parameter(
    context: &Context,
    before: &[AmiStatus],
    path: &str,
) -> Result<(String, Option<Timestamp>), CallError> {
    let now = context.clock.now();
    let known = before.iter().find(|ami| ami.parameter.as_deref() == Some(path));
    if let Some(known) = known.filter(|known| !is_due(known.read, now)) {
        return Ok((known.id.clone(), known.read));
    }
    match (context.cloud.image_parameter(path).await, known) {
        (Ok(id), _) => Ok((id, Some(now))),
        (Err(error), Some(known)) if outlives(&error) => {
            tracing::warn!(parameter = path, image = known.id, read = ?known.read, %error, "an image goes on that may be old");
            Ok((known.id.clone(), known.read))
        }
        (Err(error), _) => Err(error),
    }
}

async fn of_term(
    context: &Context,
    term: &AmiSelectorTerm,
    before: &[AmiStatus],
    kinds: &[ImageKind],
) -> Result<Vec<AmiStatus>, Problem> {
    let not_found = |what: &str, why: &str| {
        let reason = if why.is_empty() { String::new() } else { format!(": {why}") };
        problem("AMIsReady", "AMINotFound", &format!("spec.amiSelectorTerms: {what}{reason}"))
    };
    let status = |kind: &ImageKind, id: String, parameter: Option<&str>, read: Option<Timestamp>| AmiStatus {
        id,
        architecture: kind.architecture.clone(),
        variant: kind.variant.as_str().to_owned(),
        parameter: parameter.map(str::to_owned),
        read,
    };
    if let Some(text) = &term.alias {
        let unresolved =
            |why: String| problem("AMIsReady", "AliasUnresolved", &format!("spec.amiSelectorTerms: {why}"));
        let alias = Alias::parse(text).map_err(|error| unresolved(error.to_string()))?;
        let kubernetes = kubernetes(context)
            .await
            .map_err(|error| unresolved(format!("the API server does not tell its version: {error}")))?;
        let mut found = Vec::new();
        let mut last = String::new();
        for kind in kinds {
            let path = match alias.parameter(&kubernetes, kind) {
                Ok(path) => path,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            match of_parameter(context, before, &path).await {
                Ok((id, read)) => found.push(status(kind, id, Some(&path), read)),
                Err(error) => last = format!("alias {text} ({path}): {error}"),
            }
        }
        return if found.is_empty() { Err(not_found(&last, "")) } else { Ok(found) };
    }
    let mut read = None;
    let query = match (&term.id, &term.ssm_parameter) {
        (Some(id), _) => ImageQuery { ids: vec![id.clone()], ..ImageQuery::default() },
        (None, Some(path)) => {
            let held = of_parameter(context, before, path)
                .await
                .map_err(|error| not_found(&format!("parameter {path}"), &error.to_string()))?;
            let (id, at) = held;
            read = at;
            ImageQuery { ids: vec![id], ..ImageQuery::default() }
        }
        (None, None) => selectors::images(term),
    };
    let what = match (&term.id, &term.ssm_parameter, &term.name) {
        (Some(id), _, _) => format!("image {id}"),
        (None, Some(path), _) => format!("parameter {path}"),
        (None, None, Some(name)) => format!("name {name}"),
        (None, None, None) => "tags".to_owned(),
    };
    let images = context.cloud.images(&query).await.map_err(|error| not_found(&what, &error.to_string()))?;
    // Newest first; one of each architecture serves all accelerators.
    let found: Vec<AmiStatus> = kinds
        .iter()
        .filter_map(|kind| {
            let image = images.iter().find(|image| image.architecture == kind.architecture)?;
            Some(status(kind, image.id.clone(), term.ssm_parameter.as_deref(), read))
        })
        .collect();
    if found.is_empty() {
        let wanted: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        return Err(not_found(&what, &format!("no image for {}", wanted.join(" or "))));
    }
    Ok(found)
}

/// The API server's version, asked for once a while: it decides which images fit.
async fn kubernetes(context: &Context) -> Result<String, String> {
    let info = context.client.apiserver_version().await.map_err(|error| error.to_string())?;
    kubernetes_version(&info.major, &info.minor).ok_or_else(|| format!("{}.{} is no version", info.major, info.minor))
}

/// The reservations of a class, with their free hosts now.
///
/// Errors: that of the first call that failed; a term that names an unknown id is one.
pub(super) async fn reservations(context: &Context, class: &EC2NodeClass) -> Result<Vec<Reservation>, CallError> {
    let mut found: BTreeMap<String, Reservation> = BTreeMap::new();
    for term in &class.spec.capacity_reservation_selector_terms {
        let query = ReservationQuery {
            ids: term.id.iter().cloned().collect(),
            tags: term.tags.clone(),
            owner: term.owner_id.clone(),
            match_criteria: term.instance_match_criteria.map(|criteria| match criteria {
                MatchCriteria::Open => "open".to_owned(),
                MatchCriteria::Targeted => "targeted".to_owned(),
            }),
        };
        for reservation in context.cloud.reservations(&query).await? {
            found.insert(reservation.id.clone(), reservation);
        }
    }
    Ok(found.into_values().collect())
}

fn of_reservation(one: &Reservation, now: Timestamp) -> ReservationStatus {
    ReservationStatus {
        id: one.id.clone(),
        instance_type: one.instance_type.clone(),
        zone: one.zone.clone(),
        block: one.block,
        targeted: one.targeted,
        placement_group: one.placement_group.clone(),
        state: match one.state {
            ReservationState::Active => "active",
            ReservationState::Scheduled => "scheduled",
            ReservationState::Ended => "ended",
            ReservationState::Unknown => "unknown",
        }
        .to_owned(),
        start: one.start,
        end: one.end,
        hosts: one.total,
        free_hosts: one.free,
        seen: Some(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(problems: &[Problem]) -> EC2NodeClassStatus {
        conclude(EC2NodeClassStatus::default(), problems.to_vec(), &Permissions::default())
    }

    #[test]
    fn a_problem_turns_its_own_condition_and_ready() {
        let wrong = status(&[problem("SecurityGroupsReady", "NoSelfReference", NO_SELF_REFERENCE)]);
        let of = |kind: &str| condition(&wrong.conditions, kind).unwrap();
        assert_eq!((of("Ready").status.as_str(), of("Ready").reason.as_str()), ("False", "NoSelfReference"));
        assert_eq!(of("SecurityGroupsReady").message, NO_SELF_REFERENCE);
        assert_eq!(of("AMIsReady").status, "True");
        assert_eq!(status(&[]).conditions.len(), CONDITIONS.len() + 2);
    }

    #[test]
    fn a_missing_right_is_a_condition_of_its_own_and_the_reason_only_where_nothing_can_be_provisioned() {
        let ready = |permissions: &Permissions| {
            let status =
                conclude(EC2NodeClassStatus::default(), vec![problem("AMIsReady", "AMINotFound", "no")], permissions);
            let of = |kind: &str| condition(&status.conditions, kind).unwrap().reason.clone();
            (of("Authorized"), of("Ready"))
        };
        let stated = Some("may not".to_owned());
        let reported = Permissions { lacks: stated.clone(), blocks: None };
        assert_eq!(ready(&reported), ("NotAuthorized".to_owned(), "AMINotFound".to_owned()));
        let blocked = Permissions { lacks: stated.clone(), blocks: stated };
        assert_eq!(ready(&blocked), ("NotAuthorized".to_owned(), "NotAuthorized".to_owned()));
    }

    #[test]
    fn a_class_tells_when_it_turns_and_when_its_reason_changes_but_not_twice() {
        let fine = status(&[]);
        let wrong = status(&[problem("AMIsReady", "AMINotFound", "spec.amiSelectorTerms: image ami-1")]);
        let other = status(&[problem("SubnetsReady", "SubnetsNotFound", "spec.subnetSelectorTerms: none")]);
        assert_eq!(turned(None, &fine), None);
        let event = turned(None, &wrong).unwrap();
        assert_eq!((event.reason, event.warning), ("ClassNotReady", true));
        assert_eq!(event.message, "AMINotFound: spec.amiSelectorTerms: image ami-1");
        assert_eq!(turned(Some(&wrong), &wrong), None);
        assert!(turned(Some(&wrong), &other).unwrap().message.contains("SubnetsNotFound"));
        assert_eq!(turned(Some(&other), &fine).unwrap().reason, "ClassReady");
    }

    #[test]
    fn a_subnet_of_another_vpc_than_the_cluster_s_is_named() {
        let vpcs = BTreeMap::from([("subnet-1", "vpc-1"), ("subnet-2", "vpc-2")])
            .into_iter()
            .map(|(subnet, vpc)| (subnet.to_owned(), vpc.to_owned()))
            .collect();
        let found = elsewhere(&vpcs, Some("vpc-1")).unwrap();
        assert_eq!((found.condition, found.reason), ("SubnetsReady", "SubnetsElsewhere"));
        assert!(found.message.contains("subnet-2 is in vpc-2, and the cluster is in vpc-1"), "{}", found.message);
        assert!(elsewhere(&vpcs, None).is_none(), "EKS was not asked");
        assert!(elsewhere(&BTreeMap::new(), Some("vpc-1")).is_none());
    }

    #[test]
    fn what_has_become_empty_is_taken_off_the_status() {
        let patch = null_absent(&status(&[]));
        assert_eq!(patch["amis"], serde_json::Value::Null);
        assert_eq!(patch.get("ipv6"), Some(&serde_json::Value::Null));
        assert!(patch.as_object().unwrap().contains_key("capacityReservations"));
    }
}
