//! A replica that still takes itself for the lease holder: it was stopped in a phase of a gang, another took over, and it goes
//! on where it was. Nothing is launched or released a second time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Component, Stack, audit, eventually, pools};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::cloud::{gang_job, invariants_hold, journal, launched_fleets, zones};
use crate::ha::leads;
use crate::support::{DEADLINE, leaves, options, phase, phase_within, stack, submit};

/// A kube-scheduler that starts after others were killed leads once their lease has run out.
const FAILOVER: Duration = Duration::from_secs(120);

/// How often the replica has noticed that another holds the lease.
fn lost(stack: &Stack, number: u8) -> usize {
    let log = std::fs::read_to_string(stack.cluster.log(Component::Muster(number))).unwrap_or_default();
    log.lines().filter(|line| line.contains("lost the lease")).count()
}

/// A gang without devices, which shows that whoever leads has decided since.
fn probe(name: &str) -> Job {
    TestJob::new(name, 2).pod_annotation("muster.dev/gang", name).build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_holder_that_is_stopped_in_any_phase_and_goes_on_later_launches_and_releases_nothing_twice() {
    let Some(mut options) = options().await else { return };
    options.replicas = 2;
    options.scenario = Some(serde_json::to_value(zones([2, 0, 0])).unwrap());
    options.factor = 20;
    // A plan settles, and the lease lasts, for long enough that whoever is met in a phase is stopped in it.
    options.config = json!({"lease": {"duration": "8s", "grace": "1s"}, "release": {"settle": "8s"}});
    let stack = stack(options, "ml").await;
    let client = stack.admin().unwrap();
    let (class, pool) = pools::p5("60s").unwrap();
    pools::create(&client, &class, &pool).await.unwrap();
    stack.create_nodes(leaves(&["a"], 4)).await.unwrap();
    // What is released stays so until they are there again.
    for number in 0..2 {
        stack.cluster.kill(Component::Scheduler(number)).unwrap();
    }

    // The first two take the nodes that are there.
    for (name, met) in [("settles", "Planned"), ("sent", "Released"), ("new", "Provisioning")] {
        let first = leads(&stack).await;
        let before = lost(&stack, first);
        submit(&client, "ml", gang_job(name, 2)).await;
        phase(&stack, "ml", name, met).await;
        stack.cluster.signal(Component::Muster(first), Signal::SIGSTOP).unwrap();
        phase(&stack, "ml", name, met).await;
        let all = &stack;
        eventually(DEADLINE, "the other replica to hold the lease", || async move {
            let now = leads(all).await;
            if now == first { Err("it does not") } else { Ok(Some(())) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
        let beside = format!("beside-{name}");
        submit(&client, "ml", probe(&beside)).await;
        for gang in [&*beside, name] {
            phase(&stack, "ml", gang, "Released").await;
        }

        stack.cluster.signal(Component::Muster(first), Signal::SIGCONT).unwrap();
        eventually(DEADLINE, "the first replica to notice", || async move {
            Ok::<_, String>((lost(all, first) > before).then_some(()))
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
        let after = format!("after-{name}");
        submit(&client, "ml", probe(&after)).await;
        phase(&stack, "ml", &after, "Released").await;
    }

    // The phase is written before the members are released, and the audit log comes last.
    let log = stack.cluster.audit_log();
    let entries = eventually(DEADLINE, "two members of nine gangs to be released", || async {
        let entries = audit::read(&log).map_err(|error| error.to_string())?;
        let names: BTreeSet<&String> =
            entries.iter().filter(|entry| entry.is_release()).map(|entry| &entry.name).collect();
        let released = names.len();
        if released < 18 { Err(format!("{released} of 18")) } else { Ok(Some(entries)) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
    let mut released: BTreeMap<&str, u32> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.is_release()) {
        *released.entry(&entry.name).or_default() += 1;
    }
    assert_eq!(released.len(), 18, "two members of nine gangs: {released:?}");
    let twice: Vec<&audit::Entry> =
        entries.iter().filter(|entry| released.get(&*entry.name).is_some_and(|times| *times > 1)).collect();
    assert!(twice.is_empty(), "released twice: {twice:#?}\n{}", stack.cluster.report(40));
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1);

    for number in 0..2 {
        stack.start_scheduler(number).await.unwrap();
    }
    for name in ["settles", "sent", "new"] {
        phase_within(&stack, "ml", name, "Bound", FAILOVER).await;
    }
    let entries = audit::read(&stack.cluster.audit_log()).unwrap();
    // A pod is named after its Job: `<job>-<index>-<random>`.
    let gang_of = |_: &str, pod: &str| pod.rsplitn(3, '-').last().map(str::to_owned);
    assert_eq!(audit::torn_bindings(&entries, gang_of), Vec::<String>::new());
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1, "nothing was launched twice");
    invariants_hold(&stack).await;
}
