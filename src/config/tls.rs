//! Certificate, key and the authority of the clients, as written.

use std::path::PathBuf;

use serde::Deserialize;

use super::{ConfigError, duration};
use crate::server::TlsFiles;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTls {
    cert_file: PathBuf,
    key_file: PathBuf,
    client_ca_file: Option<PathBuf>,
    #[serde(default = "every_minute")]
    reload: String,
}

fn every_minute() -> String {
    "60s".to_owned()
}

impl RawTls {
    /// The files of `extender.tls` or `page.tls`, whichever `key` is.
    pub(super) fn files(self, key: &str) -> Result<TlsFiles, ConfigError> {
        Ok(TlsFiles {
            certificate: self.cert_file,
            key: self.key_file,
            client_authority: self.client_ca_file,
            reload: duration(format!("{key}.reload"), &self.reload)?.unsigned_abs(),
        })
    }
}
