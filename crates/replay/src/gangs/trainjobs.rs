//! JobSets that Kubeflow Trainer still has to make, from a TrainJob and the template of its runtime.
//!
//! Read is what decides how many pods there are, what they ask for and where they may go; images, commands and the
//! environment play no part.

use muster_api::conventions::{Kind, Object};
use serde_json::{Map, Value, json};

use super::owners::{flag, is_open, text};
use crate::dump::{Dump, Runtime};

/// Label of the replicated job that is the training step.
const STEP: &str = "/template/metadata/labels/trainer.kubeflow.org~1trainjob-ancestor-step";
/// Name of the job and of the container that hold the training nodes.
const NODE: &str = "node";

/// Adds the JobSets that open TrainJobs of the dump lack; a TrainJob whose runtime is not in the dump is reported.
pub(crate) fn expand(dump: &mut Dump) {
    let mut made = Vec::new();
    let mut missing = Vec::new();
    for train in dump.objects.iter().filter(|object| object.kind == Kind::TrainJob && is_open(dump, object)) {
        let same =
            |object: &&Object| object.metadata.namespace == train.metadata.namespace && object.name() == train.name();
        if dump.objects.iter().filter(|object| object.kind == Kind::JobSet).any(|object| same(&object)) {
            continue;
        }
        let named = |field: &str, default: &'static str| match text(&train.spec, field) {
            "" => default.to_owned(),
            found => found.to_owned(),
        };
        let (kind, name) = (named("/runtimeRef/kind", "ClusterTrainingRuntime"), named("/runtimeRef/name", ""));
        let namespace = train.metadata.namespace.as_deref().unwrap_or_default();
        let runtime = dump.runtimes.iter().find(|runtime| {
            runtime.kind == kind
                && runtime.name == name
                && (runtime.namespace.is_empty() || runtime.namespace == namespace)
        });
        match runtime {
            Some(runtime) => made.extend(job_set(train, runtime)),
            None => missing.push((train.name().to_owned(), kind, name)),
        }
    }
    dump.objects.extend(made);
    for (train, kind, name) in missing {
        let why = format!("{kind} {name} is not in the dump, so the pods of a TrainJob without a JobSet are not known");
        dump.ignore("TrainJob".to_owned(), train, why);
    }
}

/// The JobSet that Trainer would make.
fn job_set(train: &Object, runtime: &Runtime) -> Option<Object> {
    let mut spec = runtime.spec.pointer("/template/spec")?.clone();
    if flag(&train.spec, "/suspend") {
        spec.as_object_mut()?.insert("suspend".to_owned(), Value::Bool(true));
    }
    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64);
    let nodes = number(&train.spec, "/trainer/numNodes").or_else(|| number(&runtime.spec, "/mlPolicy/numNodes"));
    let nodes = nodes.unwrap_or(1);
    let mpi = runtime.spec.pointer("/mlPolicy/mpi").filter(|mpi| !mpi.is_null());
    let overrides = ["/podTemplateOverrides", "/podSpecOverrides"];
    let overrides: Vec<&Value> =
        overrides.iter().filter_map(|path| train.spec.pointer(path)?.as_array()).flatten().collect();
    for job in spec.pointer_mut("/replicatedJobs").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = text(job, "/name").to_owned();
        let trains = text(job, STEP) == "trainer" || name == NODE;
        // With MPI the launcher is the step, and may be one of the nodes.
        let count = match mpi {
            None if trains => Some(nodes),
            Some(mpi) if name == NODE => Some(nodes.saturating_sub(u64::from(flag(mpi, "/runLauncherAsNode")))),
            None | Some(_) => None,
        };
        if let (Some(count), Some(fields)) = (count, job.pointer_mut("/template/spec").and_then(Value::as_object_mut)) {
            fields.insert("parallelism".to_owned(), json!(count));
            fields.insert("completions".to_owned(), json!(count));
        }
        let Some(pod) = job.pointer_mut("/template/spec/template").and_then(Value::as_object_mut) else { continue };
        if let Some(resources) = train.spec.pointer("/trainer/resourcesPerNode").filter(|_| trains) {
            let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut("containers"));
            for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(fields) =
                    container.as_object_mut().filter(|fields| fields.get("name") == Some(&json!(NODE)))
                {
                    fields.insert("resources".to_owned(), resources.clone());
                }
            }
        }
        let metadata = pod.entry("metadata").or_insert_with(|| json!({}));
        for field in ["labels", "annotations"] {
            merge(metadata, field, train.spec.get(field));
        }
        for one in overrides.iter().filter(|one| is_meant(one, &name)) {
            for field in ["labels", "annotations"] {
                merge(
                    pod.entry("metadata").or_insert_with(|| json!({})),
                    field,
                    one.pointer(&format!("/metadata/{field}")),
                );
            }
            place(pod.entry("spec").or_insert_with(|| json!({})), one.get("spec").unwrap_or(one));
        }
    }
    let owner = json!({
        "apiVersion": &*train.api_version, "kind": "TrainJob", "name": train.name(), "controller": true,
        "uid": train.metadata.uid.clone().unwrap_or_else(|| {
            format!("trainjobs/{}/{}", train.metadata.namespace.as_deref().unwrap_or_default(), train.name())
        }),
    });
    let template = |field: &str| runtime.spec.pointer(&format!("/template/metadata/{field}")).cloned();
    let mut metadata = json!({
        "name": train.name(), "namespace": train.metadata.namespace, "ownerReferences": [owner],
        "creationTimestamp": train.metadata.creation_timestamp,
    });
    for field in ["labels", "annotations"] {
        merge(&mut metadata, field, template(field).as_ref());
        merge(&mut metadata, field, train.spec.get(field));
    }
    Object::read(
        &json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}),
    )
}

/// Whether overrides are for a job; without a list they are for all.
fn is_meant(one: &Value, job: &str) -> bool {
    let jobs = one.get("targetJobs").and_then(Value::as_array);
    jobs.is_none_or(|jobs| jobs.iter().any(|target| text(target, "/name") == job))
}

/// Where pods may go, as overridden.
fn place(spec: &mut Value, one: &Value) {
    merge(spec, "nodeSelector", one.get("nodeSelector"));
    let Some(fields) = spec.as_object_mut() else { return };
    for field in ["tolerations", "schedulingGates"] {
        if let Some(more) = one.get(field).and_then(Value::as_array) {
            let all = fields.entry(field).or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                all.extend(more.iter().cloned());
            }
        }
    }
    if let Some(affinity) = one.get("affinity").filter(|affinity| !affinity.is_null()) {
        fields.insert("affinity".to_owned(), affinity.clone());
    }
}

/// Adds the entries of a map to one that may not be there.
fn merge(value: &mut Value, field: &str, more: Option<&Value>) {
    let Some(more) = more.and_then(Value::as_object).filter(|more| !more.is_empty()) else { return };
    let Some(fields) = value.as_object_mut() else { return };
    let all = fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if let Some(all) = all.as_object_mut() {
        all.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}
