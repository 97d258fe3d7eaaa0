//! kube-scheduler calls over mutual TLS: it speaks HTTP/2 there, so all waiting members of a gang share one connection.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::{Path, PathBuf};

use muster::testbed::request::request;
use muster::testbed::{Component, eventually};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::support::{DEADLINE, bare, create, delete, leaves, options, phase, runs_on, stack};

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An authority, and certificates of it for both ends: `ca.crt`, and `.crt` and `.key` of `server` and `client`.
fn certificates() -> Folder {
    let folder = Folder(std::env::temp_dir().join(format!("muster-secure-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let write = |name: &str, text: String| std::fs::write(folder.0.join(name), text).unwrap();
    write("ca.crt", params.self_signed(&key).unwrap().pem());
    for (name, usage) in
        [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
    {
        let own = KeyPair::generate().unwrap();
        let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        leaf.extended_key_usages = vec![usage];
        write(&format!("{name}.crt"), leaf.signed_by(&own, &Issuer::from_params(&params, &key)).unwrap().pem());
        write(&format!("{name}.key"), own.serialize_pem());
    }
    folder
}

/// Connections that stand open to a port of 127.0.0.1, counted at its own end.
fn connections(port: u16) -> usize {
    let table = std::fs::read_to_string(Path::new("/proc/net/tcp")).unwrap();
    let local = format!("0100007F:{port:04X}");
    let established = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1) == Some(&local.as_str()) && fields.get(3) == Some(&"01")
    };
    table.lines().filter(established).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_gang_stand_at_the_barrier_on_one_connection() {
    let folder = certificates();
    let file = |name: &str| folder.0.join(name).display().to_string();
    let Some(mut options) = options().await else { return };
    options.config = json!({"extender": {"tls": {
        "certFile": file("server.crt"), "keyFile": file("server.key"), "clientCaFile": file("ca.crt"),
    }}});
    options.scheduler_tls =
        Some(json!({"certFile": file("client.crt"), "keyFile": file("client.key"), "caFile": file("ca.crt")}));
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 8)).await.unwrap();
    // Released whole; one goes before there is a kube-scheduler that could know of it, so that seven wait.
    stack.cluster.kill(Component::Scheduler(0)).unwrap();
    for number in 0..8 {
        create(&stack, "ml", bare("train", number, 8)).await;
    }
    phase(&stack, "ml", "train", "Released").await;
    delete(&stack, "ml", "train-7").await;
    stack.start_scheduler(0).await.unwrap();
    let http = stack.http();
    eventually(DEADLINE, "seven members at the barrier", || async move {
        let metrics = request(http, "GET", "/metrics", "").await.map_err(|error| error.to_string())?;
        Ok::<_, String>(metrics.lines().any(|line| line == "muster_barrier_waiting 7").then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    // Two entries of the configuration, each with a client of its own.
    let port = stack.extender().port();
    eventually(DEADLINE, "two connections at most for seven waiting members", || async move {
        // One that was opened beside another is closed again.
        let open = connections(port);
        if (1..=2).contains(&open) { Ok(Some(())) } else { Err(format!("{open} connections")) }
    })
    .await
    .unwrap();
    create(&stack, "ml", bare("train", 7, 8)).await;
    for number in 0..8 {
        runs_on(&stack, "ml", &format!("train-{number}"), DEADLINE).await;
    }
}
