//! A client of the cluster that a kubeconfig and a context name.

use std::path::Path;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::Unusable;
use crate::client::{Patience, bounded};

/// Names in a message.
const SHOWN: usize = 10;

/// A client whose calls all end, and the namespace of the context.
///
/// Errors: no kubeconfig and no service account; a context that is not there, with those that are.
pub(super) async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<(Client, String)> {
    let config = config(kubeconfig, context).await?;
    let namespace = config.default_namespace.clone();
    Ok((bounded(config, Patience::default()).context("connect to the cluster")?, namespace))
}

async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    if kubeconfig.is_none() && context.is_none() {
        return Config::infer().await.map_err(|error| {
            // Inside a Pod the other half is at fault, which nobody who types a command is in.
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            anyhow::anyhow!(
                "no cluster: {why}; name a kubeconfig with --kubeconfig or KUBECONFIG, or look at a recording where the \
                 command takes --filename"
            )
        });
    }
    let read = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let kubeconfig = read.map_err(|error| Unusable(format!("--kubeconfig: {error}")))?;
    if let Some(context) = context {
        let names: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
        if !names.contains(&context) {
            return Err(Unusable(format!("--context: {}", no_such("context", context, names))).into());
        }
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.context("read the kubeconfig")
}

/// One line: what is not there, and what is, the likest first.
pub(super) fn no_such(what: &str, name: &str, mut names: Vec<&str>) -> String {
    names.sort_unstable();
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match (names.is_empty(), more) {
        (true, _) => format!("there is no {what} {name}, and no other"),
        (false, 0) if names.len() == 1 => format!("there is no {what} {name}; there is {shown}"),
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
        assert_eq!(no_such("context", "c", vec!["a"]), "there is no context c; there is a");
        assert_eq!(no_such("context", "c", Vec::new()), "there is no context c, and no other");
        let many = ["n"; 12].to_vec();
        assert!(no_such("namespace", "x", many).ends_with(" and 2 more"));
    }
}
