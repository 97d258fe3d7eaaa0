//! The wire between `muster serve` and the API server: what they send each other passes through as it is, TLS and all, until nothing
//! does any more.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use muster::testbed::{Identity, Stack};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Carries what is sent.
pub(crate) struct Wire {
    /// A kubeconfig that leads here.
    pub(crate) kubeconfig: PathBuf,
    muted: watch::Sender<()>,
    open: Arc<AtomicUsize>,
    carried: JoinHandle<()>,
}

impl Wire {
    /// Listens on loopback. Whoever uses it is who Muster is.
    pub(crate) async fn start(stack: &Stack) -> Self {
        let own = std::fs::read_to_string(stack.cluster.kubeconfig(Identity::Muster)).unwrap();
        let mut config: Value = serde_json::from_str(&own).unwrap();
        let cluster = &mut config["clusters"][0]["cluster"];
        let server: SocketAddr = cluster["server"].as_str().unwrap().trim_start_matches("https://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        cluster["server"] = json!(format!("https://{}", listener.local_addr().unwrap()));
        let kubeconfig = stack.cluster.folder().join("wired.kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let (muted, open) = (watch::Sender::new(()), Arc::default());
        let carried = tokio::spawn(carry(listener, server, muted.clone(), Arc::clone(&open)));
        Self { kubeconfig, muted, open, carried }
    }

    /// Nothing comes any more on what is connected now, and nothing ends it: a network that drops packets looks like that.
    pub(crate) fn mutes(&self) {
        self.muted.send_replace(());
    }

    /// How many connections there are.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.carried.abort();
    }
}

async fn carry(listener: TcpListener, server: SocketAddr, muted: watch::Sender<()>, open: Arc<AtomicUsize>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let (mut muted, open) = (muted.subscribe(), Arc::clone(&open));
        tokio::spawn(async move {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            open.fetch_add(1, Ordering::Relaxed);
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                Ok(()) = muted.changed() => std::future::pending().await,
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
