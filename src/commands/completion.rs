//! `muster completion`, the names that a shell completes, and `kubectl_complete-muster`.
//!
//! The shells ask the binary itself: `COMPLETE=<shell> muster -- <words>` answers with candidates, so that the names of what
//! lives in the cluster are among them.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Command, ValueEnum};
use clap_complete::CompletionCandidate;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::{Api, Resource, ResourceExt};
use muster_api::crd::Gang;
use muster_core::reason::guide;
use serde::de::DeserializeOwned;

use super::kubeconfig;

/// The variable that has the binary answer a shell.
pub const VARIABLE: &str = "COMPLETE";
/// Longest wait for a cluster: a person sits before it.
const WAIT: Duration = Duration::from_secs(2);
/// Names asked for.
const MOST: u32 = 500;
/// What kubectl is answered at the end: complete no file names. Source: Cobra's `ShellCompDirectiveNoFileComp`.
const NO_FILES: &str = ":4";

/// Arguments of `muster completion`.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// `source <(muster completion bash)`
    Bash,
    /// `source <(muster completion zsh)`
    Zsh,
    /// `muster completion fish | source`
    Fish,
}

/// Prints the script that makes a shell ask.
///
/// Errors: those of standard output.
pub fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "muster", "muster", "muster", &mut script).context("write the script")?;
    std::io::stdout().lock().write_all(&script).context("write the script")?;
    Ok(ExitCode::SUCCESS)
}

/// Answers kubectl, which runs `kubectl_complete-muster` with the words behind `kubectl muster`.
///
/// Errors: those of standard output.
pub fn for_kubectl(command: &mut Command, words: &[OsString]) -> std::io::Result<()> {
    let mut all = vec![OsString::from("muster")];
    all.extend(words.iter().cloned());
    let last = all.len().saturating_sub(1).max(1);
    let folder = std::env::current_dir().ok();
    let candidates = clap_complete::engine::complete(command, all, last, folder.as_deref())?;
    // As kubectl does: flags are offered to who has begun to write one.
    let flags = words.last().is_some_and(|word| word.to_string_lossy().starts_with('-'));
    let mut out = std::io::stdout().lock();
    for candidate in candidates {
        let value = candidate.get_value().to_string_lossy();
        if value.starts_with('-') && !flags {
            continue;
        }
        match candidate.get_help() {
            Some(help) => writeln!(out, "{value}\t{help}")?,
            None => writeln!(out, "{value}")?,
        }
    }
    writeln!(out, "{NO_FILES}")
}

/// Words of `muster explain reason`.
pub(super) fn reasons(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut words: Vec<&str> = guide::entries().map(|entry| entry.word).collect();
    words.dedup();
    candidates(words.into_iter().map(str::to_owned).collect(), current)
}

/// Contexts of the kubeconfig.
pub(super) fn contexts(current: &OsStr) -> Vec<CompletionCandidate> {
    let read = match Words::of_process().value("--kubeconfig", None) {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let contexts = read.map(|kubeconfig| kubeconfig.contexts).unwrap_or_default();
    candidates(contexts.into_iter().map(|context| context.name).collect(), current)
}

/// Namespaces of the cluster.
pub(super) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(asked(&Words::of_process(), Wanted::Namespaces), current)
}

/// Gangs, pods or nodes of the cluster, as the words before say.
pub(super) fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = Words::of_process();
    candidates(words.wanted().map(|wanted| asked(&words, wanted)).unwrap_or_default(), current)
}

fn candidates(names: Vec<String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy().to_ascii_lowercase();
    let begins = |name: &String| name.to_ascii_lowercase().starts_with(&current);
    names.into_iter().filter(begins).map(CompletionCandidate::new).collect()
}

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Gangs,
    Pods,
    Nodes,
    Namespaces,
}

/// The command line as far as it is written.
struct Words(Vec<String>);

impl Words {
    fn of_process() -> Self {
        Self(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect())
    }

    /// The value of a flag.
    fn value(&self, long: &str, short: Option<&str>) -> Option<&str> {
        self.0.iter().enumerate().find_map(|(index, word)| {
            if word == long || short == Some(word.as_str()) {
                return self.0.get(index + 1).map(String::as_str);
            }
            word.strip_prefix(long)?.strip_prefix('=')
        })
    }

    fn wanted(&self) -> Option<Wanted> {
        let behind = self.0.iter().skip_while(|word| *word != "explain");
        behind.into_iter().find_map(|word| match word.as_str() {
            "gang" => Some(Wanted::Gangs),
            "pod" => Some(Wanted::Pods),
            "node" => Some(Wanted::Nodes),
            _ => None,
        })
    }
}

/// Names in the cluster; none where it does not answer in time, since a shell that completes prints no errors.
fn asked(words: &Words, wanted: Wanted) -> Vec<String> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let names = runtime.block_on(async { tokio::time::timeout(WAIT, list(words, wanted)).await });
    names.ok().and_then(Result::ok).unwrap_or_default()
}

async fn list(words: &Words, wanted: Wanted) -> anyhow::Result<Vec<String>> {
    let path = words.value("--kubeconfig", None).map(Path::new);
    let (client, default) = kubeconfig::client(path, words.value("--context", None)).await?;
    let all = words.0.iter().any(|word| word == "-A" || word == "--all-namespaces");
    let namespace = words.value("--namespace", Some("-n")).unwrap_or(&default);
    match wanted {
        Wanted::Gangs if all => names(Api::<Gang>::all(client)).await,
        Wanted::Pods if all => names(Api::<Pod>::all(client)).await,
        Wanted::Gangs => names(Api::<Gang>::namespaced(client, namespace)).await,
        Wanted::Pods => names(Api::<Pod>::namespaced(client, namespace)).await,
        Wanted::Nodes => names(Api::<Node>::all(client)).await,
        Wanted::Namespaces => names(Api::<Namespace>::all(client)).await,
    }
}

async fn names<K>(api: Api<K>) -> anyhow::Result<Vec<String>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let listed = api.list_metadata(&ListParams::default().limit(MOST)).await?;
    let mut names: Vec<String> = listed.iter().map(ResourceExt::name_any).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        Words(line.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn what_is_listed_follows_from_the_words_before() {
        assert_eq!(words("-- muster explain gang tr").wanted(), Some(Wanted::Gangs));
        assert_eq!(words("muster explain -n gang node ").wanted(), Some(Wanted::Gangs));
        assert_eq!(words("gang explain node ").wanted(), Some(Wanted::Nodes));
        assert_eq!(words("muster top").wanted(), None);
    }

    #[test]
    fn a_flag_is_read_in_each_of_its_forms() {
        assert_eq!(words("explain gang -n ml x").value("--namespace", Some("-n")), Some("ml"));
        assert_eq!(words("explain gang --namespace=ml x").value("--namespace", Some("-n")), Some("ml"));
        assert_eq!(words("explain gang --namespace ml x").value("--namespace", Some("-n")), Some("ml"));
        assert_eq!(words("explain gang x").value("--namespace", Some("-n")), None);
    }
}
