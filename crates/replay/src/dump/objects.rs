//! One object of a dump: its kind decides the type, and what cannot be read is reported with field and value.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Container, Node, Pod, PodSpec, PodStatus, PodTemplate, PodTemplateSpec, ResourceRequirements,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use muster_api::conventions::{Kind, Object};
use muster_api::dra::DeviceUse;
use muster_api::{convert, keys};
use muster_core::model::node::Node as CoreNode;
use muster_core::model::spelling::{is_name, is_namespace};
use muster_core::reason::bounded;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::constraints::{named, not_negative};
use super::{Dump, MAX_NODES, MAX_OBJECTS, MAX_SHOWN, ReadError, Runtime, constraints, storage, unknown};
use crate::record::{self, Record};
use crate::{gangs, kinds, passes};

/// `spec.containers[].ports[].protocol`.
const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];
/// `spec.containers[].restartPolicy`: a sidecar is an init container with `Always`.
const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];

impl Dump {
    pub(super) fn keep(
        &mut self,
        version: &str,
        kind: String,
        mut object: Value,
        place: &str,
    ) -> Result<(), ReadError> {
        let text = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, mut namespace) = (text("/metadata/name"), text("/metadata/namespace"));
        let misnamed = misnamed(&object);
        if kind.is_empty() {
            self.ignore(kind, if name.is_empty() { place.to_owned() } else { name }, "kind: is missing".to_owned());
            return Ok(());
        }
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if group == keys::GROUP && kind == record::KIND {
            return self.header(&object, place);
        }
        if group == keys::GROUP && kind == passes::KIND {
            self.passes.push(object);
            return Ok(());
        }
        let read = Kind::of(version, &kind).filter(|kind| *kind != Kind::Job);
        let known = kinds::find(group, &kind);
        if read.is_none() && known.is_none() {
            let name = if name.is_empty() { place.to_owned() } else { name };
            self.ignore(kind, name, format!("{version} objects of this kind play no part in planning"));
            return Ok(());
        }
        if let Some(why) = misnamed {
            let name = if name.is_empty() { place.to_owned() } else { bounded(&name, MAX_SHOWN).into_owned() };
            self.ignore(kind, name, why);
            return Ok(());
        }
        if name.is_empty() {
            self.ignore(kind, place.to_owned(), "metadata.name: is missing".to_owned());
            return Ok(());
        }
        if known.is_some_and(|kind| !kind.namespaced) {
            namespace.clear();
        } else if namespace.is_empty() {
            "default".clone_into(&mut namespace);
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                metadata.insert("namespace".to_owned(), Value::from(namespace.as_str()));
            }
        }
        // Kinds of one name exist in several groups.
        let seen = if read.is_some() { format!("{kind}.{group}") } else { kind.clone() };
        if !self.seen.insert((seen, namespace, name.clone())) {
            self.ignore(kind, name, "is in the dump twice; the first one counts".to_owned());
            return Ok(());
        }
        if self.seen.len() > MAX_OBJECTS {
            return Err(ReadError::TooLarge { what: "objects", limit: MAX_OBJECTS });
        }
        if read.is_some() {
            let ended = gangs::has_ended(&object);
            match Object::read(&object) {
                Some(object) => {
                    if ended {
                        let namespace = object.metadata.namespace.clone().unwrap_or_default();
                        self.finished.insert((object.kind.served().plural.to_owned(), namespace, name));
                    }
                    self.objects.push(object);
                }
                None => self.ignore(kind, name, "metadata: cannot be read".to_owned()),
            }
        } else if let Err(why) = self.typed(&kind, object) {
            self.ignore(kind, name, why);
        }
        if self.nodes.len() > MAX_NODES {
            return Err(ReadError::TooLarge { what: "nodes", limit: MAX_NODES });
        }
        Ok(())
    }

    /// The head of a recording: the moment and the settings; the first one counts.
    fn header(&mut self, object: &Value, place: &str) -> Result<(), ReadError> {
        match from::<Record>(object) {
            Ok(record) => {
                self.record.get_or_insert(record);
            }
            Err(why) => self.ignore(record::KIND.to_owned(), place.to_owned(), why),
        }
        Ok(())
    }

    /// Reports fields that the object is read without.
    fn note_unknown(&mut self, kind: &str, object: &Value) {
        if let Some(why) = unknown::fields(kind, object) {
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            self.ignore(kind.to_owned(), name.to_owned(), why);
        }
    }

    fn typed(&mut self, kind: &str, object: Value) -> Result<(), String> {
        match kind {
            "Node" => self.nodes.push(checked(&object, check_node)?),
            "Pod" => {
                let object = convert::keep_scheduling_group(object);
                let pod: Pod = match from(&object) {
                    Ok(pod) => pod,
                    Err(why) => {
                        // Its gang is known by what can be read.
                        let metadata = object.get("metadata").map(|all| from(all).unwrap_or_else(|_| readable(all)));
                        let text = |path| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
                        let (scheduler_name, node_name) = (text("/spec/schedulerName"), text("/spec/nodeName"));
                        let spec = Some(PodSpec { scheduler_name, node_name, ..PodSpec::default() });
                        let status = Some(PodStatus { phase: text("/status/phase"), ..PodStatus::default() });
                        let pod = metadata.map(|metadata| Pod { metadata, spec, status });
                        self.unreadable.extend(pod.map(|pod| (pod, why.clone())));
                        return Err(why);
                    }
                };
                match check_pod(&pod) {
                    Ok(()) => self.pods.push(pod),
                    Err(why) => {
                        self.unreadable.push((pod, why.clone()));
                        return Err(why);
                    }
                }
            }
            "PersistentVolumeClaim" => self.volumes.apply_claim(&checked(&object, storage::claim)?),
            "PersistentVolume" => self.volumes.apply_volume(&checked(&object, storage::volume)?),
            "StorageClass" => self.volumes.apply_class(&checked(&object, storage::class)?),
            "CSINode" => self.volumes.apply_limits(&checked(&object, storage::limits)?),
            "DeviceClass" => self.devices.apply_class(&from(&object)?),
            "ResourceSlice" => self.devices.apply_slice(&from(&object)?),
            "ResourceClaim" => self.devices.apply_claim(&from(&object)?),
            "ResourceClaimTemplate" => self.devices.apply_template(&from(&object)?),
            "Job" => {
                let job: Job = from(&object)?;
                if let Some(spec) = &job.spec {
                    check_template(&spec.template, "spec.template.")?;
                }
                self.jobs.push(job);
            }
            "PodTemplate" => {
                let template: PodTemplate = from(&object)?;
                if let Some(spec) = &template.template {
                    check_template(spec, "template.")?;
                }
                self.templates.push(template);
            }
            "DaemonSet" => {
                let daemon_set: DaemonSet = from(&object)?;
                if let Some(spec) = &daemon_set.spec {
                    check_template(&spec.template, "spec.template.")?;
                }
                self.daemon_sets.push(daemon_set);
            }
            "Namespace" => self.namespaces.push(from(&object)?),
            "PodDisruptionBudget" => self.budgets.push(checked(&object, check_budget)?),
            "PriorityClass" => self.priorities.push(from(&object)?),
            "NodePool" => {
                self.pools.push(from(&object)?);
                self.note_unknown(kind, &object);
            }
            "EC2NodeClass" => {
                self.classes.push(from(&object)?);
                self.note_unknown(kind, &object);
            }
            "Gang" => self.gangs.push(from(&object)?),
            "NodeBatch" => self.batches.push(from(&object)?),
            "ClusterTrainingRuntime" | "TrainingRuntime" => {
                let text = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
                let namespace = if kind == "TrainingRuntime" { text("/metadata/namespace") } else { String::new() };
                let spec = object.get("spec").cloned().unwrap_or_default();
                self.runtimes.push(Runtime { kind: kind.to_owned(), namespace, name: text("/metadata/name"), spec });
            }
            "ProvisioningRequest" => self.requests.push(from(&object)?),
            _ => {}
        }
        Ok(())
    }
}

impl Dump {
    /// Which pods use which ResourceClaims, once all are known.
    pub(super) fn note_devices(&mut self) {
        for pod in &self.pods {
            let Some(used) = DeviceUse::read(pod) else { continue };
            self.devices.apply_pod(pod.metadata.uid.as_deref().unwrap_or_default(), Some(used));
        }
        self.devices.take_touched();
    }

    /// Adds to nodes, as they were read, what they have of volumes and of devices that no kubelet counts.
    pub(crate) fn complete<'a>(&self, nodes: impl Iterator<Item = &'a mut CoreNode>) {
        let ended = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        let counted: BTreeSet<&str> =
            self.pods.iter().filter(|pod| !ended(pod)).filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        for node in nodes {
            let hostname = node.labels.get(keys::HOSTNAME).map(AsRef::as_ref);
            let mut has = self.volumes.on_node(node.name.as_str(), hostname);
            has.add(&self.devices.on_node(node.name.as_str(), &node.allocatable, |uid| counted.contains(uid)));
            node.allocatable.add(&has);
        }
    }
}

/// Reads a typed object.
///
/// Errors: the path of the field, and what is wrong with its value.
fn from<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        if path == "." {
            return error.into_inner().to_string();
        }
        // Those who read a field themselves, as a moment, do not all name its value.
        let found = error.path().iter().try_fold(object, |found, segment| match segment {
            Segment::Seq { index } => found.get(*index),
            Segment::Map { key } => found.get(key),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        let text = found.and_then(Value::as_str).map(|text| text.chars().take(MAX_SHOWN).collect::<String>());
        let why = error.into_inner().to_string();
        match text.filter(|text| !why.contains(&**text)) {
            Some(text) => format!("{path}: `{text}`: {why}"),
            None => format!("{path}: {why}"),
        }
    })
}

/// Reads a typed object, and looks for what the API server refuses of it.
fn checked<T: DeserializeOwned>(object: &Value, check: fn(&T) -> Result<(), String>) -> Result<T, String> {
    let read = from(object)?;
    check(&read)?;
    Ok(read)
}

fn check_node(node: &Node) -> Result<(), String> {
    convert::node(node).map_err(|error| describe(&error, ""))?;
    for (index, one) in node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).enumerate() {
        constraints::taint(one, &format!("spec.taints[{index}]"))?;
    }
    let status = node.status.as_ref();
    not_negative(status.and_then(|status| status.allocatable.as_ref()), "status.allocatable")
}

/// Numbers and percentages, as the API server takes them, and a selector.
fn check_budget(budget: &PodDisruptionBudget) -> Result<(), String> {
    let Some(spec) = &budget.spec else { return Ok(()) };
    for (field, amount) in [("minAvailable", &spec.min_available), ("maxUnavailable", &spec.max_unavailable)] {
        match amount {
            Some(IntOrString::Int(number)) if *number < 0 => {
                return Err(format!("spec.{field}: `{number}` is negative"));
            }
            Some(IntOrString::String(text)) => {
                let percent = text.strip_suffix('%').filter(|digits| digits.bytes().all(|one| one.is_ascii_digit()));
                if percent.and_then(|digits| digits.parse::<u32>().ok()).is_none_or(|percent| percent > 100) {
                    return Err(format!("spec.{field}: `{text}` is neither a number nor a percentage such as 50%"));
                }
            }
            Some(IntOrString::Int(_)) | None => {}
        }
    }
    if let (Some(_), Some(most)) = (&spec.min_available, &spec.max_unavailable) {
        let most = match most {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        };
        return Err(format!("spec.maxUnavailable: `{most}` and spec.minAvailable exclude each other"));
    }
    constraints::selector(spec.selector.as_ref(), "spec.selector")
}

/// What of its name no object can have.
fn misnamed(object: &Value) -> Option<String> {
    let of = |field: &str| object.get("metadata")?.get(field).filter(|value| !value.is_null());
    for (field, is_spelled) in [("name", is_name as fn(&str) -> bool), ("namespace", is_namespace)] {
        let Some(value) =
            of(field).filter(|value| !value.as_str().is_some_and(|text| text.is_empty() || is_spelled(text)))
        else {
            continue;
        };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return Some(format!("metadata.{field}: `{}` is no name", bounded(&value, MAX_SHOWN)));
    }
    None
}

/// What can be read of metadata of which some cannot.
fn readable(metadata: &Value) -> ObjectMeta {
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
    let texts = |key: &str| {
        let all = metadata.get(key).and_then(Value::as_object)?.iter();
        Some(all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
    };
    let of = |key: &str| metadata.get(key).cloned();
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        labels: texts("labels"),
        annotations: texts("annotations"),
        owner_references: of("ownerReferences").and_then(|all| serde_json::from_value(all).ok()),
        deletion_timestamp: of("deletionTimestamp").and_then(|at| serde_json::from_value(at).ok()),
        ..ObjectMeta::default()
    }
}

fn check_pod(pod: &Pod) -> Result<(), String> {
    convert::shape_of_pod(pod).map_err(|error| describe(&error, ""))?;
    convert::usage(pod).map_err(|error| describe(&error, ""))?;
    let Some(spec) = &pod.spec else { return Err("spec: is missing".to_owned()) };
    check_spec(spec, "")?;
    // What stands on a node holds its capacity, whatever it asked for.
    if spec.node_name.is_some() {
        return Ok(());
    }
    check_new(pod.metadata.labels.as_ref(), spec, "")
}

fn check_template(template: &PodTemplateSpec, prefix: &str) -> Result<(), String> {
    convert::shape_of_template("", template).map_err(|error| describe(&error, prefix))?;
    let Some(spec) = &template.spec else { return Ok(()) };
    check_spec(spec, prefix)?;
    check_new(template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()), spec, prefix)
}

/// What decides where a pod may go that has no node yet: its labels, amounts and constraints.
fn check_new(labels: Option<&BTreeMap<String, String>>, spec: &PodSpec, prefix: &str) -> Result<(), String> {
    constraints::labels(labels, &format!("{prefix}metadata.labels"))?;
    resources_of(spec, prefix).into_iter().try_for_each(|(path, of)| constraints::amounts(of, &path))?;
    constraints::check(spec, prefix)
}

/// What each container and the whole pod ask for and may use, with its path.
fn resources_of<'s>(spec: &'s PodSpec, prefix: &str) -> Vec<(String, &'s ResourceRequirements)> {
    let of_containers = containers_of(spec, prefix)
        .into_iter()
        .filter_map(|(path, container)| Some((format!("{path}.resources"), container.resources.as_ref()?)));
    let of_pod = spec.resources.as_ref().map(|of| (format!("{prefix}spec.resources"), of));
    of_containers.chain(of_pod).collect()
}

fn containers_of<'s>(spec: &'s PodSpec, prefix: &str) -> Vec<(String, &'s Container)> {
    let lists = [("containers", Some(&spec.containers)), ("initContainers", spec.init_containers.as_ref())];
    let all = lists.into_iter().flat_map(|(field, list)| {
        let of = list.into_iter().flatten().enumerate();
        of.map(move |(index, container)| (format!("{prefix}spec.{field}[{index}]"), container))
    });
    all.collect()
}

/// What the API server refuses and a converter reads: amounts below zero, ports that are none.
fn check_spec(spec: &PodSpec, prefix: &str) -> Result<(), String> {
    for (path, container) in containers_of(spec, prefix) {
        check_ports(container, &path)?;
        named(container.restart_policy.as_deref(), RESTART_POLICIES, &format!("{path}.restartPolicy"))?;
    }
    for (path, of) in resources_of(spec, prefix) {
        not_negative(of.requests.as_ref(), &format!("{path}.requests"))?;
        not_negative(of.limits.as_ref(), &format!("{path}.limits"))?;
    }
    not_negative(spec.overhead.as_ref(), &format!("{prefix}spec.overhead"))
}

/// `spec.containers[].ports`: what takes a port of the host.
fn check_ports(container: &Container, path: &str) -> Result<(), String> {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let path = format!("{path}.ports[{index}]");
        for (field, number) in [("containerPort", Some(port.container_port)), ("hostPort", port.host_port)] {
            // 0 is none, as a field without a value.
            if let Some(number) = number.filter(|number| !(0..=65_535).contains(number)) {
                return Err(format!("{path}.{field}: `{number}` is not between 1 and 65535"));
            }
        }
        named(port.protocol.as_deref(), PROTOCOLS, &format!("{path}.protocol"))?;
        let address = port.host_ip.as_deref().filter(|address| !address.is_empty());
        if let Some(address) = address.filter(|address| address.parse::<IpAddr>().is_err()) {
            return Err(format!("{path}.hostIP: `{address}` is no IP address"));
        }
    }
    Ok(())
}

fn describe(error: &convert::ConvertError, prefix: &str) -> String {
    format!("{prefix}{}: {}", error.field, error.source)
}
