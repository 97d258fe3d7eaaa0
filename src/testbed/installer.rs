//! How a user puts the shipped objects on a cluster: kubectl with the kustomization, or Helm with the charts.

use std::path::{Path, PathBuf};

use super::{Identity, TestCluster, TestbedError};

/// What installs.
#[derive(Clone, Debug)]
pub enum Installer {
    /// Our own reader of `manifests/`, which can leave files out.
    Reader,
    /// `kubectl apply -k manifests`.
    Kustomize,
    /// `helm install` of both charts.
    Helm {
        /// Helm itself.
        binary: PathBuf,
        /// The folder with both charts, of this commit or of another.
        charts: PathBuf,
    },
}

impl Installer {
    /// Installs, and waits until roles and policies count.
    ///
    /// # Errors
    /// The command that failed, with what it reported.
    pub async fn install(&self, cluster: &TestCluster, repository: &Path) -> Result<(), TestbedError> {
        match self {
            Self::Reader => return cluster.apply_manifests(&[]).await,
            Self::Kustomize => {
                let manifests = repository.join("manifests").display().to_string();
                run(cluster.kubectl().program.as_path(), cluster, &["apply", "-k", &manifests]).await?;
            }
            Self::Helm { binary, charts } => {
                for (chart, more) in [("muster-crd", "--create-namespace"), ("muster", "--timeout=2m")] {
                    let folder = charts.join(chart).display().to_string();
                    run(binary, cluster, &["install", chart, &folder, "--namespace=muster-system", more]).await?;
                }
            }
        }
        cluster.wait_until_installed().await
    }
}

/// Runs kubectl or Helm as admin of the cluster, with nothing of the user's own configuration, and returns what it wrote.
///
/// # Errors
/// It ended with something else than 0.
pub async fn run(program: &Path, cluster: &TestCluster, args: &[&str]) -> Result<String, TestbedError> {
    let malformed = |problem: String| TestbedError::Malformed {
        what: format!("{} {}", program.display(), args.join(" ")),
        problem,
    };
    let helm = cluster.folder().join("helm");
    let output = tokio::process::Command::new(program)
        .args(args)
        .env("KUBECONFIG", cluster.kubeconfig(Identity::Admin))
        .env("HELM_CACHE_HOME", &helm)
        .env("HELM_CONFIG_HOME", &helm)
        .env("HELM_DATA_HOME", &helm)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| malformed(error.to_string()))?;
    let reported = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(reported);
    }
    Err(malformed(format!("{reported}{}", String::from_utf8_lossy(&output.stderr))))
}
