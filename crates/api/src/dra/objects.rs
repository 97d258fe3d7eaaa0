//! What is kept of DeviceClasses, ResourceSlices and ResourceClaims: the fields that kube-scheduler allocates by.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1 as k8s;

use super::selector::{Seen, Selector, Value};

/// Marks claims that kube-scheduler makes for pods that request an extended resource.
///
/// Source: `ExtendedResourceClaimAnnotation` of `k8s.io/api/resource/v1`.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// A DeviceClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// All must select; the text of one that is not understood.
    pub(super) selectors: Result<Vec<Selector>, String>,
    /// The extended resource that it gives.
    pub(super) extended: Option<String>,
}

impl Class {
    pub(super) fn read(class: &k8s::DeviceClass) -> Self {
        let texts =
            class.spec.selectors.iter().flatten().map(|selector| selector.cel.as_ref().map(|cel| &cel.expression));
        let read = |text: Option<&String>| {
            let text = text.ok_or_else(|| "one that is not CEL".to_owned())?;
            Selector::read(text).ok_or_else(|| text.clone())
        };
        Self {
            selectors: texts.map(read).collect(),
            extended: class.spec.extended_resource_name.clone().filter(|name| !name.is_empty()),
        }
    }

    /// Whether the class selects a device; of one for which a selector fails it selects nothing that can be relied upon.
    pub(super) fn selects(&self, device: &Seen) -> Option<bool> {
        let selectors = self.selectors.as_ref().ok()?;
        let mut all = true;
        for selector in selectors {
            all &= selector.selects(device).ok()?;
        }
        Some(all)
    }
}

/// The pool of devices that a slice is a part of.
pub(super) type Pool = (String, String);

/// Devices of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) pool: Pool,
    pub(super) generation: i64,
    /// Slices of this generation of the pool.
    pub(super) slices: i64,
    /// The node that alone reaches them; `None` for devices that others reach too.
    pub(super) node: Option<String>,
    /// By name, those that one claim has for itself and that are counted by nothing else.
    pub(super) devices: BTreeMap<String, Seen>,
}

impl Slice {
    pub(super) fn read(slice: &k8s::ResourceSlice) -> Self {
        let spec = &slice.spec;
        let devices = spec.devices.iter().flatten().filter(|device| is_plain(device));
        Self {
            pool: (spec.driver.clone(), spec.pool.name.clone()),
            generation: spec.pool.generation,
            slices: spec.pool.resource_slice_count,
            node: spec.node_name.clone().filter(|name| !name.is_empty()),
            devices: devices.map(|device| (device.name.clone(), seen(&spec.driver, device))).collect(),
        }
    }
}

/// Whether a device is allocated to one claim as a whole and can be had at once. One with a taint is no device for claims that
/// do not tolerate it, and that they do is not looked at.
fn is_plain(device: &k8s::Device) -> bool {
    device.allow_multiple_allocations != Some(true)
        && device.consumes_counters.as_ref().is_none_or(Vec::is_empty)
        && device.taints.as_ref().is_none_or(Vec::is_empty)
        && device.binding_conditions.as_ref().is_none_or(Vec::is_empty)
        && device.node_name.is_none()
        && device.node_selector.is_none()
        && device.all_nodes.is_none()
}

fn seen(driver: &str, device: &k8s::Device) -> Seen {
    let mut seen = Seen { driver: driver.to_owned(), ..Seen::default() };
    // A name without a domain is of the driver's.
    let qualified = |name: &str| match name.split_once('/') {
        Some((domain, name)) => (domain.to_owned(), name.to_owned()),
        None => (driver.to_owned(), name.to_owned()),
    };
    for (name, attribute) in device.attributes.iter().flatten() {
        let value = match attribute {
            k8s::DeviceAttribute { bool: Some(value), .. } => Value::Bool(*value),
            k8s::DeviceAttribute { int: Some(value), .. } => Value::Int(*value),
            k8s::DeviceAttribute { string: Some(value), .. } => Value::Text(value.clone()),
            k8s::DeviceAttribute { version: _, .. } => Value::Version,
        };
        let (domain, name) = qualified(name);
        seen.attributes.entry(domain).or_default().insert(name, value);
    }
    for (name, capacity) in device.capacity.iter().flatten() {
        let Ok(amount) = capacity.value.0.parse() else { continue };
        let (domain, name) = qualified(name);
        seen.capacity.entry(domain).or_default().insert(name, Value::Amount(amount));
    }
    seen
}

/// A device by pool and name.
pub(super) type Device = (Pool, String);

/// A ResourceClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) asks: Asks,
    /// Devices that it has.
    pub(super) devices: BTreeSet<Device>,
    /// Pods that use it.
    pub(super) pods: BTreeSet<String>,
    /// It was made for the extended resources of a pod.
    pub(super) extended: bool,
    pub(super) deleting: bool,
}

impl Claim {
    pub(super) fn read(claim: &k8s::ResourceClaim) -> Self {
        let status = claim.status.as_ref();
        let devices = status.and_then(|status| status.allocation.as_ref()?.devices.as_ref()?.results.as_ref());
        let has = |result: &&k8s::DeviceRequestAllocationResult| result.admin_access != Some(true);
        let pods = status.and_then(|status| status.reserved_for.as_ref()).into_iter().flatten();
        let annotations = claim.metadata.annotations.as_ref();
        Self {
            asks: asks(&claim.spec),
            devices: devices
                .into_iter()
                .flatten()
                .filter(has)
                .map(|result| ((result.driver.clone(), result.pool.clone()), result.device.clone()))
                .collect(),
            pods: pods.filter(|user| user.resource == "pods").map(|user| user.uid.clone()).collect(),
            extended: annotations.and_then(|all| all.get(EXTENDED)).is_some_and(|value| value == "true"),
            deleting: claim.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Devices by class, or what of the claim is not planned for.
pub(super) type Asks = Result<BTreeMap<String, i64>, String>;

/// What a claim asks for.
pub(super) fn asks(spec: &k8s::ResourceClaimSpec) -> Asks {
    let mut asked: BTreeMap<String, i64> = BTreeMap::new();
    let Some(devices) = &spec.devices else { return Ok(asked) };
    if devices.constraints.as_ref().is_some_and(|constraints| !constraints.is_empty()) {
        return Err("constraints between its devices".to_owned());
    }
    for request in devices.requests.iter().flatten() {
        let name = &request.name;
        let Some(exactly) = &request.exactly else {
            return Err(format!("firstAvailable in request {name}"));
        };
        if !matches!(exactly.allocation_mode.as_deref(), None | Some("" | "ExactCount")) {
            return Err(format!(
                "allocationMode {} in request {name}",
                exactly.allocation_mode.as_deref().unwrap_or("")
            ));
        }
        if exactly.admin_access == Some(true) {
            return Err(format!("adminAccess in request {name}"));
        }
        if exactly.capacity.is_some() {
            return Err(format!("capacity in request {name}"));
        }
        if exactly.selectors.as_ref().is_some_and(|selectors| !selectors.is_empty()) {
            return Err(format!("selectors in request {name}: a DeviceClass may have them"));
        }
        let count = exactly.count.filter(|count| *count > 0).unwrap_or(1);
        let sum = asked.entry(exactly.device_class_name.clone()).or_default();
        *sum = sum.saturating_add(count);
    }
    Ok(asked)
}
