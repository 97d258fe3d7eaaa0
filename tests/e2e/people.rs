//! What people see where they look: the Job's events, the conditions of its Gang, the scrape, the names a shell completes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use muster::testbed::request::request;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Identity, Stack, eventually, repository};
use muster_ec2_sim::Scenario;

use crate::cloud::{delete_job, everything_is_terminated, provisioning_stack};
use crate::support::{DEADLINE, all_run, gangs, leaves, no_errors, options, phase, says, stack, submit, unique};
use crate::volumes::claim;

/// Reasons and notes of Muster's events on the Job, oldest first.
async fn of_job(stack: &Stack) -> Vec<(String, String)> {
    let events: Api<Event> = Api::namespaced(stack.admin().unwrap(), "ml");
    let mut all = events.list(&ListParams::default()).await.unwrap().items;
    all.retain(|event| event.regarding.as_ref().is_some_and(|about| about.kind.as_deref() == Some("Job")));
    all.retain(|event| event.reporting_controller.as_deref() == Some("muster"));
    all.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
    for event in &all {
        let related = event.related.as_ref().and_then(|related| related.kind.as_deref());
        assert_eq!((related, event.action.as_deref()), (Some("Gang"), Some("Scheduling")), "{event:?}");
        assert!(event.series.is_none(), "written twice: {event:?}");
    }
    all.into_iter().map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
}

/// The first Job of the user guide.
fn first_job_of_the_guide() -> Job {
    let guide = std::fs::read_to_string(repository().join("docs/user-guide.md")).unwrap();
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let job = blocks.into_iter().find(|block| block.contains("kind: Job\n")).expect("the guide has a Job");
    serde_saphyr::from_str(job).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_job_of_the_guide_runs_and_nobody_is_warned() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 60, "1s").await else { return };
    let client = stack.admin().unwrap();
    let mut job = first_job_of_the_guide();
    job.metadata.namespace = None;
    let name = job.name_any();
    submit(&client, "ml", job).await;

    all_run(&stack, "ml", &name, 8).await;
    phase(&stack, "ml", &name, "Bound").await;

    let events: Api<Event> = Api::all(client.clone());
    let ours = |event: &Event| event.reporting_controller.as_deref() == Some("muster");
    let stated = eventually(DEADLINE, "the Job's event that all run", || async {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let ours: Vec<Event> = all.into_iter().filter(ours).collect();
        let bound = ours.iter().any(|event| event.reason.as_deref() == Some("Bound"));
        Ok::<_, String>(bound.then_some(ours))
    })
    .await
    .unwrap();
    let warnings: Vec<&Event> = stated.iter().filter(|event| event.type_.as_deref() != Some("Normal")).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
    delete_job(&stack, &name).await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

/// The reason for which the gang waits.
async fn reason(stack: &Stack) -> Option<String> {
    let gang = gangs(&stack.admin().unwrap(), "ml").await.into_iter().next()?;
    Some(gang.status?.waiting?.reason)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_ten_changes_of_reason_is_an_event_of_its_own_on_the_job_though_reasons_come_back() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 3)).await.unwrap();
    let client = stack.admin().unwrap();
    // Without the class of its claim the gang waits for that, with it for nodes.
    let class: StorageClass = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "shared"}, "provisioner": "files.example.com", "volumeBindingMode": "WaitForFirstConsumer",
    }))
    .unwrap();
    claim(&stack, "data", serde_json::json!({"storageClassName": "shared", "accessModes": ["ReadWriteMany"]})).await;
    let mut job = TestJob::new("train", 4).gpus(8).pod_annotation("muster.dev/gang", "train").build();
    let volumes = serde_json::json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let template = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).unwrap();
    template.volumes = Some(serde_json::from_value(volumes).unwrap());
    submit(&client, "ml", job).await;
    let seen = &stack;
    let waits_for = |wanted: &'static str| {
        eventually(DEADLINE, format!("the gang to wait for {wanted}"), move || async move {
            let found = reason(seen).await;
            if found.as_deref() == Some(wanted) { Ok(Some(())) } else { Err(format!("{found:?}")) }
        })
    };
    let classes: Api<StorageClass> = Api::all(client.clone());
    for _ in 0..5 {
        waits_for("VolumesNotReady").await.unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        classes.create(&PostParams::default(), &class).await.unwrap();
        waits_for("NoPool").await.unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
        classes.delete("shared", &DeleteParams::default()).await.unwrap();
    }

    let events = eventually(DEADLINE, "an event for each change", || async move {
        let events = of_job(seen).await;
        let count = |of: &str| events.iter().filter(|(reason, _)| reason == of).count();
        if count("VolumesNotReady") == 6 && count("NoPool") == 5 {
            Ok(Some(events))
        } else {
            Err(format!("{events:?}"))
        }
    })
    .await
    .unwrap();
    let mut reasons: Vec<&str> = events.iter().map(|(reason, _)| reason.as_str()).collect();
    let all = reasons.len();
    reasons.dedup();
    assert_eq!(reasons.len(), all, "no reason twice in a row: {events:?}");
    no_errors(&stack);
}

/// What kubectl is answered for the words behind `kubectl muster`.
async fn completed(stack: &Stack, words: &[&str]) -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("muster-people-{}-{}", std::process::id(), unique()));
    std::fs::create_dir_all(&folder).unwrap();
    let plugin = folder.join("kubectl_complete-muster");
    std::os::unix::fs::symlink(Path::new(env!("CARGO_BIN_EXE_muster")), &plugin).unwrap();
    let output = tokio::process::Command::new(&plugin)
        .args(words)
        .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Admin))
        .output()
        .await
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_waits_says_why_in_the_words_of_its_gang_and_kubectl_wait_returns_once_a_node_is_there() {
    let Some(options) = options().await else { return };
    let kubectl = options.binaries.kubectl();
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 3)).await.unwrap();
    let client = stack.admin().unwrap();
    submit(&client, "ml", TestJob::new("train", 4).gpus(8).pod_annotation("muster.dev/gang", "train").build()).await;
    says(&stack, "ml", "train", "needs capacity for 4 members in one zone; the best, us-east-1a, has capacity for 3")
        .await;

    let gang = gangs(&client, "ml").await.into_iter().next().unwrap();
    let name = gang.metadata.name.clone().unwrap();
    assert_eq!(gang.metadata.labels.as_ref().and_then(|labels| labels.get("muster.dev/gang")).unwrap(), "train");
    let status = gang.status.unwrap();
    let waiting = status.waiting.unwrap();
    let seen = &stack;
    let reason = waiting.reason.as_str();
    let stated = eventually(DEADLINE, "the Job's event", || async move {
        let events = of_job(seen).await;
        let found = events.iter().find(|(of, _)| of == reason).cloned();
        found.map(Some).ok_or_else(|| format!("{events:?}"))
    })
    .await
    .unwrap();
    assert_eq!(stated.1, waiting.message, "the same sentence");
    for kind in ["Planned", "NodesReady", "Bound", "Finished"] {
        let condition = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
        assert_eq!(condition.status, "False", "{kind}");
        assert_eq!((&condition.reason, &condition.message), (&waiting.reason, &waiting.message), "{kind}");
        assert_eq!(condition.observed_generation, gang.metadata.generation, "{kind}");
    }
    let pods: &Api<Pod> = &Api::namespaced(client.clone(), "ml");
    let (code, sentence) = (&waiting.reason, &waiting.message);
    eventually(DEADLINE, "the condition of every member", || async move {
        let all = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let conditions = |pod: &Pod| pod.status.clone().and_then(|status| status.conditions).unwrap_or_default();
        let states = |pod: &Pod| {
            let found = conditions(pod).into_iter().find(|one| one.type_ == "muster.dev/Gang");
            found.is_some_and(|one| one.reason.as_ref() == Some(code) && one.message.as_ref() == Some(sentence))
        };
        let lack: Vec<String> = all.iter().filter(|pod| !states(pod)).map(ResourceExt::name_any).collect();
        if lack.is_empty() && all.len() == 4 { Ok(Some(())) } else { Err(format!("{lack:?} do not say so")) }
    })
    .await
    .unwrap();
    // The shell is not kept waiting for long by an API server that is busy.
    let (asking, named) = (&stack, &[name.as_str(), ":4"]);
    eventually(DEADLINE, "the gang's name to be completed", || async move {
        let words = completed(asking, &["explain", "gang", "-n", "ml", ""]).await;
        if words == named { Ok(Some(())) } else { Err(format!("{words:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(completed(&stack, &["explain", "gang", "-n", "kube-system", ""]).await, [":4"]);
    let scraped = request(stack.http(), "GET", "/metrics", "").await.unwrap();
    let line = format!("muster_gangs_waiting{{reason=\"{reason}\"}} 1");
    let bound = r#"muster_status_condition{kind="Gang",type="Bound",status="False"} 1"#;
    for part in ["muster_leader 1", line.as_str(), bound, "# TYPE muster_steps_total counter", "process_open_fds "] {
        assert!(scraped.contains(part), "{part} is not in:\n{scraped}");
    }
    assert!(!scraped.contains("# EOF"), "who does not ask for OpenMetrics gets the plain text");

    let mut wait = tokio::process::Command::new(kubectl)
        .args(["wait", "gang", "-l", "muster.dev/gang=train", "-n", "ml", "--for=condition=Bound", "--timeout=120s"])
        .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Admin))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    stack.create_nodes(leaves(&["b"], 2)).await.unwrap();
    all_run(&stack, "ml", "train", 4).await;
    assert!(wait.wait().await.unwrap().success(), "kubectl wait");
    phase(&stack, "ml", "train", "Bound").await;
    let events = eventually(DEADLINE, "the last event", || async move {
        let events = of_job(seen).await;
        let bound = events.last().is_some_and(|(reason, _)| reason == "Bound");
        if bound { Ok(Some(events)) } else { Err(format!("{events:?}")) }
    })
    .await
    .unwrap();
    let mut reasons: Vec<&str> = events.iter().map(|(reason, _)| reason.as_str()).collect();
    let all = reasons.len();
    reasons.dedup();
    assert_eq!(reasons.len(), all, "one event for each change of reason: {events:?}");
    assert!(reasons.ends_with(&["Planned", "Bound"]), "{events:?}");
}
