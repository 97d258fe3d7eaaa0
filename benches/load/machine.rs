//! What the benchmarks on a live control plane share: requests, and what processes take of the machine.

use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use muster::testbed::{Component, TestCluster, eventually};
use serde::Serialize;

/// Requests at once.
pub(crate) const CREATORS: usize = 32;
pub(crate) const NAMESPACE: &str = "load";
pub(crate) const DEADLINE: Duration = Duration::from_secs(900);

/// CPU time of API server, etcd, kube-scheduler and Muster, in hundredths of a second.
pub(crate) type Cpu = [u64; 4];

/// Sends a body; the answer is not looked at beyond its status.
pub(crate) async fn post(client: Client, path: String, body: Vec<u8>) -> anyhow::Result<()> {
    let request = http::Request::post(&path).header("content-type", "application/json").body(body)?;
    client.request_text(request).await.with_context(|| format!("POST {path}"))?;
    Ok(())
}

pub(crate) async fn create(client: &Client, path: &str, objects: Vec<impl Serialize>) -> anyhow::Result<()> {
    let bodies: Vec<Vec<u8>> = objects.iter().map(serde_json::to_vec).collect::<Result<_, _>>()?;
    futures::stream::iter(bodies)
        .map(Ok)
        .try_for_each_concurrent(CREATORS, |body| post(client.clone(), path.to_owned(), body))
        .await
}

pub(crate) fn cpu(cluster: &TestCluster) -> Cpu {
    [Component::ApiServer, Component::Etcd, Component::Scheduler(0), Component::Muster(0)].map(|component| {
        let stat = cluster.pid(component).and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        // After the name, which may hold anything, user and system time are the 12th and 13th field.
        let stat = stat.unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        ticks(11) + ticks(12)
    })
}

/// Waits until Muster has used less than `quiet` hundredths of a second in each of so many seconds in a row.
pub(crate) async fn muster_at_rest(cluster: &TestCluster, quiet: u64, seconds: u32) -> anyhow::Result<()> {
    Ok(eventually(DEADLINE, "muster to be at rest", || async move {
        let mut calm = 0;
        for _ in 0..seconds {
            let before = cpu(cluster)[3];
            tokio::time::sleep(Duration::from_secs(1)).await;
            calm += u32::from(cpu(cluster)[3] - before < quiet);
        }
        Ok::<_, std::convert::Infallible>((calm == seconds).then_some(()))
    })
    .await?)
}

/// Thousandths of a core that Muster uses in the time that follows.
pub(crate) async fn permille_of_muster(cluster: &TestCluster, window: Duration) -> u64 {
    let before = cpu(cluster)[3];
    tokio::time::sleep(window).await;
    (cpu(cluster)[3] - before) * 10 / window.as_secs()
}

/// A line of the memory of a process in MiB; 0 where it does not run.
pub(crate) fn memory_of(cluster: &TestCluster, component: Component, line: &str) -> u64 {
    let status = cluster
        .pid(component)
        .and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok())
        .unwrap_or_default();
    let found = status.lines().find_map(|found| found.strip_prefix(line));
    found.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
