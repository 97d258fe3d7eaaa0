//! One wide gang, a node each, and where its time goes: read from the audit log. Beside it stock kube-scheduler with
//! the same pods on the same nodes, and how long `filter` takes for an ordinary pod meanwhile.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use muster::testbed::audit::{self, Entry};
use muster::testbed::request::request;
use muster::testbed::workloads::TestPod;
use muster::testbed::{Component, Stack, StackOptions};
use serde_json::{Value, json};

use crate::Bench;
use crate::machine::{DEADLINE, NAMESPACE, create};
use crate::place::{all_placed, create_nodes};
use crate::row::{Row, Who};

/// Between two questions about the ordinary pod.
const ASK: Duration = Duration::from_millis(50);

/// `members` on as many nodes.
pub(crate) async fn run(bench: &Bench, members: usize) -> anyhow::Result<Value> {
    let stock = Row::plain(Who::Stock).run(bench, members, members).await?.took;
    let options: StackOptions = bench.options();
    let stack = Stack::start(options).await?;
    let client = stack.admin()?;
    stack.cluster.create_namespace(NAMESPACE).await?;
    create_nodes(&client, members).await?;
    let watching = tokio::spawn(all_placed(client.clone(), members));
    let pods: Vec<Pod> = (0..members)
        .map(|number| {
            TestPod::new(format!("p{number}"))
                .gpus(8)
                .annotation("muster.dev/gang", "wide")
                .annotation("muster.dev/gang-size", &members.to_string())
                .annotation("muster.dev/rank", &number.to_string())
                .build()
        })
        .collect();
    let answers = Arc::new(Mutex::new(Answers::default()));
    let asking = tokio::spawn(ask(stack.extender(), members, Arc::clone(&answers)));
    let started = Instant::now();
    create(&client, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), pods).await?;
    tokio::time::timeout(DEADLINE, watching).await???;
    let took = started.elapsed();
    asking.abort();
    let Answers { took: mut answers, refused } = answers.lock().map(|answers| answers.clone()).unwrap_or_default();
    // Without an answer nothing is known of how long one takes.
    anyhow::ensure!(!answers.is_empty(), "filter answered nothing for an ordinary pod: {refused:?}");
    answers.sort_unstable();
    let slow = answers.get(answers.len() * 99 / 100).copied().unwrap_or_default();
    let entries = audit::read(&stack.cluster.audit_log())?;
    let torn = audit::torn_bindings(&entries, |_, _| Some("wide".to_owned()));
    anyhow::ensure!(torn.is_empty(), "bound in part:\n{}", torn.join("\n"));
    let of_pods = |entry: &&Entry| entry.namespace == NAMESPACE && entry.resource == "pods" && entry.succeeded();
    let last = |what: &dyn Fn(&&Entry) -> bool| entries.iter().filter(what).map(|entry| entry.answered).max();
    let first = |what: &dyn Fn(&&Entry) -> bool| entries.iter().filter(what).map(|entry| entry.received).min();
    let created = last(&|entry| of_pods(entry) && entry.verb == "create" && entry.subresource.is_empty());
    let release =
        |entry: &&Entry| of_pods(entry) && entry.verb == "patch" && entry.subresource.is_empty() && entry.by_muster();
    let writes = |entry: &&Entry| entry.resource == "gangs" && entry.subresource == "status" && entry.succeeded();
    let commit = |entry: &&Entry| entry.is_commit();
    // The last two writes of the executor before the first release: the plan, and that it is being carried out.
    let first_release = entries.iter().filter(release).map(|entry| entry.received).min();
    let before = |entry: &&Entry| writes(entry) && entry.verb == "update" && Some(entry.answered) <= first_release;
    let mut plans: Vec<Timestamp> = entries.iter().filter(before).map(|entry| entry.answered).collect();
    plans.sort_unstable();
    let marks = [
        ("created", created),
        ("planned", plans.len().checked_sub(2).and_then(|at| plans.get(at).copied())),
        ("released, the first", first_release),
        ("released, the last", last(&release)),
        ("at the barrier", first(&commit)),
        ("committed", last(&commit)),
        ("bound", last(&|entry| entry.is_binding())),
    ];
    let zero = created.unwrap_or_default();
    let mut reported = Vec::new();
    let mut figures = json!({
        "members": members,
        "milliseconds": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "stockMilliseconds": u64::try_from(stock.as_millis()).unwrap_or(u64::MAX),
        "filterP99Milliseconds": u64::try_from(slow.as_millis()).unwrap_or(u64::MAX),
    });
    for (what, at) in marks {
        let millis = at.map(|at| at.duration_since(zero).as_millis());
        reported.push(format!("{what} {}", millis.map_or_else(|| "?".to_owned(), |millis| format!("{millis} ms"))));
        figures[what] = json!(millis.and_then(|millis| i64::try_from(millis).ok()));
    }
    let log = std::fs::read_to_string(stack.cluster.log(Component::Muster(0))).unwrap_or_default();
    let planned =
        log.lines().filter(|line| line.contains("phase=\"Planned\"") || line.contains("phase=Planned")).count();
    let percent = took.as_millis() * 100 / stock.as_millis().max(1);
    println!(
        "a gang of {members} is bound after {}.{} s, stock kube-scheduler with the same pods {}.{} s: {percent} %; filter of an \
         ordinary pod meanwhile, of {} calls: p99 {} ms",
        took.as_secs(),
        took.subsec_millis() / 100,
        stock.as_secs(),
        stock.subsec_millis() / 100,
        answers.len(),
        slow.as_millis()
    );
    println!("a gang of {members}, from the last pod created: {}; planned {planned} times", reported.join(", "));
    Ok(figures)
}

/// What became of questions about the ordinary pod.
#[derive(Clone, Debug, Default)]
struct Answers {
    took: Vec<Duration>,
    /// The last refusal.
    refused: Option<String>,
}

/// Asks again and again where an ordinary pod may go, with every node on offer, as kube-scheduler does.
async fn ask(extender: SocketAddr, nodes: usize, answers: Arc<Mutex<Answers>>) {
    let mut pod = TestPod::new("ordinary").build();
    pod.metadata.namespace = Some(NAMESPACE.to_owned());
    pod.metadata.uid = Some("ordinary".to_owned());
    let names: Vec<String> = (0..nodes).map(|number| format!("n{number}")).collect();
    let body = json!({"Pod": pod, "Nodes": null, "NodeNames": names}).to_string();
    let mut ticks = tokio::time::interval(ASK);
    loop {
        ticks.tick().await;
        let started = Instant::now();
        let answer = request(extender, "POST", "/v1/sync/filter", &body).await;
        let Ok(mut answers) = answers.lock() else { return };
        match answer {
            Ok(_) => answers.took.push(started.elapsed()),
            Err(error) => answers.refused = Some(error.to_string()),
        }
    }
}
