//! What the store publishes follows from what it was given, whatever the order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use muster::cluster::{Cluster, Store, StoreOptions};
use muster_api::conventions::{Kind, Object, Objects as _};
use muster_api::crd::{Gang, NodeBatch};
use muster_core::model::gang::Foreign;
use muster_core::model::names::ObjectKey;
use muster_core::model::snapshot::Assignment;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

const PHASES: [&str; 6] = ["Collecting", "Planned", "Released", "Committing", "Bound", "Finished"];
const GANGS: u32 = 4;
const MEMBERS: u32 = 3;

fn pod(gang: u32, rank: u32, rng: &mut ChaCha8Rng) -> Pod {
    let uid = format!("u{gang}-{rank}");
    // Now and then a pod changes over to another gang.
    let of = if rng.random_bool(0.1) { (gang + 1) % GANGS } else { gang };
    let node = rng.random_bool(0.4).then(|| format!("n{rank}"));
    let requests = json!({"nvidia.com/gpu": rng.random_range(1..=8).to_string()});
    serde_json::from_value(json!({
        "metadata": {
            "name": uid, "namespace": "ns", "uid": uid,
            "annotations": {"muster.dev/gang": format!("g{of}"), "muster.dev/gang-size": MEMBERS.to_string()},
        },
        "spec": {
            "schedulerName": "muster", "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
        },
        "status": {"phase": if rng.random_bool(0.1) { "Succeeded" } else { "Pending" }},
    }))
    .unwrap()
}

fn gang(number: u32, version: u64, rng: &mut ChaCha8Rng) -> Gang {
    let places: Vec<_> = (0..MEMBERS)
        .map(|rank| json!({"rank": rank, "node": rank, "uid": rng.random_bool(0.8).then(|| format!("u{number}-{rank}"))}))
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "Gang",
        "metadata": {
            "name": format!("g{number}"), "namespace": "ns", "uid": format!("gang{number}"),
            "resourceVersion": version.to_string(),
        },
        "spec": {
            "size": MEMBERS, "min": MEMBERS, "roles": [], "wishes": {},
            "source": {"convention": "annotations", "identity": format!("g{number}")},
        },
        "status": {
            "phase": PHASES[rng.random_range(0..PHASES.len())], "epoch": 1,
            "plan": {"minimum": MEMBERS, "nodes": ["n0", "n1", "n2"], "places": places},
        },
    }))
    .unwrap()
}

/// In an order of its own, since gangs and nodes are walked in several.
fn sorted(assignments: impl IntoIterator<Item = (String, Vec<Assignment>)>) -> BTreeMap<String, Vec<String>> {
    assignments
        .into_iter()
        .map(|(node, assignments)| {
            let mut assignments: Vec<String> = assignments.iter().map(|assignment| format!("{assignment:?}")).collect();
            assignments.sort();
            (node, assignments)
        })
        .collect()
}

fn store(kinds: &[&'static str], owners: &[Kind]) -> (Store, Cluster) {
    let options = StoreOptions {
        scheduler_names: vec!["muster".to_owned()],
        provisioner_scheduler_names: Vec::new(),
        accelerators: Vec::new(),
        max_age: Duration::from_secs(3600),
    };
    Store::new(options, kinds, owners)
}

#[test]
fn the_assignments_that_are_published_are_those_of_all_plans_whatever_changed_before() {
    let (mut store, cluster) = store(&[], &[]);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut assigned, mut version) = (0, 0);
    for step in 0..3_000 {
        let (number, rank) = (rng.random_range(0..GANGS), rng.random_range(0..MEMBERS));
        version += 1;
        match rng.random_range(0..10) {
            0..5 => store.apply_pod(pod(number, rank, &mut rng)),
            5 => store.delete_pod(&format!("u{number}-{rank}")),
            6..9 => store.apply_gang(gang(number, version, &mut rng)),
            _ => {
                // A Gang that is gone does not come again under its UID.
                let keys =
                    (0..GANGS).filter(|_| rng.random_bool(0.9)).map(|gang| ObjectKey::new("ns", format!("g{gang}")));
                store.retain_gangs(&keys.collect());
            }
        }
        if rng.random_bool(0.5) {
            continue;
        }
        store.publish();
        let state = cluster.load();
        let named = |(node, assignments): (&muster_core::model::names::NodeName, &Vec<Assignment>)| {
            (node.to_string(), assignments.clone())
        };
        let published = sorted(state.snapshot.assignments.iter().map(named));
        assert_eq!(published, sorted(state.snapshot.plan_assignments().iter().map(named)), "step {step}");
        assigned += published.len();
    }
    assert!(assigned > 1_000, "only {assigned} nodes had assignments");
}

#[test]
fn of_another_scheduler_that_is_provisioned_for_pods_of_no_gang_are_planned_and_nothing_is_a_gang() {
    let options = StoreOptions {
        scheduler_names: vec!["muster".to_owned()],
        provisioner_scheduler_names: vec!["default-scheduler".to_owned(), "muster".to_owned()],
        accelerators: Vec::new(),
        max_age: Duration::from_secs(3600),
    };
    let (mut store, cluster) = Store::new(options, &[], &[]);
    let pod = |uid: &str, scheduler: &str, owner: Option<&str>, annotations: serde_json::Value| {
        let owners = owner.map(|kind| {
            let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
            json!([{"apiVersion": version, "kind": kind, "name": kind, "uid": kind, "controller": true}])
        });
        let metadata = json!({
            "name": uid, "namespace": "ns", "uid": uid, "ownerReferences": owners, "annotations": annotations,
        });
        let spec = json!({"schedulerName": scheduler, "containers": []});
        serde_json::from_value::<Pod>(json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    let gang = json!({"muster.dev/gang": "g", "muster.dev/gang-size": "1"});
    store.apply_pod(pod("own", "muster", None, json!({})));
    store.apply_pod(pod("plain", "default-scheduler", None, json!({})));
    store.apply_pod(pod("member", "default-scheduler", None, gang));
    store.apply_pod(pod("daemon", "default-scheduler", Some("DaemonSet"), json!({})));
    store.apply_pod(pod("other", "other", None, json!({})));
    store.apply_pod(pod("of-job", "default-scheduler", Some("Job"), json!({})));
    let found = |store: &mut Store, uid: &str| {
        store.publish();
        let state = cluster.load();
        assert!(state.snapshot.members.is_empty(), "no gang follows from a pod of another scheduler");
        (state.snapshot.pods.get(uid).unwrap().foreign, state.unbound.contains_key(uid))
    };
    assert_eq!(found(&mut store, "own"), (Foreign::Other, true));
    assert_eq!(found(&mut store, "plain"), (Foreign::Provisioned, true));
    assert_eq!(found(&mut store, "member"), (Foreign::OfGang, true));
    assert_eq!(found(&mut store, "daemon"), (Foreign::Other, false));
    assert_eq!(found(&mut store, "other"), (Foreign::Other, false));
    // Whether its Job is a gang is not known before the Job is.
    assert_eq!(found(&mut store, "of-job"), (Foreign::Other, true));
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "Job", "namespace": "ns", "uid": "Job"},
        "spec": {"parallelism": 1, "template": {"spec": {"containers": []}}},
    });
    store.apply_object(Object::read(&job).unwrap());
    assert_eq!(found(&mut store, "of-job"), (Foreign::Provisioned, true));
}

#[test]
fn a_pod_that_names_a_daemonset_is_trusted_once_that_is_known_in_its_namespace() {
    let (mut store, cluster) = store(&[], &[]);
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true});
    for namespace in ["ns", "other"] {
        let metadata = json!({"name": "p", "namespace": namespace, "uid": namespace, "ownerReferences": [owner]});
        store.apply_pod(serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap());
    }
    let daemons = |store: &mut Store| {
        store.publish();
        let state = cluster.load();
        ["ns", "other"].map(|uid| state.snapshot.pods.get(uid).unwrap().daemon)
    };
    assert_eq!(daemons(&mut store), [false, false], "anybody may write an owner");
    let set: DaemonSet =
        serde_json::from_value(json!({"metadata": {"name": "d", "namespace": "ns", "uid": "d"}})).unwrap();
    store.apply_daemon_set(&set);
    assert_eq!(daemons(&mut store), [true, false], "and in a namespace where there is none, too");
    store.delete_daemon_set("d");
    let metadata = json!({"name": "q", "namespace": "ns", "uid": "other", "ownerReferences": [owner]});
    store.apply_pod(serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap());
    assert_eq!(daemons(&mut store), [true, false], "one that comes after it is none of it");
}

#[test]
fn what_daemon_sets_take_is_published_and_their_status_is_not() {
    let (mut store, cluster) = store(&["daemonsets"], &[]);
    let set = |name: &str, cpu: &str, ready: i32| -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "kube-system", "uid": format!("uid-of-{name}")},
            "spec": {"selector": {}, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"disk": "fast"},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
                },
            }},
            "status": {"currentNumberScheduled": ready, "desiredNumberScheduled": ready, "numberMisscheduled": 0,
                       "numberReady": ready},
        }))
        .unwrap()
    };
    let mut published = |change: &dyn Fn(&mut Store)| {
        change(&mut store);
        store.publish();
        let state = cluster.load();
        let cpu = state.daemons.iter().map(|shape| shape.requests.get("cpu")).collect::<Vec<_>>();
        (state.snapshot.version, cpu)
    };
    let (first, daemons) = published(&|store| {
        store.apply_daemon_set(&set("b", "2", 0));
        store.apply_daemon_set(&set("a", "1", 0));
        store.synced("daemonsets");
    });
    assert_eq!(daemons, [1000, 2000], "in order of name");
    assert_eq!(published(&|store| store.apply_daemon_set(&set("a", "1", 7))), (first, vec![1000, 2000]));
    assert_eq!(published(&|store| store.apply_daemon_set(&set("a", "3", 7))), (first + 1, vec![3000, 2000]));
    assert_eq!(published(&|store| store.delete_daemon_set("uid-of-b")), (first + 2, vec![3000]));
    assert_eq!(published(&|store| store.retain_daemon_sets(&BTreeSet::new())), (first + 3, vec![]));
}

#[test]
fn a_node_that_cannot_be_read_any_more_is_as_it_was_and_that_of_another_machine_is_absent() {
    let (mut store, cluster) = store(&["nodes"], &[]);
    let node = |instance: &str, gpus: &str| -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n0"},
            "spec": {"providerID": format!("aws:///a/{instance}")},
            "status": {"allocatable": {"nvidia.com/gpu": gpus}},
        }))
        .unwrap()
    };
    let mut gpus = |node: &Node| {
        store.apply_node(node);
        store.publish();
        let state = cluster.load();
        state.snapshot.nodes.get("n0").map(|entry| entry.node.allocatable.get("nvidia.com/gpu"))
    };
    assert_eq!(gpus(&node("i-1", "eight")), None);
    assert_eq!(gpus(&node("i-1", "8")), Some(8));
    assert_eq!(gpus(&node("i-1", "eight")), Some(8));
    assert_eq!(gpus(&node("i-2", "eight")), None);
}

#[test]
fn labels_of_namespaces_are_published_and_those_that_are_gone_are_not() {
    let (mut store, cluster) = store(&["namespaces"], &[]);
    let namespace = |name: &str, tier: &str, phase: &str| -> Namespace {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"tier": tier}}, "status": {"phase": phase}}),
        )
        .unwrap()
    };
    let mut published = |change: &dyn Fn(&mut Store)| {
        change(&mut store);
        store.publish();
        let state = cluster.load();
        let tiers = state.namespaces.iter().map(|(name, labels)| format!("{name} {}", labels["tier"]));
        (state.snapshot.version, tiers.collect::<Vec<_>>())
    };
    let (first, tiers) = published(&|store| {
        store.apply_namespace(&namespace("web", "front", "Active"));
        store.apply_namespace(&namespace("ml", "back", "Active"));
        store.synced("namespaces");
    });
    assert_eq!(tiers, ["ml back", "web front"]);
    assert_eq!(published(&|store| store.apply_namespace(&namespace("ml", "back", "Terminating"))).0, first);
    assert_eq!(
        published(&|store| store.apply_namespace(&namespace("ml", "other", "Active"))),
        (first + 1, vec!["ml other".to_owned(), "web front".to_owned()])
    );
    assert_eq!(published(&|store| store.delete_namespace("web")), (first + 2, vec!["ml other".to_owned()]));
    assert_eq!(published(&|store| store.retain_namespaces(&BTreeSet::new())), (first + 3, vec![]));
}

#[test]
fn a_heartbeat_or_a_status_that_nobody_reads_publishes_nothing() {
    let (mut store, cluster) = store(&["pods"], &[]);
    let node = |beat: &str, gpus: &str| -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n0", "resourceVersion": beat},
            "status": {
                "allocatable": {"nvidia.com/gpu": gpus},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": format!("2026-01-01T00:00:0{beat}Z")}],
            },
        }))
        .unwrap()
    };
    let pod = |message: &str, node: Option<&str>| -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "a", "namespace": "ns", "uid": "a", "resourceVersion": message,
                "annotations": {"muster.dev/gang": "g", "muster.dev/gang-size": "2"},
            },
            "spec": {
                "schedulerName": "muster", "nodeName": node, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}}],
            },
            "status": {"phase": "Pending", "message": message},
        }))
        .unwrap()
    };
    store.apply_node(&node("1", "8"));
    store.apply_pod(pod("1", None));
    store.publish();
    let first = cluster.load().snapshot.version;

    store.apply_node(&node("2", "8"));
    store.apply_pod(pod("2", None));
    store.publish();
    assert_eq!(cluster.load().snapshot.version, first, "nothing that anybody reads has changed");

    // What is read is published, each by itself.
    store.apply_node(&node("3", "7"));
    store.publish();
    assert_eq!(cluster.load().snapshot.version, first + 1);
    store.apply_pod(pod("4", Some("n0")));
    store.publish();
    assert_eq!(cluster.load().snapshot.version, first + 2);
    assert_ne!(
        *cluster.load().snapshot.nodes[&muster_core::model::names::NodeName::from("n0")].usage,
        muster_core::model::node::Usage::default()
    );
    store.synced("pods");
    store.publish();
    assert!(cluster.load().snapshot.synced);
    assert_eq!(cluster.load().snapshot.version, first + 3);
    store.delete_pod("a");
    store.publish();
    assert_eq!(cluster.load().snapshot.version, first + 4);
}

#[test]
fn a_gang_made_again_under_its_name_outlives_the_news_of_the_first_one_s_end() {
    let (mut store, cluster) = store(&[], &[]);
    let of = |uid: &str, version: u64| {
        let mut gang = gang(0, version, &mut ChaCha8Rng::seed_from_u64(1));
        gang.metadata.uid = Some(uid.to_owned());
        gang
    };
    let key = ObjectKey::new("ns", "g0");
    store.apply_gang(of("first", 1));
    // An answer to an own write overtakes the watch.
    store.apply_gang(of("second", 5));
    store.delete_gang(&key, "first");
    store.apply_gang(of("second", 6));
    store.apply_gang(of("first", 2));
    store.publish();
    assert_eq!(&*cluster.load().snapshot.gangs[&key].uid, "second");
    assert_eq!(&*cluster.load().snapshot.gangs[&key].resource_version, "6");
    store.delete_gang(&key, "second");
    store.publish();
    assert!(!cluster.load().snapshot.gangs.contains_key(&key));
}

#[test]
fn nothing_is_decided_before_it_is_known_of_every_kind_of_owner_whether_it_can_be_listed() {
    let owners = [Kind::Job, Kind::JobSet, Kind::LeaderWorkerSet];
    let (mut store, cluster) = store(&["pods"], &owners);
    let mut synced = |change: &dyn Fn(&mut Store)| {
        change(&mut store);
        store.publish();
        cluster.load().snapshot.synced
    };
    assert!(!synced(&|store| store.synced("pods")));
    assert!(!synced(&|store| store.retain_objects(Kind::Job, &BTreeSet::new())));
    assert!(!synced(&|store| store.unserved(Kind::LeaderWorkerSet)));
    assert!(synced(&|store| store.unlisted(Kind::JobSet, "500: no")), "nobody waits for what cannot be listed");
    let named: Vec<(Kind, String)> =
        cluster.load().unlisted.iter().map(|(kind, why)| (*kind, why.to_string())).collect();
    assert_eq!(named, [(Kind::JobSet, "500: no".to_owned())]);
    assert!(synced(&|store| store.retain_objects(Kind::JobSet, &BTreeSet::new())));
    assert!(cluster.load().unlisted.is_empty(), "it was listed after all");
    assert!(synced(&|store| store.unlisted(Kind::JobSet, "403: no longer")), "others go on");
    assert_eq!(cluster.load().unlisted.get(&Kind::JobSet).map(AsRef::as_ref), Some("403: no longer"));
    assert!(synced(&|store| store.unserved(Kind::JobSet)));
    assert!(cluster.load().unlisted.is_empty(), "it is heard from again");
}

#[test]
fn a_job_of_which_only_the_status_changed_publishes_nothing_and_its_template_is_not_kept() {
    let (mut store, cluster) = store(&[], &[]);
    let job = |version: &str, parallelism: u32| {
        let object = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "namespace": "ns", "uid": "j", "resourceVersion": version, "generation": 1},
            "spec": {"parallelism": parallelism, "template": {"spec": {"containers": [{"name": "main"}]}}},
        });
        Object::read(&object).unwrap().slim()
    };
    store.apply_object(job("1", 2));
    store.publish();
    let first = cluster.load().snapshot.version;
    assert_eq!(cluster.load().objects.by_uid("j").unwrap().spec, json!({"parallelism": 2}));
    store.apply_object(job("2", 2));
    store.publish();
    assert_eq!(cluster.load().snapshot.version, first);
    store.apply_object(job("3", 4));
    store.publish();
    assert_eq!(cluster.load().snapshot.version, first + 1, "who reads it may be another gang now");
}

#[test]
fn what_a_pod_tolerates_is_kept_although_its_owner_is_seen_later() {
    let (mut store, cluster) = store(&[], &[]);
    let pod = json!({
        "metadata": {
            "name": "j-0", "namespace": "ns", "uid": "p",
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true},
            ],
        },
        "spec": {
            "schedulerName": "muster",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 3600}],
            "containers": [{"name": "main"}],
        },
    });
    store.apply_pod(serde_json::from_value(pod).unwrap());
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "j", "namespace": "ns", "uid": "j", "resourceVersion": "1", "generation": 1,
            "annotations": {"muster.dev/gang": "train"},
        },
        "spec": {"parallelism": 1, "template": {"spec": {"containers": [{"name": "main"}]}}},
    });
    store.apply_object(Object::read(&job).unwrap().slim());
    store.publish();
    let state = cluster.load();
    assert!(state.snapshot.pods.get("p").unwrap().membership.gang().is_some(), "it is a member by now");
    let kept = &state.lists.get("p").unwrap().tolerations;
    assert_eq!(kept[0].toleration_seconds, Some(3600));
}

/// A batch for pods of no gang, of two nodes with three pods each; each instance with its state and Node.
fn launched(name: &str, instances: &[(&str, Option<&str>)]) -> NodeBatch {
    let member = |(place, (state, node)): (usize, &(&str, Option<&str>))| json!({"id": format!("i-{name}-{place}"), "attempt": 1, "state": state, "place": place, "node": node});
    let instances: Vec<_> = instances.iter().enumerate().map(member).collect();
    serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch", "metadata": {"name": name, "uid": name},
        "spec": {
            "nodePools": ["p"], "count": 2, "fill": "Partial", "offers": [],
            "fillings": [{"nodes": 2, "pods": [{"class": "3-web", "count": 3}, {"class": "2-of-another-version", "count": 1}]}],
        },
        "status": {"phase": "Launched", "count": 2, "attempt": 1, "instances": instances},
    }))
    .unwrap()
}

#[test]
fn places_on_instances_that_have_not_registered_are_published_until_they_do_or_are_written_off() {
    let (mut store, cluster) = store(&[], &[]);
    let mut coming = |change: &mut dyn FnMut(&mut Store)| {
        change(&mut store);
        store.publish();
        let coming = &cluster.load().snapshot.coming;
        assert!(coming.keys().all(|class| &**class == "3-web"), "{coming:?}");
        coming.get("3-web").copied()
    };
    let boots = [("Launched", None), ("Running", None)];
    assert_eq!(coming(&mut |store| store.apply_batch(launched("a", &boots))), Some(6));
    assert_eq!(coming(&mut |store| store.apply_batch(launched("b", &boots))), Some(12));
    assert_eq!(coming(&mut |store| store.apply_batch(launched("b", &boots))), Some(12), "seen once more");
    let one_came = [("Registered", Some("n1")), ("Running", None)];
    assert_eq!(coming(&mut |store| store.apply_batch(launched("a", &one_came))), Some(9));
    let one_is_lost = [("Ready", Some("n1")), ("Lost", None)];
    assert_eq!(coming(&mut |store| store.apply_batch(launched("a", &one_is_lost))), Some(6));
    let mut ends = launched("b", &boots);
    ends.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(coming(&mut |store| store.apply_batch(ends.clone())), None);
    assert_eq!(coming(&mut |store| store.apply_batch(launched("b", &boots))), Some(6));
    assert_eq!(coming(&mut |store| store.retain_batches(&BTreeSet::new())), None);
}

#[test]
fn a_node_awaits_its_pods_from_when_it_registers_whether_it_or_its_batch_is_seen_first_until_it_is_gone() {
    let node = |name: &str, instance: &str| -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"providerID": format!("aws:///us-east-1a/{instance}")},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"}},
        }))
        .unwrap()
    };
    let boots = [("Launched", None), ("Running", None)];
    for node_first in [true, false] {
        let (mut store, cluster) = store(&[], &[]);
        let mut seen = |change: &mut dyn FnMut(&mut Store)| {
            change(&mut store);
            store.publish();
            let snapshot = &cluster.load().snapshot;
            let places = |node: &str| snapshot.awaiting.get(node).map(|awaiting| awaiting.places["3-web"].left);
            (places("n1"), places("n2"), snapshot.coming.get("3-web").copied())
        };
        if node_first {
            assert_eq!(seen(&mut |store| store.apply_node(&node("n1", "i-a-0"))), (None, None, None));
            assert_eq!(seen(&mut |store| store.apply_batch(launched("a", &boots))), (Some(3), None, Some(3)));
        } else {
            assert_eq!(seen(&mut |store| store.apply_batch(launched("a", &boots))), (None, None, Some(6)));
            assert_eq!(seen(&mut |store| store.apply_node(&node("n1", "i-a-0"))), (Some(3), None, Some(3)));
        }
        let named = [("Registered", Some("n1")), ("Running", None)];
        assert_eq!(seen(&mut |store| store.apply_batch(launched("a", &named))), (Some(3), None, Some(3)));
        assert_eq!(seen(&mut |store| store.apply_node(&node("n2", "i-a-1"))), (Some(3), Some(3), None));
        assert_eq!(seen(&mut |store| store.apply_node(&node("n3", "i-b-0"))), (Some(3), Some(3), None), "another's");
        assert_eq!(seen(&mut |store| store.delete_node("n2")), (Some(3), None, Some(3)), "it may register once more");
        assert_eq!(seen(&mut |store| store.apply_node(&node("n2", "i-a-1"))), (Some(3), Some(3), None));
        assert_eq!(seen(&mut |store| store.retain_batches(&BTreeSet::new())), (None, None, None));
    }
}
