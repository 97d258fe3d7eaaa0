//! `muster uninstall`: takes away what would outlive Muster, in the order that leaves nobody stuck, and lists the rest.
//!
//! The admission policy goes first: a gate that is added after Muster is gone holds its pod for ever. Pods held by the
//! gate are listed, or let go with `--ungate`; what EC2 still bills is listed and never touched, since the NodeBatches
//! are terminated by `muster serve` alone.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use muster_api::crd::{Gang, NodeBatch};
use muster_api::keys;
use muster_replay::command::Format;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::warn;

use crate::commands::cluster::Cluster;
use crate::commands::flags::{self, Form};
use crate::step::{Step, step};

/// Arguments of `muster uninstall`.
#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// Say what would be done and what would be left; change nothing.
    #[arg(long, required_unless_present_any = ["confirm", "refuse_while_instances_live"], conflicts_with = "confirm")]
    dry_run: bool,
    /// Delete the admission policy, and say what is left.
    #[arg(long)]
    confirm: bool,
    /// Let pods go that are held by Muster's gate: kube-scheduler then places them one by one.
    #[arg(long)]
    ungate: bool,
    /// Look for NodeBatches alone, and change nothing: what the chart asks before it goes.
    #[arg(long, conflicts_with_all = ["dry_run", "confirm", "ungate"])]
    refuse_while_instances_live: bool,
    /// Form of the output; all but `table` and `wide` print at the end.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    cluster: Cluster,
}

/// What was found, for programs.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    version: u32,
    /// Kinds of the admission policy's objects that are deleted, or would be.
    policies: Vec<String>,
    /// Pods that the gate holds, or held, as `namespace/name`.
    held_pods: Vec<String>,
    /// NodeBatches that are left, with what they have in EC2.
    batches: Vec<Left>,
    /// Gangs, as `namespace/name`: they go with their definition.
    gangs: Vec<String>,
    /// How much is in the way.
    left: usize,
}

/// A NodeBatch that is left.
#[derive(Debug, Serialize)]
struct Left {
    name: String,
    resources: String,
}

/// Names of what is left, as kubectl takes them.
fn names(report: &Value) -> Vec<String> {
    let held = report["heldPods"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let pods = held.map(|pod| format!("pod/{}", pod.rsplit('/').next().unwrap_or_default()));
    pods.chain(flags::each(report, "batches", "name", "nodebatch/")).collect()
}

/// The policy and its binding, the binding first: without it the policy does nothing.
const POLICIES: [&str; 2] = ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"];
/// Name of both.
const POLICY: &str = "gang-gate.muster.dev";

/// Everything there is to find.
#[derive(Debug, Default)]
struct Found {
    policies: Vec<ApiResource>,
    held: Vec<Pod>,
    batches: Vec<NodeBatch>,
    gangs: Vec<Gang>,
}

/// 0 = nothing is left, 3 = something is and was listed.
pub async fn run(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    let (client, _) = args.cluster.client().await?;
    // For people line by line, as it is done.
    let say = |line: &str| {
        if args.output.format() != Format::Json {
            self::say(line);
        }
    };
    if args.refuse_while_instances_live {
        return refuse_while_instances_live(&client, args.output, &say).await;
    }
    let mut found = find(&client).await?;
    for policy in &found.policies {
        say(&format!("{} {} {POLICY}", if args.dry_run { "would delete" } else { "deletes" }, policy.kind));
        if args.confirm {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), policy);
            match step(Step::DeletePolicy, api.delete(POLICY, &DeleteParams::default())).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(anyhow::Error::new(error).context(format!("delete {} {POLICY}", policy.kind))),
            }
        }
    }
    if found.policies.is_empty() {
        say(&format!("there is no admission policy {POLICY}"));
    }
    if args.confirm {
        // Pods made while the policy was being deleted are held too.
        found.held = held(&client).await?;
    }
    let mut left = 0_usize;
    for pod in &found.held {
        let name = key(pod);
        match (args.ungate, args.confirm) {
            (true, true) => {
                ungate(&client, pod).await.with_context(|| format!("ungate pod {name}"))?;
                say(&format!("pod {name}: let go"));
            }
            (true, false) => say(&format!("pod {name}: would be let go")),
            (false, _) => {
                left += 1;
                say(&format!("pod {name} is held by the gate {}; --ungate lets it go", keys::GATE));
            }
        }
    }
    for batch in &found.batches {
        left += 1;
        say(&format!("NodeBatch {} is left: {}", batch.name_any(), resources(batch)));
    }
    for gang in &found.gangs {
        say(&format!("Gang {} goes with its definition", key(gang)));
    }
    if !found.batches.is_empty() {
        say(BILLED);
    }
    if left == 0 {
        say("nothing is in the way of: kubectl delete -k manifests");
    }
    if args.output.format() == Format::Json {
        let report = Report {
            version: 1,
            policies: found.policies.iter().map(|policy| policy.kind.clone()).collect(),
            held_pods: found.held.iter().map(key).collect(),
            batches: found.batches.iter().map(Left::of).collect(),
            gangs: found.gangs.iter().map(key).collect(),
            left,
        };
        args.output.print(String::new, &report, names)?;
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

impl Left {
    fn of(batch: &NodeBatch) -> Self {
        Self { name: batch.name_any(), resources: resources(batch) }
    }
}

fn key(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Needs no right but `muster serve`'s own to list NodeBatches.
async fn refuse_while_instances_live(
    client: &Client,
    output: Form,
    say: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<ExitCode> {
    let batches: Vec<NodeBatch> = items(&Api::all(client.clone()), "NodeBatches").await?;
    for batch in &batches {
        say(&format!("NodeBatch {} is left: {}", batch.name_any(), resources(batch)));
    }
    say(if batches.is_empty() { "no NodeBatch is left" } else { BILLED });
    if output.format() == Format::Json {
        let left = batches.iter().map(Left::of).collect();
        let report = Report { version: 1, batches: left, left: batches.len(), ..Report::default() };
        output.print(String::new, &report, names)?;
    }
    Ok(if batches.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// What becomes of batches without Muster.
const BILLED: &str =
    "EC2 bills for NodeBatches until they are gone: end their gangs, or delete them, while muster serve runs";

/// What cannot be printed keeps no pod held.
fn say(line: &str) {
    if let Err(error) = flags::say(line) {
        warn!(%error, "an answer cannot be printed");
    }
}

async fn find(client: &Client) -> anyhow::Result<Found> {
    let mut found = Found { held: held(client).await?, ..Found::default() };
    for kind in POLICIES {
        let resource = ApiResource {
            group: "admissionregistration.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "admissionregistration.k8s.io/v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural(kind),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        // Clusters below 1.36 do not know the kind, and have no policy.
        match api.get_opt(POLICY).await {
            Ok(Some(_)) => found.policies.push(resource),
            Ok(None) => {}
            Err(error) => return Err(anyhow::Error::new(error).context(format!("get {kind} {POLICY}"))),
        }
    }
    found.batches = items(&Api::all(client.clone()), "NodeBatches").await?;
    found.gangs = items(&Api::all(client.clone()), "Gangs").await?;
    Ok(found)
}

fn plural(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    }
}

/// All objects of a kind; none where its definition is gone already.
async fn items<K>(api: &Api<K>, what: &str) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(anyhow::Error::new(error).context(format!("list {what}"))),
    }
}

async fn held(client: &Client) -> anyhow::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::all(client.clone());
    // Held pods have no node, which the API server can tell.
    let pods = pods.list(&ListParams::default().fields("spec.nodeName=")).await.context("list pods")?;
    Ok(pods.items.into_iter().filter(|pod| gates(pod).any(|gate| gate == keys::GATE)).collect())
}

fn gates(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten()).map(|gate| gate.name.as_str())
}

async fn ungate(client: &Client, pod: &Pod) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let others: Vec<_> = gates(pod).filter(|gate| *gate != keys::GATE).map(|gate| json!({"name": gate})).collect();
    let patch = json!({
        "metadata": {"resourceVersion": pod.resource_version()},
        "spec": {"schedulingGates": others},
    });
    match step(Step::UngatePod, pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch))).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What a batch has in EC2, as far as its status says.
fn resources(batch: &NodeBatch) -> String {
    let status = batch.status.clone().unwrap_or_default();
    let ids: Vec<&str> = status
        .instances
        .iter()
        .filter(|instance| instance.state != "Gone")
        .map(|instance| instance.id.as_str())
        .collect();
    let mut parts = vec![format!("phase {}", if status.phase.is_empty() { "Pending" } else { &status.phase })];
    if !ids.is_empty() {
        parts.push(format!("{} instances ({})", ids.len(), ids.join(", ")));
    }
    parts.extend(status.placement_group.map(|group| format!("placement group {group}")));
    if !status.launch_templates.is_empty() {
        parts.push(format!("launch templates {}", status.launch_templates.join(", ")));
    }
    parts.extend(status.price_per_hour.map(|price| format!("{price} USD per hour")));
    parts.join("; ")
}
