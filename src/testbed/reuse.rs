//! Clusters on control planes that one test leaves to the next: see [`super::plane`].

use crate::testbed::cluster::{ClusterOptions, TestCluster};
use crate::testbed::error::TestbedError;
use crate::testbed::plane::{self, Installed};

/// A cluster with what `installed` says, where possible on the control plane that another test of this process has left; it is
/// left to the next test in turn. `options` may differ from that one's in what is started for each test: further arguments of
/// etcd or kube-apiserver are for [`TestCluster::start`].
///
/// # Errors
/// Those of [`TestCluster::start`] and [`TestCluster::apply_manifests`].
pub async fn start(options: ClusterOptions, installed: Installed) -> Result<TestCluster, TestbedError> {
    while let Some(plane) = plane::idle(&installed) {
        if matches!(plane.clean().await, Ok(true)) {
            return TestCluster::on(options, plane).await;
        }
        plane.processes.end();
    }
    let cluster = TestCluster::start(options).await?;
    if let Installed::Manifests { without } = &installed {
        cluster.apply_manifests(without).await?;
    }
    cluster.leave_to_others(installed).await?;
    Ok(cluster)
}
