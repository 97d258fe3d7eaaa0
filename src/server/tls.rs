//! Mutual TLS whose files are read again while it serves.
//!
//! Secret volumes swap a symlink, and their files change one after the other: what is compared is the content, and a
//! pair that does not belong together is left alone until it does. Connections that stand keep what they began with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum_server::tls_rustls::RustlsConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::telemetry::ExtenderMetrics;

/// Where certificate, key and the authority of the clients are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain of the server, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Authorities whose client certificates are let in, PEM; `None`: no certificate is asked for.
    pub client_authority: Option<PathBuf>,
    /// The files are read again this often.
    pub reload: Duration,
}

/// TLS as it is now.
#[derive(Debug)]
pub struct Tls {
    /// Whose it is, for people.
    of: &'static str,
    files: TlsFiles,
    contents: Contents,
    config: RustlsConfig,
}

#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authority: Option<Vec<u8>>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of every log.
        f.debug_struct("Contents").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// Errors: the file that cannot be used, and why.
    pub async fn new(of: &'static str, files: TlsFiles) -> anyhow::Result<Self> {
        let contents = Contents::read(&files).await?;
        let config = contents.config(&files)?;
        Ok(Self { of, files, contents, config: RustlsConfig::from_config(Arc::new(config)) })
    }

    /// The handle that the server reads with every new connection.
    #[must_use]
    pub fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Reads the files again and again until cancelled. What cannot be used leaves what serves as it is. `metrics`: where that is counted.
    pub async fn follow(mut self, metrics: Option<ExtenderMetrics>, cancel: CancellationToken) -> anyhow::Result<()> {
        let expires = |contents: &Contents| {
            if let Some(metrics) = &metrics {
                metrics.certificate_expiry.set(contents.expires());
            }
        };
        expires(&self.contents);
        let mut tick = tokio::time::interval(self.files.reload);
        let mut stated = None;
        loop {
            tokio::select! {
                () = cancel.cancelled() => return Ok(()),
                _ = tick.tick() => {}
            }
            match self.reload().await {
                Ok(false) => stated = None,
                Ok(true) => {
                    stated = None;
                    if let Some(metrics) = &metrics {
                        metrics.tls_reloads.inc();
                    }
                    expires(&self.contents);
                    info!("certificates of the {} were read again", self.of);
                }
                Err(problem) => {
                    let problem = format!("{problem:#}");
                    if let Some(metrics) = &metrics {
                        metrics.tls_reload_errors.inc();
                    }
                    // Once per problem: it stays until somebody mends the files.
                    if stated.as_ref() != Some(&problem) {
                        error!(
                            error = problem,
                            "certificates of the {} cannot be used; the earlier ones stay", self.of
                        );
                    }
                    stated = Some(problem);
                }
            }
        }
    }

    /// Whether anything changed.
    async fn reload(&mut self) -> anyhow::Result<bool> {
        let contents = Contents::read(&self.files).await?;
        if contents == self.contents {
            return Ok(false);
        }
        self.config.reload_from_config(Arc::new(contents.config(&self.files)?));
        self.contents = contents;
        Ok(true)
    }
}

impl Contents {
    async fn read(files: &TlsFiles) -> anyhow::Result<Self> {
        let read = |path: &Path| {
            let path = path.to_owned();
            async move { tokio::fs::read(&path).await.with_context(|| format!("read {}", path.display())) }
        };
        Ok(Self {
            certificate: read(&files.certificate).await?,
            key: read(&files.key).await?,
            client_authority: match &files.client_authority {
                Some(path) => Some(read(path).await?),
                None => None,
            },
        })
    }

    /// When the first certificate of the chain ends, in seconds since 1970; 0 if it does not say.
    fn expires(&self) -> i64 {
        let first = CertificateDer::pem_slice_iter(&self.certificate).next().and_then(Result::ok);
        let read = first.and_then(|der| {
            let certificate = Certificate::from_der(&der).ok()?;
            let ends = certificate.tbs_certificate.validity.not_after.to_unix_duration();
            i64::try_from(ends.as_secs()).ok()
        });
        read.unwrap_or_default()
    }

    fn config(&self, files: &TlsFiles) -> anyhow::Result<ServerConfig> {
        let chain = certificates(&self.certificate, &files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .with_context(|| format!("{}: no private key in PEM", files.key.display()))?;
        let config = ServerConfig::builder();
        let config = match (&self.client_authority, &files.client_authority) {
            (Some(authority), Some(path)) => config.with_client_cert_verifier(clients(authority, path)?),
            _ => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(chain, key).with_context(|| {
            format!("{} and {} do not belong together", files.certificate.display(), files.key.display())
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Who is let in by a certificate.
fn clients(authority: &[u8], path: &Path) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority, path)? {
        roots.add(certificate).with_context(|| format!("{}: not an authority", path.display()))?;
    }
    WebPkiClientVerifier::builder(Arc::new(roots))
        .build()
        .with_context(|| format!("{}: cannot be used", path.display()))
}

fn certificates(pem: &[u8], path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .with_context(|| format!("{}: not PEM", path.display()))?;
    anyhow::ensure!(!certificates.is_empty(), "{}: no certificate in PEM", path.display());
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_when_the_certificate_ends() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["muster".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let certificate = parameters.self_signed(&key).unwrap().pem().into_bytes();
        let contents = |certificate: Vec<u8>| Contents { certificate, key: Vec::new(), client_authority: None };
        let expected: jiff::Timestamp = "2031-02-03T00:00:00Z".parse().unwrap();
        assert_eq!(contents(certificate).expires(), expected.as_second());
        assert_eq!(contents(b"nothing".to_vec()).expires(), 0);
    }
}
