//! Which cluster a command means, and which namespace: the same flags as kubectl's for every command.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap_complete::ArgValueCompleter;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use muster_replay::explain::ALL_NAMESPACES;

use super::{Unusable, completion};
use crate::client::{Patience, bounded};

/// Names in a message.
const SHOWN: usize = 10;

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
    /// How the cluster is reached.
    ///
    /// Errors: no kubeconfig and no service account; a context that is not there, with those that are.
    pub async fn config(&self) -> anyhow::Result<Config> {
        if self.kubeconfig.is_none() && self.context.is_none() {
            return Config::infer().await.context("connect to the cluster (kubeconfig or service account)");
        }
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let kubeconfig = read.map_err(|error| Unusable(format!("--kubeconfig: {error}")))?;
        if let Some(context) = &self.context {
            let names: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
            if !names.contains(&context.as_str()) {
                return Err(Unusable(format!("--context: {}", no_such("context", context, names))).into());
            }
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(kubeconfig, &options).await.context("read the kubeconfig")
    }

    /// A client whose calls all end, and the namespace of the context.
    ///
    /// Errors: those of [`Cluster::config`].
    pub async fn client(&self) -> anyhow::Result<(Client, String)> {
        let config = self.config().await?;
        let namespace = config.default_namespace.clone();
        Ok((bounded(config, Patience::default()).context("connect to the cluster")?, namespace))
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

/// One line: what is not there, and what is, the likest first.
fn no_such(what: &str, name: &str, mut names: Vec<&str>) -> String {
    names.sort_unstable();
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match (names.is_empty(), more) {
        (true, _) => format!("there is no {what} {name}, and no other"),
        (false, 0) => format!("there is no {what} {name}; there are {shown}"),
        (false, more) => format!("there is no {what} {name}; there are {shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_there_is_answered_in_one_line_with_those_that_are() {
        assert_eq!(no_such("context", "c", vec!["b", "a"]), "there is no context c; there are a, b");
        assert_eq!(no_such("context", "c", Vec::new()), "there is no context c, and no other");
        let many = ["n"; 12].to_vec();
        assert!(no_such("namespace", "x", many).ends_with(" and 2 more"));
    }

    #[test]
    fn the_namespace_is_the_contexts_unless_another_or_all_are_named() {
        let named = Scope { namespace: Some("ml".to_owned()), all_namespaces: false };
        let all = Scope { namespace: None, all_namespaces: true };
        assert_eq!(Scope::default().namespace("of-the-context"), "of-the-context");
        assert_eq!(named.namespace("of-the-context"), "ml");
        assert_eq!(all.namespace("of-the-context"), ALL_NAMESPACES);
    }
}
