//! The extender's port under callers that are wrong, slow, many or large, and while its certificates change.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use muster::cluster::{Store, StoreOptions};
use muster::extender::{Barrier, BarrierOptions, Extender, Limits, router};
use muster::server::{Tls, TlsFiles, serve};
use muster::telemetry::Metrics;
use muster::testbed::eventually;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const DEADLINE: Duration = Duration::from_secs(60);

/// A served extender that knows an empty cluster.
struct Served {
    address: SocketAddr,
    cancel: CancellationToken,
    metrics: Arc<Metrics>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

async fn served(tls: Option<TlsFiles>) -> Served {
    served_within(tls, Limits::default()).await
}

async fn served_within(tls: Option<TlsFiles>, limits: Limits) -> Served {
    served_from(tls, limits, &[], Duration::from_secs(3600)).await
}

/// Every one of `kinds` has delivered its list, and is not trusted for longer than `max_age`.
async fn served_from(tls: Option<TlsFiles>, limits: Limits, kinds: &[&'static str], max_age: Duration) -> Served {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut store, cluster) = Store::new(
        StoreOptions {
            scheduler_names: vec!["muster".to_owned()],
            provisioner_scheduler_names: Vec::new(),
            accelerators: Vec::new(),
            max_age,
        },
        kinds,
        &[],
    );
    kinds.iter().for_each(|kind| store.synced(kind));
    store.publish();
    // Nobody answers there: nothing in these tests writes.
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    let metrics = Metrics::shared();
    let barrier = Arc::new(Barrier::new(
        client,
        cluster.clone(),
        BarrierOptions { hold: Duration::from_secs(55), limit: Duration::from_secs(58), parallel: 4 },
        metrics.gangs.clone(),
        TaskTracker::new(),
    ));
    let extender = Arc::new(Extender::new(
        cluster,
        barrier,
        Arc::default(),
        metrics.extender.clone(),
        vec!["muster".to_owned()],
        limits,
    ));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cancel = CancellationToken::new();
    let tls = match tls {
        Some(files) => Some(Tls::new("extender", files).await.unwrap()),
        None => None,
    };
    tokio::spawn(serve(listener, router(extender), tls.as_ref().map(Tls::config), cancel.clone()));
    if let Some(tls) = tls {
        tokio::spawn(tls.follow(Some(metrics.extender.clone()), cancel.clone()));
    }
    Served { address, cancel, metrics }
}

/// One request on a connection that stays open; the body of the answer.
async fn call<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, path: &str, body: &[u8]) -> Result<Value, String> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: muster\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
    stream.write_all(body).await.map_err(|error| error.to_string())?;
    stream.flush().await.map_err(|error| error.to_string())?;
    answer(stream).await
}

async fn answer<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Value, String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            if !head.starts_with("HTTP/1.1 200") {
                return Err(head.to_owned());
            }
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(usize::MAX) {
                return serde_json::from_str(body).map_err(|error| error.to_string());
            }
        }
        let mut part = [0; 4096];
        match stream.read(&mut part).await.map_err(|error| error.to_string())? {
            0 => return Err(format!("the connection ended after {text:?}")),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

fn filter_body(nodes: &[&str]) -> Vec<u8> {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}});
    json!({"Pod": pod, "Nodes": null, "NodeNames": nodes}).to_string().into_bytes()
}

async fn filters<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Result<(), String> {
    let answer = call(stream, "/v1/sync/filter", &filter_body(&["n1", "n2"])).await?;
    if answer["NodeNames"] == json!(["n1", "n2"]) { Ok(()) } else { Err(answer.to_string()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_fifty_mebibytes_is_answered_with_an_error_and_harms_nobody() {
    let served = served(None).await;
    let large = vec![b' '; 50 << 20];
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let answer = call(&mut stream, "/v1/sync/filter", &large).await.unwrap();
    let error = answer["Error"].as_str().unwrap();
    assert!(error.contains("larger than 16777216 bytes") || error.contains("in time"), "{error}");
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    filters(&mut stream).await.unwrap();
    let answer = call(&mut stream, "/v1/bind/bind", &vec![b' '; 65 << 10]).await.unwrap();
    assert_eq!(answer["Error"], "the body is larger than 65536 bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_wait_are_answered_at_a_pace_and_single_pods_at_once() {
    let burst = NonZeroU32::new(2).unwrap();
    let limits = Limits { waiting_burst: burst, waiting_every: Duration::from_secs(3600), ..Limits::default() };
    let served = served_within(None, limits).await;
    let metadata = json!({"name": "m", "namespace": "ns", "uid": "m", "annotations": {"muster.dev/gang": "g"}});
    let member = json!({"metadata": metadata, "spec": {"containers": [], "schedulerName": "muster"}});
    let body = json!({"Pod": member, "Nodes": null, "NodeNames": ["n1"]}).to_string().into_bytes();
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let mut paused = Vec::new();
    for _ in 0..4 {
        let answer = call(&mut stream, "/v1/sync/filter", &body).await.unwrap();
        assert_eq!(answer["FailedAndUnresolvableNodes"], json!({"n1": "waiting for gang"}));
        filters(&mut stream).await.unwrap();
        paused.push(served.metrics.extender.paused.get());
    }
    assert_eq!(paused, [0, 0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_watch_is_too_old_a_bind_is_refused_as_filter_is() {
    let served = served_from(None, Limits::default(), &["pods"], Duration::ZERO).await;
    let address = served.address;
    eventually(DEADLINE, "filter to refuse to answer", || async move {
        let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let answer = call(&mut stream, "/v1/sync/filter", &filter_body(&["n1"])).await?;
        Ok::<_, String>((answer["Error"] == "the watch of pods is too old").then_some(()))
    })
    .await
    .unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let bind = json!({"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}).to_string();
    let answer = call(&mut stream, "/v1/bind/bind", bind.as_bytes()).await.unwrap();
    assert_eq!(answer["Error"], "the watch of pods is too old");
}

/// Callers that never finish.
const SLOW: usize = 10_000;

/// Connections for which this process may have both ends open, once it has asked for all that it may have.
#[expect(clippy::print_stderr, reason = "says what the machine did not allow")]
fn connections() -> usize {
    let open = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) => setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_or(1024, |()| hard),
        Err(_) => 1024,
    };
    // Other tests of this process need some too.
    let callers = usize::try_from(open).unwrap_or(usize::MAX).saturating_sub(600) / 2;
    if callers < SLOW {
        eprintln!("{callers} slow callers instead of {SLOW}: this machine allows {open} open files");
    }
    callers.min(SLOW)
}

/// Resident memory of this process in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_callers_that_never_finish_do_not_keep_others_from_an_answer() {
    let served = served(None).await;
    let before = memory();
    let mut slow = Vec::new();
    for number in 0..connections() {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let begun: &[u8] = match number % 3 {
            // Half a head; a head without its body; nothing at all.
            0 => b"POST /v1/sync/filter HTTP/1.1\r\nHost: mus",
            1 => b"POST /v1/sync/filter HTTP/1.1\r\nHost: muster\r\nContent-Length: 16000000\r\n\r\n{\"Pod\":",
            _ => b"",
        };
        stream.write_all(begun).await.unwrap();
        slow.push(stream);
    }
    for _ in 0..50 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        filters(&mut stream).await.unwrap();
    }
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let bind = json!({"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"}).to_string();
    let bound = call(&mut stream, "/v1/bind/bind", bind.as_bytes()).await.unwrap();
    assert_eq!(bound["Error"], "the pod or its plan has not been seen yet", "a bind is judged, not shed");
    // Both ends live in this process; what a caller announces is not set aside for it.
    let callers = u64::try_from(slow.len()).unwrap();
    let grown = memory().saturating_sub(before);
    assert!(grown <= 64 + callers * 48 / 1024, "{grown} MiB for {callers} callers");
    // Who sends half a body is informed of it.
    let reported = answer(&mut slow[1]).await.unwrap();
    assert_eq!(reported["Error"], "the body did not arrive in time");
}

// ---- Mutual TLS ----------------------------------------------------------------------------------------------------

struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }

    /// Certificate and key, PEM.
    fn issue(&self, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn client(&self, trusts: &Self) -> ClientConfig {
        let (certificate, key) = self.issue(ExtendedKeyUsagePurpose::ClientAuth);
        ClientConfig::builder()
            .with_root_certificates(trusts.roots())
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap()
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }
}

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("muster-serving-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.0.join("tls.crt"),
            key: self.0.join("tls.key"),
            client_authority: Some(self.0.join("ca.crt")),
            reload: Duration::from_millis(20),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

async fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let name = ServerName::from(address.ip());
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(|error| error.to_string())
}

async fn secured(folder: &Folder, authority: &Authority) -> Served {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let files = folder.files();
    let (certificate, key) = authority.issue(ExtendedKeyUsagePurpose::ServerAuth);
    write(&files.certificate, &certificate);
    write(&files.key, &key);
    write(files.client_authority.as_ref().unwrap(), &authority.pem);
    served(Some(files)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_clients_with_a_certificate_of_the_right_authority_are_let_in() {
    let (folder, authority, stranger) = (Folder::new(), Authority::new(), Authority::new());
    let served = secured(&folder, &authority).await;

    let mut stream = connect(served.address, &Arc::new(authority.client(&authority))).await.unwrap();
    filters(&mut stream).await.unwrap();

    let wrong = Arc::new(stranger.client(&authority));
    let anonymous = Arc::new(ClientConfig::builder().with_root_certificates(authority.roots()).with_no_client_auth());
    for config in [wrong, anonymous] {
        // The client's part of the handshake may be done before the server has judged its certificate.
        let outcome = match connect(served.address, &config).await {
            Ok(mut stream) => filters(&mut stream).await,
            Err(error) => Err(error),
        };
        assert!(outcome.is_err(), "let in");
    }
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    assert!(filters(&mut plain).await.is_err(), "plain HTTP is not answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_under_load_and_no_call_fails() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let served = secured(&folder, &authority).await;
    let (address, files) = (served.address, folder.files());
    let client = Arc::new(authority.client(&authority));
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (client, stop, calls) = (Arc::clone(&client), Arc::clone(&stop), Arc::clone(&calls));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = connect(address, &client).await?;
                    filters(&mut stream).await?;
                    filters(&mut stream).await?;
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    let mut standing = connect(address, &client).await.unwrap();
    for round in 0..5 {
        let (certificate, key) = authority.issue(ExtendedKeyUsagePurpose::ServerAuth);
        // A moment in which the files do not belong together, long enough to be read so.
        write(&files.certificate, &certificate);
        let before = calls.load(Ordering::Relaxed);
        let (calls, client) = (&calls, &client);
        eventually(DEADLINE, "calls while the pair is broken", || async move {
            Ok::<_, String>((calls.load(Ordering::Relaxed) > before + 5).then_some(()))
        })
        .await
        .unwrap();
        write(&files.key, &key);
        let expected = &CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        eventually(DEADLINE, format!("certificate {round}"), || async move {
            let stream = connect(address, client).await?;
            let seen = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            Ok::<_, String>((seen == Some(expected)).then_some(()))
        })
        .await
        .unwrap();
        filters(&mut standing).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_another_authority_are_let_in_once_its_file_changed_alone() {
    let (folder, authority, next) = (Folder::new(), Authority::new(), Authority::new());
    let served = secured(&folder, &authority).await;
    // It trusts the server, whose certificate stays the same.
    let client = &Arc::new(next.client(&authority));
    write(folder.files().client_authority.as_ref().unwrap(), &next.pem);
    let address = served.address;
    eventually(DEADLINE, "clients of the next authority to be let in", || async move {
        let Ok(mut stream) = connect(address, client).await else { return Ok::<_, String>(None) };
        Ok(filters(&mut stream).await.ok())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (folder, authority) = (Folder::new(), Authority::new());
    let files = folder.files();
    let problem = |files: TlsFiles| async move { format!("{:#}", Tls::new("extender", files).await.unwrap_err()) };
    assert!(problem(files.clone()).await.contains("read "), "a missing file");
    let (certificate, key) = authority.issue(ExtendedKeyUsagePurpose::ServerAuth);
    let (_, other) = authority.issue(ExtendedKeyUsagePurpose::ServerAuth);
    write(&files.certificate, &certificate);
    write(&files.key, &other);
    write(files.client_authority.as_ref().unwrap(), "not PEM");
    assert!(problem(files.clone()).await.contains("ca.crt: no certificate in PEM"));
    write(files.client_authority.as_ref().unwrap(), &authority.pem);
    assert!(problem(files.clone()).await.contains("do not belong together"));
    write(&files.key, &key);
    Tls::new("extender", files).await.unwrap();
}

#[test]
fn a_page_that_anybody_could_read_ends_the_start_with_the_remedy() {
    let file = std::env::temp_dir().join(format!("muster-open-page-{}.yaml", std::process::id()));
    std::fs::write(&file, "page: {listen: '0.0.0.0:7070'}\n").unwrap();
    let ended =
        std::process::Command::new(env!("CARGO_BIN_EXE_muster")).args(["serve", "--config"]).arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let ended = ended.unwrap();
    let stated = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{stated}");
    for word in ["page.listen", "0.0.0.0:7070", "port-forward", "page.tls"] {
        assert!(stated.contains(word), "{word}: {stated}");
    }
}
