//! Server-side apply of the shipped manifests, unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, ApiResource, Scope, pinned_kind};
use kube::{Client, ResourceExt};
use muster_api::keys;
use serde_json::Value;

use crate::testbed::error::TestbedError;
use crate::testbed::settings::read_yaml;
use crate::testbed::wait::eventually;
use crate::testbed::workloads::TestPod;

/// Field manager of everything the testbed applies.
const FIELD_MANAGER: &str = "muster-testbed";

/// How long the API server may take to act on what was applied.
const EFFECT: Duration = Duration::from_secs(120);

/// One object of a manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file it is in, for messages.
    pub path: PathBuf,
    /// The object as written.
    pub object: DynamicObject,
}

/// Reads all objects of the YAML files in `folder` and its subfolders, in the order of their
/// paths. `kustomization.yaml` is excluded, and so is the configuration of Muster itself, which
/// holds no object, and the folders of components, which a user chooses.
///
/// # Errors
/// [`TestbedError::File`], [`TestbedError::Yaml`], and [`TestbedError::Malformed`] for an object
/// without `kind` or `metadata.name`.
pub fn read_manifests(folder: &Path) -> Result<Vec<Manifest>, TestbedError> {
    let mut manifests = Vec::new();
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(TestbedError::file("list", folder))? {
        entries.push(entry.map_err(TestbedError::file("list", folder))?.path());
    }
    entries.sort();
    let component = |text: String| text.lines().any(|line| line == "kind: Component");
    if std::fs::read_to_string(folder.join("kustomization.yaml")).is_ok_and(component) {
        return Ok(manifests);
    }
    for path in entries {
        if path.is_dir() {
            manifests.extend(read_manifests(&path)?);
            continue;
        }
        let is_yaml = path.extension().is_some_and(|ending| ending == "yaml");
        let name = path.file_name().unwrap_or_default();
        if !is_yaml || name == "kustomization.yaml" || name == "muster.yaml" {
            continue;
        }
        for document in read_yaml(&path)? {
            let object: DynamicObject = serde_json::from_value(document).map_err(|error| TestbedError::Malformed {
                what: path.display().to_string(),
                problem: error.to_string(),
            })?;
            if object.types.is_none() || object.metadata.name.is_none() {
                return Err(TestbedError::Malformed {
                    what: path.display().to_string(),
                    problem: "an object without apiVersion, kind or metadata.name".to_owned(),
                });
            }
            manifests.push(Manifest { path: path.clone(), object });
        }
    }
    Ok(manifests)
}

/// Applies objects by server-side apply: definitions of kinds first, until they are established,
/// then namespaces, then the rest in the order given. Applying again changes nothing.
///
/// # Errors
/// [`TestbedError::Api`] with the first object that is refused, [`TestbedError::Wait`] when a
/// definition is not established in 30 s.
pub async fn apply(client: &Client, manifests: &[Manifest]) -> Result<(), TestbedError> {
    let mut kinds: BTreeMap<String, (ApiResource, ApiCapabilities)> = BTreeMap::new();
    for stage in [Stage::Definitions, Stage::Namespaces, Stage::Rest] {
        for manifest in manifests.iter().filter(|manifest| Stage::of(manifest) == stage) {
            apply_one(client, manifest, &mut kinds).await?;
        }
        if stage == Stage::Definitions {
            for manifest in manifests.iter().filter(|manifest| Stage::of(manifest) == stage) {
                wait_until_established(client, &manifest.object.name_any()).await?;
            }
        }
    }
    Ok(())
}

/// Whether the API server knows admission policies that change objects: not before 1.36.
///
/// # Errors
/// [`TestbedError::Api`] when it cannot be asked.
pub async fn changes_objects_by_policy(client: &Client) -> Result<bool, TestbedError> {
    let served = client.list_api_group_resources("admissionregistration.k8s.io/v1").await;
    let served = served.map_err(TestbedError::api("list the kinds of admissionregistration.k8s.io"))?;
    Ok(served.resources.iter().any(|resource| resource.kind == MUTATING_POLICY))
}

/// A kind that 1.35 does not have.
const MUTATING_POLICY: &str = "MutatingAdmissionPolicy";

/// Takes out what [`changes_objects_by_policy`] denies, as `manifests/kubernetes/1.35` does.
pub fn without_mutating_policies(manifests: &mut Vec<Manifest>) {
    let is_one = |manifest: &Manifest| {
        manifest.object.types.as_ref().is_some_and(|types| types.kind.starts_with(MUTATING_POLICY))
    };
    manifests.retain(|manifest| !is_one(manifest));
}

/// Waits until the admission policy acts: a member of a gang, created for show only, gets the
/// gate. The API server compiles a new policy about a second after it was applied.
///
/// # Errors
/// [`TestbedError::Wait`] after 30 s.
pub async fn wait_until_gate_is_added(client: &Client) -> Result<(), TestbedError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let probe = TestPod::new("muster-gate-probe").annotation(keys::GANG, "probe").build();
    let for_show = PostParams { dry_run: true, ..PostParams::default() };
    eventually(EFFECT, "the admission policy to add the gate", || async {
        let pod = pods.create(&for_show, &probe).await?;
        let gates = pod.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
        Ok::<_, kube::Error>(gates.iter().any(|gate| gate.name == keys::GATE).then_some(()))
    })
    .await?;
    Ok(())
}

/// Whether the user of `client` may do something; `resource` may carry a subresource after `/`.
///
/// # Errors
/// [`TestbedError::Api`] when the API server cannot be asked.
pub async fn is_allowed(
    client: &Client,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Result<bool, TestbedError> {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                namespace: namespace.map(str::to_owned),
                name: name.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::<SelfSubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await
        .map_err(TestbedError::api("ask for the permissions of a user"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Waits until the shipped roles count for `muster`, the client of `muster serve`'s identity.
///
/// # Errors
/// [`TestbedError::Wait`] after 30 s.
pub async fn wait_until_roles_count(muster: &Client) -> Result<(), TestbedError> {
    eventually(EFFECT, "the roles of muster serve", || async {
        let bind = is_allowed(muster, "create", "", "pods/binding", Some("default"), None).await?;
        let gangs = is_allowed(muster, "patch", keys::GROUP, "gangs/status", Some("default"), None).await?;
        Ok::<_, TestbedError>((bind && gangs).then_some(()))
    })
    .await?;
    Ok(())
}

/// The order in which objects can be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Definitions,
    Namespaces,
    Rest,
}

impl Stage {
    fn of(manifest: &Manifest) -> Self {
        match manifest.object.types.as_ref().map(|types| types.kind.as_str()) {
            Some("CustomResourceDefinition") => Self::Definitions,
            Some("Namespace") => Self::Namespaces,
            Some(_) | None => Self::Rest,
        }
    }
}

async fn apply_one(
    client: &Client,
    manifest: &Manifest,
    kinds: &mut BTreeMap<String, (ApiResource, ApiCapabilities)>,
) -> Result<(), TestbedError> {
    let Manifest { path, object } = manifest;
    let name = object.name_any();
    let types = object.types.clone().unwrap_or_default();
    let action = || format!("apply {} {name} of {}", types.kind, path.display());
    let key = format!("{}/{}", types.api_version, types.kind);
    if !kinds.contains_key(&key) {
        let kind = kind_of(&types, path)?;
        let found = pinned_kind(client, &kind).await.map_err(TestbedError::api(action()))?;
        kinds.insert(key.clone(), found);
    }
    let (resource, capabilities) = &kinds[&key];
    let api: Api<DynamicObject> = match (&capabilities.scope, object.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, resource),
        (Scope::Namespaced, None) => {
            return Err(TestbedError::Malformed {
                what: path.display().to_string(),
                problem: format!("{} {name} has no namespace", types.kind),
            });
        }
    };
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object))
        .await
        .map_err(TestbedError::api(action()))?;
    Ok(())
}

fn kind_of(types: &TypeMeta, path: &Path) -> Result<GroupVersionKind, TestbedError> {
    GroupVersionKind::try_from(types)
        .map_err(|error| TestbedError::Malformed { what: path.display().to_string(), problem: error.to_string() })
}

async fn wait_until_established(client: &Client, name: &str) -> Result<(), TestbedError> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    eventually(EFFECT, format!("{name} to be established"), || async {
        let definition = api.get(name).await?;
        let conditions = definition.data["status"]["conditions"].as_array().cloned();
        let established = conditions
            .unwrap_or_default()
            .iter()
            .any(|condition: &Value| condition["type"] == "Established" && condition["status"] == "True");
        Ok::<_, kube::Error>(established.then_some(()))
    })
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> Vec<Manifest> {
        read_manifests(&crate::testbed::repository().join("manifests")).unwrap()
    }

    #[test]
    fn every_shipped_object_names_its_kind_and_what_is_namespaced_says_where() {
        let manifests = shipped();
        for kind in ["Deployment", "ServiceAccount", "Role", "RoleBinding", "PodDisruptionBudget"] {
            let mut of_kind =
                manifests.iter().filter(|manifest| manifest.object.types.as_ref().unwrap().kind == kind).peekable();
            assert!(of_kind.peek().is_some(), "{kind} is missing");
            assert!(of_kind.all(|manifest| manifest.object.namespace().is_some()), "{kind}");
        }
    }

    #[test]
    fn the_policy_is_about_our_profile_and_our_gate() {
        let manifests = shipped();
        let policy = manifests
            .iter()
            .find(|manifest| manifest.object.types.as_ref().unwrap().kind == "MutatingAdmissionPolicy")
            .expect("the policy is shipped");
        let spec = policy.object.data["spec"].to_string();
        assert!(spec.contains(&format!("schedulerName == '{}'", keys::SCHEDULER_NAME)));
        assert!(spec.contains(&format!("schedulingGates{{name: \\\"{}\\\"}}", keys::GATE)));
        assert_eq!(policy.object.data["spec"]["failurePolicy"], "Ignore");
    }
}
