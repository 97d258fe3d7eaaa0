//! The page behind TLS is for whom the API server knows by a token, and lets in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::PathBuf;

use http::{Method, Request};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::PostParams;
use kube::{Api, Client};
use muster::http::PAGE_PATH;
use muster::testbed::cluster::free_address;
use muster::testbed::{Identity, Stack, eventually};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::support::{DEADLINE, options, stack};

/// Certificate and key of the page in a folder that goes with the test.
struct Served {
    folder: PathBuf,
    der: Vec<u8>,
}

impl Served {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("muster-page-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
        Self { folder, der: certificate.der().to_vec() }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn create<K>(stack: &Stack, object: &Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let api: Api<K> = Api::all(stack.admin().unwrap());
    api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await.unwrap();
}

/// A token of a new ServiceAccount.
async fn token(stack: &Stack, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(stack.admin().unwrap(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let asked = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let made: TokenRequest = accounts.create_subresource("token", name, &PostParams::default(), &asked).await.unwrap();
    made.status.unwrap().token
}

fn bound(name: &str, role: &str, subject: &Value) -> Value {
    json!({
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_behind_tls_is_for_tokens_that_the_api_server_knows_and_lets_in() {
    let Some(mut options) = options().await else { return };
    let served = Served::new();
    let address = free_address().unwrap();
    let file = |name: &str| served.folder.join(name);
    options.config = json!({
        "page": {"listen": address, "tls": {"certFile": file("tls.crt"), "keyFile": file("tls.key")}},
    });
    // A kube-scheduler may ask about tokens, and so may Muster beside it: here the role that the page names has to be enough.
    options.without = vec!["rbac-scheduler.yaml"];
    let stack = stack(options, "ml").await;
    let client = |token: Option<&str>| {
        let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = Some(vec![served.der.clone()]);
        config.auth_info.token = token.map(|token| token.to_owned().into());
        Client::try_from(config).unwrap()
    };
    let ask = async |token: Option<&str>, method: Method| {
        let request = Request::builder().method(method).uri("/").body(Vec::new()).unwrap();
        match client(token).request_text(request).await {
            Ok(text) => (200, text),
            Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
            Err(error) => panic!("{error}"),
        }
    };
    let get = async |token: Option<&str>| ask(token, Method::GET).await.0;
    let (reader, other) = (token(&stack, "reader").await, token(&stack, "other").await);

    assert_eq!(get(None).await, 401);
    let muster = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": Identity::Muster.user()});
    create::<ClusterRoleBinding>(&stack, &bound("muster-page", "system:auth-delegator", &muster)).await;
    let role =
        json!({"metadata": {"name": "page-reader"}, "rules": [{"nonResourceURLs": [PAGE_PATH], "verbs": ["get"]}]});
    create::<ClusterRole>(&stack, &role).await;
    let account = json!({"kind": "ServiceAccount", "name": "reader", "namespace": "default"});
    create::<ClusterRoleBinding>(&stack, &bound("page-reader", "page-reader", &account)).await;
    // The authoriser learns of it by a watch, and an answer counts for some seconds.
    let (get_of, reader_of) = (&get, reader.as_str());
    eventually(DEADLINE, "the reader to be let in", || async move {
        let code = get_of(Some(reader_of)).await;
        if code == 200 { Ok(Some(())) } else { Err(format!("answered with {code}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(20)));

    let (code, page) = ask(Some(&reader), Method::GET).await;
    assert!(code == 200 && page.contains("<html"), "{page}");
    assert_eq!(ask(Some(&reader), Method::POST).await.0, 405);
    assert_eq!(get(Some("nobody's")).await, 401);
    let (code, why) = ask(Some(&other), Method::GET).await;
    assert_eq!(code, 403);
    assert!(why.contains("system:serviceaccount:default:other") && why.contains(PAGE_PATH), "{why}");

    let bindings: Api<ClusterRoleBinding> = Api::all(stack.admin().unwrap());
    bindings.delete("page-reader", &Default::default()).await.unwrap();
    eventually(DEADLINE, "the reader to be refused", || async move {
        let code = get_of(Some(reader_of)).await;
        if code == 403 { Ok(Some(())) } else { Err(format!("answered with {code}")) }
    })
    .await
    .unwrap();
}
