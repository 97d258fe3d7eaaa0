//! The real Kueue beside a test cluster: its definitions, its webhooks and its process.
//!
//! Kueue is built from its Go module by `hack/control-plane/kueue/build.sh`. A test cluster has no network for Services, so
//! Kueue's own is an ExternalName of this machine: the API server then calls the webhooks on loopback, by the name that
//! Kueue's self-made certificate carries. Only the webhooks of Jobs and of Kueue's own kinds are registered.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::apply::{self, Manifest};
use super::binaries::{BinariesError, built};
use super::cluster::free_address;
use super::identity::write_private;
use super::request::request;
use super::settings::read_yaml;
use super::wait::WaitError;
use super::{Command, Identity, TestCluster, TestbedError, eventually};

/// How long Kueue may take until it serves.
const START: Duration = Duration::from_secs(240);
/// Kueue's namespace, Service and Secret, by the names it expects.
const NAMESPACE: &str = "kueue-system";
const SERVICE: &str = "kueue-webhook-service";
const SECRET: &str = "kueue-webhook-server-cert";
/// Kinds whose versions Kueue's webhook converts: it waits until its authority stands in all of them.
const CONVERTED: [&str; 5] = [
    "localqueues.kueue.x-k8s.io",
    "clusterqueues.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "multikueueclusters.kueue.x-k8s.io",
];
/// Groups whose webhooks are registered.
const GROUPS: [&str; 2] = ["batch", "kueue.x-k8s.io"];

/// A built Kueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kueue {
    folder: PathBuf,
}

impl Kueue {
    /// Builds Kueue where it is not built yet: minutes at first, nothing afterwards.
    ///
    /// # Errors
    /// As for [`super::Binaries::ensure`].
    pub async fn ensure(repository: &Path, progress: impl FnMut(&str)) -> Result<Self, BinariesError> {
        let folder = built(&repository.join("hack/control-plane/kueue/build.sh"), progress).await?;
        let binary = folder.join("kueue");
        if binary.is_file() { Ok(Self { folder }) } else { Err(BinariesError::Missing(binary)) }
    }

    /// Installs and starts Kueue, and returns when it manages Jobs.
    ///
    /// # Errors
    /// A definition that is refused; the process that does not serve, with the end of its log.
    pub async fn start(&self, cluster: &TestCluster) -> Result<(), TestbedError> {
        let admin = cluster.client(Identity::Admin)?;
        let (webhook, health) = (free_address()?, free_address()?);
        cluster.create_namespace(NAMESPACE).await?;
        let mut manifests = apply::read_manifests(&self.folder.join("crds"))?;
        for manifest in &mut manifests {
            if CONVERTED.contains(&manifest.object.name_any().as_str()) {
                manifest.object.data["spec"]["conversion"] = json!({
                    "strategy": "Webhook",
                    "webhook": {
                        "clientConfig": {"service": service(webhook.port(), "/convert")},
                        "conversionReviewVersions": ["v1"],
                    },
                });
            }
        }
        let webhooks = self.folder.join("webhooks.yaml");
        for document in read_yaml(&webhooks)? {
            manifests.push(manifest(&webhooks, on_loopback(document, webhook.port()))?);
        }
        for object in [
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": NAMESPACE},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            }),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}}),
        ] {
            manifests.push(manifest(&webhooks, object)?);
        }
        apply::apply(&admin, &manifests).await?;

        let certificates = cluster.folder().join("kueue");
        std::fs::create_dir_all(&certificates).map_err(TestbedError::file("make the folder", &certificates))?;
        let configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": health.to_string()},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": webhook.ip().to_string(), "port": webhook.port(), "certDir": certificates},
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"qps": 300, "burst": 500},
            "integrations": {"frameworks": ["batch/job"]},
        });
        let file = cluster.folder().join("kueue.yaml");
        write_private(&file, &configuration.to_string())?;
        let mut config = OsString::from("--config=");
        config.push(&file);
        // Its own aggregated API would need the API server's front proxy.
        let args = [config, "--feature-gates=VisibilityOnDemand=false".into()];
        cluster.start_kueue(
            Command::new(self.folder.join("kueue"), args).env("KUBECONFIG", cluster.kubeconfig(Identity::Admin)),
        )?;
        self.serves(cluster, &admin, &certificates, health).await
    }

    /// Plays the kubelet, which mounts Kueue's certificate once Kueue has made it, and waits for Kueue.
    async fn serves(
        &self,
        cluster: &TestCluster,
        admin: &Client,
        certificates: &Path,
        health: SocketAddr,
    ) -> Result<(), TestbedError> {
        let secrets: &Api<Secret> = &Api::namespaced(admin.clone(), NAMESPACE);
        let failed = |error: WaitError| TestbedError::Malformed {
            what: "Kueue".to_owned(),
            problem: format!("{error}\n{}", cluster.report(40)),
        };
        let made = eventually(START, "Kueue to make its certificate", || async move {
            let data = secrets.get(SECRET).await?.data.unwrap_or_default();
            Ok::<_, kube::Error>((data.contains_key("tls.crt") && data.contains_key("tls.key")).then_some(data))
        })
        .await
        .map_err(failed)?;
        // The certificate last: it is the one that Kueue waits for.
        for (name, value) in made.iter().rev() {
            let text = String::from_utf8_lossy(&value.0);
            write_private(&certificates.join(name), &text)?;
        }
        eventually(START, "Kueue to serve", || async move { request(health, "GET", "/readyz", "").await.map(Some) })
            .await
            .map_err(failed)?;
        Ok(())
    }
}

fn manifest(path: &Path, object: Value) -> Result<Manifest, TestbedError> {
    let object = serde_json::from_value(object)
        .map_err(|error| TestbedError::Malformed { what: path.display().to_string(), problem: error.to_string() })?;
    Ok(Manifest { path: path.to_owned(), object })
}

fn service(port: u16, path: &str) -> Value {
    json!({"namespace": NAMESPACE, "name": SERVICE, "port": port, "path": path})
}

/// Keeps the webhooks of [`GROUPS`], under the names and the port that Kueue's configuration gives them.
fn on_loopback(mut document: Value, port: u16) -> Value {
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    document["metadata"]["name"] = json!(format!("kueue-{name}"));
    if let Some(webhooks) = document["webhooks"].as_array_mut() {
        webhooks.retain(|webhook| {
            let rules = webhook["rules"].as_array().into_iter().flatten();
            rules
                .flat_map(|rule| rule["apiGroups"].as_array().into_iter().flatten())
                .all(|group| group.as_str().is_some_and(|group| GROUPS.contains(&group)))
        });
        for webhook in webhooks {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
            webhook["clientConfig"] = json!({"service": service(port, path)});
        }
    }
    document
}
