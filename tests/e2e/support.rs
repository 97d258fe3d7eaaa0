//! What the suites share: stacks, workloads, conditions to wait for.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster::testbed::nodes::TestNode;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Binaries, Component, Stack, StackOptions, binaries, eventually, repository};
use muster_api::crd::Gang;
use muster_ec2_sim::choices::Choices;

use crate::recorder;

/// Longest wait for anything that should come.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Options of a stack, or `None` where there is no Go to build the control plane with: then the suite is skipped,
/// which `make test` says in one line, and refuses in CI. `MUSTER` names another binary, such as an optimised one.
pub(crate) async fn options() -> Option<StackOptions> {
    if std::env::var_os("MUSTER_WITHOUT_CONTROL_PLANE").is_some() {
        // `make test` has reported in one line what does not run and why.
        return None;
    }
    let repository = &repository();
    let binaries = match Binaries::ensure(repository, |line| eprintln!("{line}")).await {
        Ok(binaries) => binaries,
        Err(binaries::BinariesError::NoGo(line)) if std::env::var("CI").as_deref() != Ok("true") => {
            eprintln!("skipped: {line}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let muster = std::env::var_os("MUSTER").unwrap_or_else(|| env!("CARGO_BIN_EXE_muster").into());
    let options = StackOptions::new(repository.to_owned(), binaries, muster.into());
    Some(StackOptions { reuse: true, ..options })
}

/// What `MUSTER_SIM_CHOICE` asks for.
fn flipped() -> Option<Choices> {
    let name = std::env::var("MUSTER_SIM_CHOICE").ok()?;
    Some(Choices::named(&name).unwrap_or_else(|error| panic!("MUSTER_SIM_CHOICE={error}")))
}

/// The answers of EC2 in this run that it does not document.
pub(crate) fn choices() -> Choices {
    flipped().unwrap_or_default()
}

/// A started stack with a namespace of its own. `MUSTER_SIM_CHOICE` names undocumented answers of EC2 that are the other
/// one in this run: `make test-choices`.
pub(crate) async fn stack(mut options: StackOptions, namespace: &str) -> Stack {
    if let (Some(choices), Some(scenario)) = (flipped(), options.scenario.as_mut()) {
        scenario["choices"] = serde_json::to_value(choices).unwrap();
    }
    let stack = Stack::start(options).await.unwrap_or_else(|error| panic!("{error}"));
    stack.cluster.create_namespace(namespace).await.unwrap();
    recorder::record(stack.admin().unwrap());
    stack
}

/// Nodes named `<leaf>-<n>`: `count` in each of `leaves`, one spine, eight GPUs each.
pub(crate) fn leaves(leaves: &[&str], count: usize) -> Vec<Node> {
    leaves
        .iter()
        .flat_map(|leaf| {
            (0..count).map(move |number| {
                TestNode::new(format!("{leaf}-{number}")).layers(["nn-core", "nn-spine", &format!("nn-{leaf}")]).build()
            })
        })
        .collect()
}

/// Creates a Job.
pub(crate) async fn submit(client: &Client, namespace: &str, mut job: Job) {
    job.metadata.namespace = Some(namespace.to_owned());
    Api::<Job>::namespaced(client.clone(), namespace).create(&PostParams::default(), &job).await.unwrap();
}

/// Pods of a Job by completion index.
pub(crate) async fn members(client: &Client, namespace: &str, job: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let mut pods = pods.list(&params).await.unwrap().items;
    pods.sort_by_key(index);
    pods
}

/// Completion index of a pod.
pub(crate) fn index(pod: &Pod) -> u32 {
    pod.annotations().get("batch.kubernetes.io/job-completion-index").and_then(|index| index.parse().ok()).unwrap_or(0)
}

/// The node of a pod.
pub(crate) fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// Whether a pod runs.
pub(crate) fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// Waits until `count` pods of the Job run.
pub(crate) async fn all_run(stack: &Stack, namespace: &str, job: &str, count: usize) -> Vec<Pod> {
    let client = stack.admin().unwrap();
    let (client, running) = (&client, format!("{count} pods of {job} to run"));
    eventually(DEADLINE, &running, || async move {
        let pods = members(client, namespace, job).await;
        let running = pods.iter().filter(|pod| runs(pod)).count();
        Ok::<_, String>((running == count).then_some(pods))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// The Gangs of a namespace.
pub(crate) async fn gangs(client: &Client, namespace: &str) -> Vec<Gang> {
    Api::<Gang>::namespaced(client.clone(), namespace).list(&ListParams::default()).await.unwrap().items
}

/// Waits until a gang of the namespace whose name begins with `name` is in `phase`.
pub(crate) async fn phase(stack: &Stack, namespace: &str, name: &str, phase: &str) -> Gang {
    phase_within(stack, namespace, name, phase, DEADLINE).await
}

/// As [`phase`], with a deadline of its own.
pub(crate) async fn phase_within(stack: &Stack, namespace: &str, name: &str, phase: &str, deadline: Duration) -> Gang {
    let client = stack.admin().unwrap();
    let client = &client;
    eventually(deadline, &format!("gang {name} to be {phase}"), || async move {
        let gangs = gangs(client, namespace).await;
        let found = gangs.into_iter().find(|gang| gang.name_any().starts_with(name));
        let seen = found.as_ref().and_then(|gang| gang.status.clone()).map(|status| status.phase);
        match found.filter(|_| seen.as_deref() == Some(phase)) {
            Some(gang) => Ok(Some(gang)),
            None => Err(format!("it is {seen:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// Waits until the gang says why it waits, in a sentence that contains `text`.
pub(crate) async fn says(stack: &Stack, namespace: &str, name: &str, text: &str) {
    let client = stack.admin().unwrap();
    let (client, stated) = (&client, format!("gang {name} to say {text:?}"));
    eventually(DEADLINE, &stated, || async move {
        let gangs = gangs(client, namespace).await;
        let found = gangs.into_iter().find(|gang| gang.name_any().starts_with(name));
        let waiting = found.and_then(|gang| gang.status).and_then(|status| status.waiting);
        match waiting {
            Some(waiting) if waiting.message.contains(text) => Ok(Some(())),
            waiting => Err(format!("it says {waiting:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// Waits until a line of `muster serve` contains `text`.
pub(crate) async fn logs(stack: &Stack, text: &str, deadline: Duration) {
    let log = &stack.cluster.log(Component::Muster(0));
    eventually(deadline, format!("muster serve to log {text:?}"), || async move {
        let log = std::fs::read_to_string(log)?;
        Ok::<_, std::io::Error>(log.contains(text).then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// Looks that `muster serve` wrote no line of level ERROR and did not panic, over all its restarts. The client's own lines
/// about an API server that does not answer are no errors of Muster's.
pub(crate) fn no_errors(stack: &Stack) {
    let log = std::fs::read_to_string(stack.cluster.log(Component::Muster(0))).unwrap_or_default();
    let wrong: Vec<&str> = log
        .lines()
        .filter(|line| line.split_whitespace().nth(1) == Some("ERROR") || line.contains("panicked at"))
        .filter(|line| !line.contains(" kube_client::client::builder: "))
        .collect();
    assert!(wrong.is_empty(), "muster serve reports errors:\n{}", wrong.join("\n"));
}

/// Waits until an event refuses a pod whose name begins so, in a message that has all of this.
pub(crate) async fn refused(stack: &Stack, namespace: &str, pod: &str, parts: &[&str]) {
    let events = &Api::<Event>::namespaced(stack.admin().unwrap(), namespace);
    eventually(DEADLINE, &format!("{pod} to be refused"), || async move {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let stated: Vec<String> = all
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref().is_some_and(|name| name.starts_with(pod)))
            .filter(|event| event.reason.as_deref() == Some("NoOfferFits"))
            .filter_map(|event| event.message)
            .collect();
        let has_all = |message: &String| parts.iter().all(|part| message.contains(part));
        if stated.iter().any(has_all) { Ok(Some(())) } else { Err(format!("{stated:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// A pod of a gang without a controller: nobody makes it again.
pub(crate) fn bare(gang: &str, number: u32, size: u32) -> Pod {
    TestPod::new(format!("{gang}-{number}"))
        .gpus(8)
        .annotation("muster.dev/gang", gang)
        .annotation("muster.dev/gang-size", &size.to_string())
        .annotation("muster.dev/rank", &number.to_string())
        .build()
}

/// Creates a pod.
pub(crate) async fn create(stack: &Stack, namespace: &str, mut pod: Pod) {
    pod.metadata.namespace = Some(namespace.to_owned());
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), namespace);
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// Deletes a pod at once, and waits until it is gone.
pub(crate) async fn delete(stack: &Stack, namespace: &str, name: &str) {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), namespace);
    let uid = pods.get(name).await.unwrap().uid();
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    // Its controller may make another of the same name at once.
    let (pods, uid, gone) = (&pods, &uid, format!("{name} to be gone"));
    eventually(DEADLINE, &gone, || async move {
        let there = |pod: &Pod| pod.uid() == *uid;
        pods.get_opt(name)
            .await
            .map(|pod| (!pod.as_ref().is_some_and(there)).then_some(()))
            .map_err(|error| error.to_string())
    })
    .await
    .unwrap();
}

/// The node of a pod, once it runs there.
pub(crate) async fn runs_on(stack: &Stack, namespace: &str, name: &str, deadline: Duration) -> String {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), namespace);
    let (pods, running) = (&pods, format!("{name} to run"));
    eventually(deadline, &running, || async move {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(if runs(&pod) { node_of(&pod) } else { None })
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// A text that was not there before.
pub(crate) fn unique() -> String {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string()
}
