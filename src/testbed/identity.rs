//! Who talks to the API server: tokens, the serving certificate, kubeconfig files and clients.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::testbed::error::TestbedError;

/// A user of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// May do everything: tests, kwok.
    Admin,
    /// `muster serve`: user and groups of its ServiceAccount, with the permissions of the shipped RBAC.
    Muster,
    /// kube-scheduler, as the cluster's own roles know it.
    Scheduler,
    /// kube-controller-manager, with the permissions of all its controllers in one.
    ControllerManager,
}

impl Identity {
    /// Every identity there is.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Muster, Self::Scheduler, Self::ControllerManager];

    /// The name of its kubeconfig file, without the ending.
    fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Muster => "muster",
            Self::Scheduler => "scheduler",
            Self::ControllerManager => "controller-manager",
        }
    }

    /// The user's name as the API server sees it, e.g. in the audit log.
    pub fn user(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Muster => "system:serviceaccount:muster-system:muster",
            Self::Scheduler => "system:kube-scheduler",
            Self::ControllerManager => "system:kube-controller-manager",
        }
    }

    /// The user's groups; `system:authenticated` is added by the API server.
    fn groups(self) -> &'static str {
        match self {
            // One user for all controllers: the roles are cut per controller and its own is not enough.
            Self::Admin | Self::ControllerManager => "system:masters",
            Self::Muster => "system:serviceaccounts,system:serviceaccounts:muster-system",
            Self::Scheduler => "",
        }
    }
}

/// Keys, certificates and tokens of one cluster.
#[derive(Debug)]
pub(super) struct Credentials {
    folder: PathBuf,
    authority_der: Vec<u8>,
    tokens: BTreeMap<Identity, String>,
}

impl Credentials {
    /// Makes new ones and writes the files that kube-apiserver reads into `folder`.
    pub(super) fn create(folder: &Path) -> Result<Self, TestbedError> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, "muster testbed authority");
        let authority_certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::from_params(&authority, &authority_key);

        let serving_key = KeyPair::generate()?;
        let mut serving = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        serving.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        let serving_certificate = serving.signed_by(&serving_key, &issuer)?;

        let account_key = KeyPair::generate()?;

        let mut tokens = BTreeMap::new();
        let mut table = String::new();
        for identity in Identity::ALL {
            let token = random_token()?;
            let (user, groups) = (identity.user(), identity.groups());
            // Writing to a String cannot fail.
            let _ = writeln!(table, "{token},{user},{},\"{groups}\"", identity.name());
            tokens.insert(identity, token);
        }
        for (name, text) in [
            ("ca.crt", authority_certificate.pem()),
            ("serving.crt", serving_certificate.pem()),
            ("serving.key", serving_key.serialize_pem()),
            ("service-account.key", account_key.serialize_pem()),
            ("service-account.pub", account_key.public_key_pem()),
            ("tokens.csv", table),
        ] {
            write_private(&folder.join(name), &text)?;
        }
        Ok(Self { folder: folder.to_owned(), authority_der: authority_certificate.der().to_vec(), tokens })
    }

    /// Writes a kubeconfig file for each identity.
    pub(super) fn write_kubeconfigs(&self, server: SocketAddr) -> Result<(), TestbedError> {
        for (identity, token) in &self.tokens {
            // JSON is YAML.
            let text = serde_json::json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "testbed", "cluster": {
                    "server": format!("https://{server}"),
                    "certificate-authority": self.folder.join("ca.crt"),
                }}],
                "users": [{"name": identity.name(), "user": {"token": token}}],
                "contexts": [{"name": "testbed", "context": {
                    "cluster": "testbed", "user": identity.name(), "namespace": "default",
                }}],
                "current-context": "testbed",
            })
            .to_string();
            write_private(&self.kubeconfig(*identity), &text)?;
        }
        Ok(())
    }

    /// The kubeconfig file of an identity.
    pub(super) fn kubeconfig(&self, identity: Identity) -> PathBuf {
        self.folder.join(format!("{}.kubeconfig", identity.name()))
    }

    /// How to reach a server with our certificate as this identity.
    pub(super) fn client_config(&self, identity: Identity, server: SocketAddr) -> kube::Config {
        let address = format!("https://{server}");
        let mut config = kube::Config::new(address.parse().expect("https:// and a socket address are a URI"));
        config.root_cert = Some(vec![self.authority_der.clone()]);
        config.auth_info.token = self.tokens.get(&identity).map(|token| token.clone().into());
        config
    }
}

/// Writes a file that only this user can read.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), TestbedError> {
    let write = || {
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(text.as_bytes())
    };
    write().map_err(TestbedError::file("write", path))
}

/// 128 random bits in hexadecimal digits.
fn random_token() -> Result<String, TestbedError> {
    let source = "/dev/urandom";
    let mut bytes = [0_u8; 16];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(TestbedError::file("read", source))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
