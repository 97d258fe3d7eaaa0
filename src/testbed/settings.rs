//! The configuration files of the components: derived from the shipped ones, or embedded here.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::testbed::error::TestbedError;

/// kwok's stages: how it plays the kubelets.
pub(super) const STAGES: &str = include_str!("stages.yaml");

/// What kube-apiserver writes into its audit log.
pub(super) const AUDIT_POLICY: &str = include_str!("audit-policy.yaml");

/// Reads every document of a YAML file; empty documents are passed over.
///
/// # Errors
/// [`TestbedError::File`], [`TestbedError::Yaml`].
pub fn read_yaml(path: &Path) -> Result<Vec<Value>, TestbedError> {
    let text = std::fs::read_to_string(path).map_err(TestbedError::file("read", path))?;
    parse_yaml(path, &text)
}

/// Like [`read_yaml`], for a text that comes from `path`.
pub(super) fn parse_yaml(path: &Path, text: &str) -> Result<Vec<Value>, TestbedError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| TestbedError::Yaml { path: path.to_owned(), message: error.to_string() })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// What the testbed fills into a shipped KubeSchedulerConfiguration.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchedulerSettings<'a> {
    pub(super) kubeconfig: &'a Path,
    /// Replaces the host and port of every extender; `None` leaves the extenders out.
    pub(super) extender: Option<SocketAddr>,
    pub(super) leader_elect: bool,
    pub(super) qps: u32,
    /// `tlsConfig` of every extender, which is then called with `https`.
    pub(super) tls: Option<&'a Value>,
}

/// A shipped KubeSchedulerConfiguration with addresses, credentials and client limits filled in,
/// as JSON, which is YAML. Verbs, weights, timeouts and profiles stay as shipped.
///
/// # Errors
/// [`TestbedError::Malformed`] when an extender has no `urlPrefix` with a host.
pub(super) fn scheduler_configuration(
    mut shipped: Value,
    settings: SchedulerSettings<'_>,
) -> Result<String, TestbedError> {
    let malformed = |problem: &str| TestbedError::Malformed {
        what: "KubeSchedulerConfiguration".to_owned(),
        problem: problem.to_owned(),
    };
    let object = shipped.as_object_mut().ok_or_else(|| malformed("not a mapping"))?;
    if !settings.leader_elect {
        object.insert("leaderElection".to_owned(), json!({"leaderElect": false}));
    }
    object.insert(
        "clientConnection".to_owned(),
        json!({
            "kubeconfig": settings.kubeconfig,
            "qps": settings.qps,
            "burst": settings.qps.saturating_mul(2),
        }),
    );
    match settings.extender {
        None => {
            object.remove("extenders");
        }
        Some(address) => {
            let extenders =
                object.get_mut("extenders").and_then(Value::as_array_mut).ok_or_else(|| malformed("no extenders"))?;
            for extender in extenders {
                let prefix = extender
                    .get("urlPrefix")
                    .and_then(Value::as_str)
                    .and_then(|prefix| prefix.split_once("://"))
                    .ok_or_else(|| malformed("an extender without a urlPrefix"))?;
                let (scheme, rest) = prefix;
                let path = rest.find('/').map_or("", |start| &rest[start..]);
                let scheme = if settings.tls.is_some() { "https" } else { scheme };
                extender["urlPrefix"] = Value::String(format!("{scheme}://{address}{path}"));
                if let Some(tls) = settings.tls {
                    extender["tlsConfig"] = tls.clone();
                }
            }
        }
    }
    Ok(shipped.to_string())
}

#[cfg(test)]
mod tests {

    use super::*;

    fn shipped() -> Value {
        let path = crate::testbed::repository().join("scheduler-config/own-scheduler.yaml");
        read_yaml(&path).unwrap().remove(0)
    }

    fn settings(extender: Option<SocketAddr>) -> SchedulerSettings<'static> {
        SchedulerSettings { kubeconfig: Path::new("/k"), extender, leader_elect: false, qps: 1000, tls: None }
    }

    #[test]
    fn only_addresses_credentials_and_client_limits_of_the_shipped_configuration_change() {
        let text = scheduler_configuration(shipped(), settings(Some("127.0.0.1:4321".parse().unwrap()))).unwrap();
        let mut changed: Value = serde_json::from_str(&text).unwrap();
        let mut original = shipped();
        assert_eq!(changed["extenders"][0]["urlPrefix"], "http://127.0.0.1:4321/v1/sync");
        assert_eq!(changed["extenders"][1]["urlPrefix"], "http://127.0.0.1:4321/v1/bind");
        for configuration in [&mut changed, &mut original] {
            for extender in configuration["extenders"].as_array_mut().unwrap() {
                extender["urlPrefix"] = Value::Null;
            }
            for field in ["leaderElection", "clientConnection"] {
                configuration.as_object_mut().unwrap().remove(field);
            }
        }
        assert_eq!(changed, original);
    }

    #[test]
    fn without_an_extender_address_the_scheduler_runs_alone() {
        let text = scheduler_configuration(shipped(), settings(None)).unwrap();
        let configuration: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(configuration.get("extenders"), None);
        assert_eq!(configuration["leaderElection"]["leaderElect"], false);
    }

    #[test]
    fn an_extender_without_an_address_is_refused() {
        let broken = json!({"extenders": [{"filterVerb": "filter"}]});
        let outcome = scheduler_configuration(broken, settings(Some("127.0.0.1:1".parse().unwrap())));
        assert!(matches!(outcome, Err(TestbedError::Malformed { .. })));
    }

    #[test]
    fn the_embedded_files_are_yaml() {
        assert_eq!(parse_yaml(Path::new("stages.yaml"), STAGES).unwrap().len(), 10);
        assert_eq!(parse_yaml(Path::new("audit-policy.yaml"), AUDIT_POLICY).unwrap().len(), 1);
    }
}
