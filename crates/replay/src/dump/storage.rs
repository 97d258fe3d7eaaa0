//! What the API server refuses of claims, volumes, their classes and limits, and a converter would read as something else: each is
//! named by field and value.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use muster_core::model::units::Quantity;

use super::constraints::{filled, label_key, named, not_negative, selector, term, wrong};

const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
const ALONE: &str = "ReadWriteOncePod";
const VOLUME_MODES: [&str; 2] = ["Filesystem", "Block"];
const BINDING_MODES: [&str; 2] = ["Immediate", "WaitForFirstConsumer"];

/// Looks at a claim.
///
/// Errors: the path of the first field that the API server would refuse, its value, and what is wrong; of the others too.
pub(super) fn claim(claim: &PersistentVolumeClaim) -> Result<(), String> {
    let Some(spec) = &claim.spec else { return Ok(()) };
    access_modes(spec.access_modes.as_deref())?;
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if modes.iter().any(|mode| mode == ALONE) && modes.iter().any(|mode| mode != ALONE) {
        return Err(format!("spec.accessModes: `{ALONE}` is there beside another"));
    }
    named(spec.volume_mode.as_deref(), &VOLUME_MODES, "spec.volumeMode")?;
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let storage = requests.and_then(|requests| requests.get("storage"));
    if let Some(text) = storage.filter(|text| text.0.parse::<Quantity>().is_ok_and(|amount| amount == Quantity::ZERO)) {
        return Err(format!("spec.resources.requests[storage]: `{}` has to be greater than zero", text.0));
    }
    selector(spec.selector.as_ref(), "spec.selector")?;
    amounts(requests, "spec.resources.requests")
}

/// Looks at a volume.
pub(super) fn volume(volume: &PersistentVolume) -> Result<(), String> {
    let Some(spec) = &volume.spec else { return Ok(()) };
    access_modes(spec.access_modes.as_deref())?;
    named(spec.volume_mode.as_deref(), &VOLUME_MODES, "spec.volumeMode")?;
    amounts(spec.capacity.as_ref(), "spec.capacity")?;
    let Some(required) = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref()) else {
        return Ok(());
    };
    let path = "spec.nodeAffinity.required.nodeSelectorTerms";
    for (index, one) in required.node_selector_terms.iter().enumerate() {
        term(one, &format!("{path}[{index}]"))?;
    }
    Ok(())
}

/// Looks at a `StorageClass`.
pub(super) fn class(class: &StorageClass) -> Result<(), String> {
    named(class.volume_binding_mode.as_deref(), &BINDING_MODES, "volumeBindingMode")?;
    let terms = class.allowed_topologies.iter().flatten().enumerate();
    for (number, term) in terms {
        for (index, one) in term.match_label_expressions.iter().flatten().enumerate() {
            let path = format!("allowedTopologies[{number}].matchLabelExpressions[{index}]");
            label_key(&one.key, &path, "key")?;
            if one.values.is_empty() {
                return wrong(&path, "values", "[]", "has to hold a value");
            }
        }
    }
    Ok(())
}

/// Looks at how many volumes the drivers of a node attach.
pub(super) fn limits(node: &CSINode) -> Result<(), String> {
    for (index, driver) in node.spec.drivers.iter().enumerate() {
        let path = format!("spec.drivers[{index}]");
        filled(&driver.name, &path, "name")?;
        let count = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
        if let Some(count) = count.filter(|count| *count < 0) {
            return wrong(&format!("{path}.allocatable"), "count", count, "is negative");
        }
    }
    Ok(())
}

fn access_modes(modes: Option<&[String]>) -> Result<(), String> {
    for (index, mode) in modes.unwrap_or_default().iter().enumerate() {
        named(Some(mode), &ACCESS_MODES, &format!("spec.accessModes[{index}]"))?;
    }
    Ok(())
}

/// Quantities that can be read and are not negative.
fn amounts(list: Option<&BTreeMap<String, Text>>, path: &str) -> Result<(), String> {
    for (name, text) in list.into_iter().flatten() {
        text.0.parse::<Quantity>().map_err(|error| format!("{path}[{name}]: {error}"))?;
    }
    not_negative(list, path)
}
