//! `muster check-config`: whether a KubeSchedulerConfiguration keeps the guarantee.
//!
//! Each rule is a trap: kube-scheduler accepts all of them and schedules gangs in part, slowly, or not at all.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use jiff::SignedDuration;
use serde::Serialize;
use serde_json::Value;

use crate::commands::Unusable;
use crate::commands::flags::{Form, each, named};
use crate::config::Config;

/// Arguments of `muster check-config`.
#[derive(Debug, Args)]
pub struct CheckConfigArgs {
    /// The KubeSchedulerConfiguration (YAML); `-` = standard input.
    file: PathBuf,
    /// Configuration of `muster serve` to compare with. Without one, the defaults.
    #[arg(long, env = "MUSTER_CONFIG")]
    config: Option<PathBuf>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// What is printed for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    version: u32,
    file: &'a str,
    /// Whether gangs are safe with it.
    safe: bool,
    findings: &'a [Finding],
}

/// Prints what is wrong. 0 = nothing, warnings aside; 1 = something is; 2 = unreadable.
pub fn run(args: &CheckConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.as_deref())?;
    let (name, text) = named(&args.file).map_err(Unusable)?;
    let documents = documents(&text).map_err(|message| Unusable(format!("{name}: {message}")))?;
    let findings = check(&documents, &config);
    let safe = !findings.iter().any(|finding| finding.fatal);
    let table = || {
        let mut lines: Vec<String> = findings.iter().map(|finding| format!("{name}: {finding}")).collect();
        lines.extend(safe.then(|| format!("{name}: gangs are safe with this configuration")));
        lines.join("\n")
    };
    let report = Report { version: 1, file: &name, safe, findings: &findings };
    args.output.print(table, &report, |value| each(value, "findings", "place", ""))?;
    Ok(if safe { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn documents(text: &str) -> Result<Vec<Value>, String> {
    serde_saphyr::from_multiple(text).map_err(|error| error.to_string())
}

/// One thing that is wrong or doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The guarantee does not hold.
    pub fatal: bool,
    /// Where.
    pub place: String,
    /// What, and the remedy.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.fatal { "error" } else { "warning" };
        write!(f, "{level}: {}: {}", self.place, self.message)
    }
}

/// Findings in order of the file.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding { fatal: true, place: place.into(), message: message.into() });
    }

    fn warning(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding { fatal: false, place: place.into(), message: message.into() });
    }
}

/// The shape of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deployed {
    /// A kube-scheduler that has our profiles only.
    Own,
    /// The cluster's default scheduler.
    Default,
}

/// Checks the documents of a file.
#[must_use]
pub fn check(documents: &[Value], config: &Config) -> Vec<Finding> {
    let mut findings = Findings::default();
    let Some(scheduler) = documents.iter().find(|document| document["kind"] == "KubeSchedulerConfiguration") else {
        findings.error("kind", "no KubeSchedulerConfiguration in this file");
        return findings.0;
    };
    let profiles = scheduler["profiles"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> =
        profiles.iter().map(|profile| profile["schedulerName"].as_str().unwrap_or("default-scheduler")).collect();
    let deployed =
        if names.is_empty() || names.contains(&"default-scheduler") { Deployed::Default } else { Deployed::Own };
    for name in &config.scheduler_names {
        let there = names.contains(&name.as_str()) || names.is_empty() && name == "default-scheduler";
        if !there {
            let known = if names.is_empty() { "default-scheduler".to_owned() } else { names.join(", ") };
            findings.error(
                "profiles",
                format!(
                    "no profile is named {name}, which schedulerNames of Muster's configuration names; here: {known}"
                ),
            );
        }
    }
    sampling(scheduler, profiles, deployed, &mut findings);
    let extenders = scheduler["extenders"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours: Vec<(usize, &Value)> = extenders.iter().enumerate().filter(|(_, extender)| is_ours(extender)).collect();
    if ours.is_empty() {
        findings.error("extenders", "no entry calls Muster: urlPrefix must end in /v1/sync, /v1/bind or /v1/all");
        return findings.0;
    }
    for (index, extender) in &ours {
        entry(*index, extender, config, deployed, &mut findings);
    }
    verbs(extenders, &ours, &mut findings);
    if deployed == Deployed::Default && ours.len() > 1 {
        findings.error(
            "extenders",
            "two entries of Muster in the default scheduler: a resource name may not appear in two; use one with /v1/all",
        );
    }
    findings.0
}

fn sampling(scheduler: &Value, profiles: &[Value], deployed: Deployed, findings: &mut Findings) {
    const KEY: &str = "percentageOfNodesToScore";
    let global = scheduler[KEY].as_u64();
    let mut looked = |place: String, percent: Option<u64>| {
        if percent == Some(100) {
            return;
        }
        let is =
            percent.map_or_else(|| "unset, which samples large clusters".to_owned(), |percent| percent.to_string());
        match deployed {
            Deployed::Own => {
                findings.error(place, format!("is {is}: a planned node may be missing from a cycle; set it to 100"));
            }
            Deployed::Default => findings.warning(
                place,
                format!(
                    "is {is}: a planned node may be missing from a cycle whose nomination was lost, which costs seconds; \
                     set it to 100"
                ),
            ),
        }
    };
    if profiles.is_empty() {
        looked(KEY.to_owned(), global);
    }
    for (index, profile) in profiles.iter().enumerate() {
        looked(format!("profiles[{index}].{KEY}"), profile[KEY].as_u64().or(global));
    }
}

fn entry(index: usize, extender: &Value, config: &Config, deployed: Deployed, findings: &mut Findings) {
    let at = |field: &str| format!("extenders[{index}].{field}");
    if extender["ignorable"] == true {
        findings
            .error(at("ignorable"), "is true: while Muster is down gangs are scheduled pod by pod; set it to false");
    }
    if extender["nodeCacheCapable"] != true {
        findings.error(
            at("nodeCacheCapable"),
            "is not true: Muster answers names, whole nodes are refused; set it to true",
        );
    }
    if extender["enableHTTPS"] == true && !has_authority(&extender["tlsConfig"]) {
        findings.error(
            at("enableHTTPS"),
            "is true without tlsConfig.caFile: kube-scheduler then trusts any server; name the authority there",
        );
    }
    let https = extender["urlPrefix"].as_str().is_some_and(|url| url.starts_with("https://"));
    if https && extender["tlsConfig"]["insecure"] == true {
        findings.error(
            at("tlsConfig.insecure"),
            "is true: kube-scheduler then trusts any server; leave it out, and name the authority in caFile",
        );
    }
    if https && !has_client_certificate(&extender["tlsConfig"]) {
        findings.error(
            at("tlsConfig"),
            "has no certFile and keyFile: Muster lets in nobody without a client certificate; name both",
        );
    }
    let managed = extender["managedResources"].as_array().map(Vec::as_slice).unwrap_or_default();
    if managed.iter().any(|resource| resource["ignoredByScheduler"] == true) {
        findings.error(
            at("managedResources"),
            "ignoredByScheduler is true: no profile counts the resource any more; leave it out",
        );
    }
    let names: Vec<&str> = managed.iter().filter_map(|resource| resource["name"].as_str()).collect();
    match deployed {
        Deployed::Own if !names.is_empty() => findings.error(
            at("managedResources"),
            "hides pods without these resources from Muster: they would eat assigned capacity; leave it out",
        ),
        Deployed::Own => {}
        Deployed::Default if names.is_empty() => findings.error(
            at("managedResources"),
            "is empty: every pod of the cluster would depend on Muster; name the pools' accelerators",
        ),
        Deployed::Default => {
            for name in names.iter().filter(|name| !config.accelerators.iter().any(|known| known == **name)) {
                findings.error(
                    at("managedResources"),
                    format!(
                        "{name} is no accelerator of Muster's configuration ({}); take it out, or add it to \
                         `accelerators`",
                        config.accelerators.join(", ")
                    ),
                );
            }
            for name in config.accelerators.iter().filter(|name| !names.contains(&name.as_str())) {
                findings.error(
                    at("managedResources"),
                    format!(
                        "lacks {name}, an accelerator of Muster's configuration: gangs that ask for it are never sent \
                         to Muster; add it to managedResources, or take it out of `accelerators`"
                    ),
                );
            }
        }
    }
    let prioritizes = extender["prioritizeVerb"].as_str().is_some_and(|verb| !verb.is_empty());
    let weight = extender["weight"].as_i64().unwrap_or(0);
    if prioritizes && weight < 121 {
        findings.warning(
            at("weight"),
            format!("is {weight}: below 121 in-tree scores can outweigh the packing of accelerator pods; ours is 150"),
        );
    }
    if extender["bindVerb"].as_str().is_some_and(|verb| !verb.is_empty()) {
        let timeout = extender["httpTimeout"].as_str().unwrap_or("5s");
        if timeout.parse::<SignedDuration>().ok() != Some(config.http_timeout) {
            findings.error(
                at("httpTimeout"),
                format!(
                    "is {timeout} and bind.httpTimeout of Muster's configuration is {}s: they must be equal, since the \
                     barrier holds for a little less",
                    config.http_timeout.as_secs()
                ),
            );
        }
    }
}

fn verbs(extenders: &[Value], ours: &[(usize, &Value)], findings: &mut Findings) {
    let offers = |extender: &Value, verb: &str| extender[verb].as_str().is_some_and(|verb| !verb.is_empty());
    if !ours.iter().any(|(_, extender)| offers(extender, "bindVerb")) {
        findings.error(
            "extenders",
            "no entry of Muster has bindVerb: gangs would be bound pod by pod; set bindVerb: bind in the one that ends \
             in /v1/bind or /v1/all",
        );
    }
    for verb in ["filterVerb", "preemptVerb", "prioritizeVerb"] {
        if !ours.iter().any(|(_, extender)| offers(extender, verb)) {
            let (means, value) = match verb {
                "filterVerb" => ("members would go anywhere", "filter"),
                "preemptVerb" => ("gangs could be evicted in part", "preempt"),
                _ => ("accelerator pods would be spread", "prioritize"),
            };
            findings.error(
                "extenders",
                format!(
                    "no entry of Muster has {verb}: {means}; set {verb}: {value} in the one that ends in /v1/sync or \
                     /v1/all"
                ),
            );
        }
    }
    let binders = extenders.iter().filter(|extender| offers(extender, "bindVerb")).count();
    if binders > 1 {
        findings.error(
            "extenders",
            "more than one entry has bindVerb: kube-scheduler refuses to start; keep that of Muster alone",
        );
    }
    for (index, extender) in ours {
        for (field, verb) in [
            ("filterVerb", "filter"),
            ("prioritizeVerb", "prioritize"),
            ("preemptVerb", "preempt"),
            ("bindVerb", "bind"),
        ] {
            let path = extender["urlPrefix"].as_str().unwrap_or_default();
            let named = extender[field].as_str().unwrap_or_default();
            if !named.is_empty() && named != verb {
                findings.error(
                    format!("extenders[{index}].{field}"),
                    format!("is {named}: Muster answers {verb} under {path}"),
                );
            }
            let part = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            let there = match part {
                "bind" => verb == "bind",
                "sync" => verb != "bind",
                _ => true,
            };
            if named == verb && !there {
                findings.error(
                    format!("extenders[{index}].{field}"),
                    format!("{path} does not answer {verb}; only /v1/all answers every verb"),
                );
            }
        }
    }
}

fn is_ours(extender: &Value) -> bool {
    let prefix = extender["urlPrefix"].as_str().unwrap_or_default().trim_end_matches('/');
    ["/v1/sync", "/v1/bind", "/v1/all"].iter().any(|path| prefix.ends_with(path))
}

fn has_authority(tls: &Value) -> bool {
    ["caFile", "caData"].iter().any(|key| tls[*key].as_str().is_some_and(|text| !text.is_empty()))
}

fn has_client_certificate(tls: &Value) -> bool {
    let set = |keys: [&str; 2]| keys.iter().any(|key| tls[*key].as_str().is_some_and(|text| !text.is_empty()));
    set(["certFile", "certData"]) && set(["keyFile", "keyData"])
}
