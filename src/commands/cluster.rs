//! Which cluster a command means, and which namespace: the same flags as kubectl's for every command.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap_complete::ArgValueCompleter;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use muster_replay::explain::ALL_NAMESPACES;

use super::kubeconfig::{self, no_such};
use super::{Unusable, completion};

/// Which cluster is meant.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct Cluster {
    /// The kubeconfig; without one that of KUBECONFIG, of the home folder, or the service account of the Pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without one the current context.
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(completion::contexts))]
    pub context: Option<String>,
}

/// Whose gangs and pods are meant.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct Scope {
    /// Namespace.
    #[arg(short, long, add = ArgValueCompleter::new(completion::namespaces))]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

impl Cluster {
    /// A client whose calls all end, and the namespace of the context.
    ///
    /// Errors: no kubeconfig and no service account; a context that is not there, with those that are.
    pub async fn client(&self) -> anyhow::Result<(Client, String)> {
        kubeconfig::client(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }
}

impl Scope {
    /// The namespace that is asked for, where `default` is that of the context.
    #[must_use]
    pub fn namespace(&self, default: &str) -> String {
        match (&self.namespace, self.all_namespaces) {
            (_, true) => ALL_NAMESPACES.to_owned(),
            (Some(namespace), false) => namespace.clone(),
            (None, false) => default.to_owned(),
        }
    }

    /// The namespace, if one is named.
    #[must_use]
    pub fn named(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Refuses a namespace that is named and is not there. Where namespaces may not be read, it is taken to be there.
    ///
    /// Errors: no such namespace, with those that are there.
    pub async fn check(&self, client: &Client) -> anyhow::Result<()> {
        let Some(namespace) = &self.namespace else { return Ok(()) };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        if !matches!(namespaces.get_opt(namespace).await, Ok(None)) {
            return Ok(());
        }
        let all = namespaces.list(&ListParams::default()).await.context("list namespaces")?;
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        Err(Unusable(no_such("namespace", namespace, names.iter().map(String::as_str).collect())).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_the_contexts_unless_another_or_all_are_named() {
        let named = Scope { namespace: Some("ml".to_owned()), all_namespaces: false };
        let all = Scope { namespace: None, all_namespaces: true };
        assert_eq!(Scope::default().namespace("of-the-context"), "of-the-context");
        assert_eq!(named.namespace("of-the-context"), "ml");
        assert_eq!(all.namespace("of-the-context"), ALL_NAMESPACES);
    }
}
