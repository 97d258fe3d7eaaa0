//! Where the page is, and who may see it.

use std::net::SocketAddr;

use serde::Deserialize;

use super::tls::RawTls;
use super::{ConfigError, address, value};
use crate::server::TlsFiles;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawPage {
    listen: Option<String>,
    tls: Option<RawTls>,
}

/// Where the page is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageAt {
    /// Address.
    pub address: SocketAddr,
    /// Behind TLS; without an authority of the clients they bring a token of the API server. `None`: on loopback, for whoever can
    /// reach that.
    pub tls: Option<TlsFiles>,
}

/// The page names everything that runs: it is for whoever may forward ports to this Pod, or comes by TLS and is known.
pub(super) fn page(raw: RawPage) -> Result<Option<PageAt>, ConfigError> {
    const KEY: &str = "page.listen";
    let Some(text) = raw.listen else {
        let alone = raw.tls.is_some().then(|| value("page.tls", "is for a page, and page.listen says where that is"));
        return alone.map_or(Ok(None), Err);
    };
    let address = address(KEY, &text)?;
    let tls = raw.tls.map(|tls| tls.files("page.tls")).transpose()?;
    if tls.is_some() || address.ip().is_loopback() {
        return Ok(Some(PageAt { address, tls }));
    }
    let instead = SocketAddr::from(([127, 0, 0, 1], address.port()));
    let why = format!(
        "{text} is not loopback: use {instead}, and kubectl port-forward to reach it, or page.tls (certFile, keyFile), behind which a \
         token of the API server is asked for, or a certificate with clientCaFile"
    );
    Err(value(KEY, why))
}
