//! What a pod requests, as kube-scheduler counts it, and what a node has.
//!
//! The API server rounds every amount up to thousandths when it is written, so that comes first here too, for objects that
//! never went through it. Sums are exact then and rounded to whole units once, at the end: three containers of `1500m`
//! bytes request five bytes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use muster_core::model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};
use muster_core::model::units::Quantity;

use super::ConvertError;

/// Prefix of the huge page resources, `hugepages-2Mi`.
const HUGE_PAGES: &str = "hugepages-";

/// Exact amounts by resource. An entry of zero is not the same as none where defaults are concerned.
type Amounts<'a> = BTreeMap<&'a str, Quantity>;
/// `requests`, `limits`, `allocatable` and the like.
type List = BTreeMap<String, Text>;

/// What the pod requests, `pods: 1` included. With a status, what it holds: the largest of wanted, allocated and in use.
///
/// The rules, in the order of application:
/// 1. A container's request that is absent is its limit (what the API server does to pods, not to templates).
/// 2. Containers run at the same time, and so do sidecars (init containers with `restartPolicy: Always`): a sum.
/// 3. Another init container runs alone beside the sidecars before it; the larger of that and the sum counts.
/// 4. `spec.resources` replaces the outcome for `cpu`, `memory` and huge pages; its limits are its default.
/// 5. `spec.overhead` is added.
///
/// Errors: an amount that is no quantity.
pub(super) fn effective(spec: &k8s::PodSpec, status: Option<&k8s::PodStatus>) -> Result<Resources, ConvertError> {
    let wanted = containers(spec, status, View::Wanted)?;
    let pod_level = pod_level(spec, status, &wanted)?;
    let mut sum = match status {
        None => wanted,
        Some(status) => held(spec, status, wanted)?,
    };
    sum.extend(pod_level);
    add(&mut sum, &amounts(spec.overhead.as_ref(), || "spec.overhead".to_owned())?);

    let mut requests: Resources = sum
        .into_iter()
        .filter(|(name, _)| *name != PODS && is_counted(name))
        .map(|(name, amount)| (name, counted(name, amount)))
        .collect();
    requests.set(PODS, 1);
    Ok(requests)
}

/// `status.allocatable` of a node.
///
/// Errors: an amount that is no quantity.
pub(super) fn allocatable(list: Option<&List>) -> Result<Resources, ConvertError> {
    let amounts = amounts(list, || "status.allocatable".to_owned())?;
    Ok(amounts
        .into_iter()
        .filter(|(name, _)| is_counted(name))
        .map(|(name, amount)| (name, counted(name, amount)))
        .collect())
}

/// Bytes of memory among the amounts of a node, without the huge pages in them, which pods request apart; `None` where an amount is
/// missing or cannot be read.
pub(super) fn memory(list: Option<&List>) -> Option<i64> {
    let amount = |name: &str, text: &Text| Some(counted(name, text.0.parse::<Quantity>().ok()?));
    let all = amount(MEMORY, list?.get(MEMORY)?)?;
    let mut huge = list?.iter().filter(|(name, _)| name.starts_with("hugepages-"));
    huge.try_fold(all, |left, (name, text)| Some(left.saturating_sub(amount(name, text)?)))
}

/// Whether an init container goes on running beside the others.
pub(super) fn is_sidecar(container: &k8s::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Where a container's requests are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    /// `spec`.
    Wanted,
    /// `status.containerStatuses[].allocatedResources`: what the kubelet has admitted.
    Allocated,
    /// `status.containerStatuses[].resources`: what the runtime has set.
    Actuated,
}

/// The largest of the three views. A resize that the node can never grant does not count as wanted.
fn held<'a>(
    spec: &'a k8s::PodSpec,
    status: &'a k8s::PodStatus,
    wanted: Amounts<'a>,
) -> Result<Amounts<'a>, ConvertError> {
    let actual = status.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let (allocated, actuated) = match (&status.allocated_resources, actual) {
        // The kubelet has summed them up itself.
        (Some(allocated), Some(actual)) => (
            amounts(Some(allocated), || "status.allocatedResources".to_owned())?,
            amounts(Some(actual), || "status.resources.requests".to_owned())?,
        ),
        (Some(_) | None, _) => {
            (containers(spec, Some(status), View::Allocated)?, containers(spec, Some(status), View::Actuated)?)
        }
    };
    let mut held = if is_infeasible(status) { Amounts::new() } else { wanted };
    maximum(&mut held, &allocated);
    maximum(&mut held, &actuated);
    Ok(held)
}

/// The requests in `spec.resources` that replace those of the containers.
fn pod_level<'a>(
    spec: &'a k8s::PodSpec,
    status: Option<&'a k8s::PodStatus>,
    containers: &Amounts<'a>,
) -> Result<Amounts<'a>, ConvertError> {
    let Some(resources) = &spec.resources else { return Ok(Amounts::new()) };
    let mut requests = amounts(resources.requests.as_ref(), || "spec.resources.requests".to_owned())?;
    for (name, limit) in amounts(resources.limits.as_ref(), || "spec.resources.limits".to_owned())? {
        // Containers that request the resource come before the limit, except for huge pages, which cannot be overcommitted.
        let requested = containers.contains_key(name) && !name.starts_with(HUGE_PAGES);
        if is_pod_level(name) && !requested {
            requests.entry(name).or_insert(limit);
        }
    }
    requests.retain(|name, _| is_pod_level(name));
    if let Some(status) = status.filter(|_| !requests.is_empty())
        && let Some(actual) = &status.resources
    {
        if is_infeasible(status) {
            requests.clear();
        }
        maximum(&mut requests, &amounts(actual.requests.as_ref(), || "status.resources.requests".to_owned())?);
        maximum(
            &mut requests,
            &amounts(status.allocated_resources.as_ref(), || "status.allocatedResources".to_owned())?,
        );
        requests.retain(|name, _| is_pod_level(name));
    }
    Ok(requests)
}

/// Rules 1 to 3 of [`effective`] for one view.
fn containers<'a>(
    spec: &'a k8s::PodSpec,
    status: Option<&'a k8s::PodStatus>,
    view: View,
) -> Result<Amounts<'a>, ConvertError> {
    let mut together = Amounts::new();
    for (index, container) in spec.containers.iter().enumerate() {
        add(&mut together, &container_requests(container, status, view, || format!("spec.containers[{index}]"))?);
    }
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let own = container_requests(container, status, view, || format!("spec.initContainers[{index}]"))?;
        if is_sidecar(container) {
            add(&mut together, &own);
            add(&mut sidecars, &own);
            maximum(&mut starting, &sidecars);
        } else {
            let mut beside = sidecars.clone();
            add(&mut beside, &own);
            maximum(&mut starting, &beside);
        }
    }
    maximum(&mut together, &starting);
    Ok(together)
}

fn container_requests<'a>(
    container: &'a k8s::Container,
    status: Option<&'a k8s::PodStatus>,
    view: View,
    path: impl Fn() -> String,
) -> Result<Amounts<'a>, ConvertError> {
    if view != View::Wanted
        && let Some(status) = status
    {
        let reported = container_status(status, &container.name);
        let actual = reported.and_then(|reported| reported.resources.as_ref()?.requests.as_ref());
        let allocated = reported.and_then(|reported| reported.allocated_resources.as_ref());
        let of_runtime = actual.filter(|_| view == View::Actuated);
        if let Some(list) = of_runtime.or(allocated) {
            return amounts(Some(list), || format!("status of container {}", container.name));
        }
        if is_infeasible(status) {
            return Ok(Amounts::new());
        }
    }
    let Some(resources) = &container.resources else { return Ok(Amounts::new()) };
    let mut requests = amounts(resources.requests.as_ref(), || format!("{}.resources.requests", path()))?;
    for (name, limit) in amounts(resources.limits.as_ref(), || format!("{}.resources.limits", path()))? {
        requests.entry(name).or_insert(limit);
    }
    Ok(requests)
}

fn container_status<'a>(status: &'a k8s::PodStatus, name: &str) -> Option<&'a k8s::ContainerStatus> {
    let regular = status.container_statuses.iter().flatten();
    regular.chain(status.init_container_statuses.iter().flatten()).find(|status| status.name == name)
}

/// Whether the kubelet has refused a resize for good.
fn is_infeasible(status: &k8s::PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions
        .find(|condition| condition.type_ == "PodResizePending")
        .is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

fn amounts(list: Option<&List>, path: impl Fn() -> String) -> Result<Amounts<'_>, ConvertError> {
    list.into_iter()
        .flatten()
        .map(|(name, text)| match text.0.parse::<Quantity>() {
            Ok(amount) => Ok((name.as_str(), amount.round_to_milli())),
            Err(source) => Err(ConvertError { field: format!("{}[{name}]", path()), source }),
        })
        .collect()
}

fn add<'a>(sum: &mut Amounts<'a>, other: &Amounts<'a>) {
    for (name, amount) in other {
        let entry = sum.entry(name).or_default();
        *entry = entry.saturating_add(*amount);
    }
}

fn maximum<'a>(largest: &mut Amounts<'a>, other: &Amounts<'a>) {
    for (name, amount) in other {
        let entry = largest.entry(name).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

/// The units of [`Resources`].
fn counted(name: &str, amount: Quantity) -> i64 {
    if name == CPU { amount.milli_ceil() } else { amount.unit_ceil() }
}

/// Resources that may be requested for a whole pod.
fn is_pod_level(name: &str) -> bool {
    name == CPU || name == MEMORY || name.starts_with(HUGE_PAGES)
}

/// Resources that kube-scheduler looks at. Any other name, such as `storage`, means nothing to it.
fn is_counted(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    [PODS, CPU, MEMORY, EPHEMERAL_STORAGE].contains(&name)
        || name.starts_with(HUGE_PAGES)
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || !native && !name.starts_with("requests.")
}
