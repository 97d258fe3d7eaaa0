//! Which pods are a gang, and what they say of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use muster_api::conventions::{Kind, Object, Objects, Recognition, merge, recognise};
use muster_api::keys;
use muster_core::model::gang::{Membership, RankClaim, Recognised};
use serde_json::{Value, json};

#[derive(Debug, Default)]
struct Jobs(BTreeMap<String, Object>);

impl Objects for Jobs {
    fn by_uid(&self, uid: &str) -> Option<&Object> {
        self.0.get(uid)
    }

    fn by_name(&self, _: Kind, _: &str, _: &str) -> Option<&Object> {
        None
    }
}

fn pod(annotations: &Value, owner: Option<(&str, &str, &str)>) -> Pod {
    let owners: Vec<Value> = owner
        .map(|(kind, name, uid)| {
            let version = if kind == "Job" { "batch/v1" } else { "example.com/v1" };
            json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true})
        })
        .into_iter()
        .collect();
    let metadata = json!({"name": "p", "namespace": "ns", "uid": "pod-uid", "annotations": annotations, "ownerReferences": owners});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap()
}

fn job(annotations: &Value, spec: &Value) -> Jobs {
    let job = json!({"metadata": {"name": "train", "namespace": "ns", "uid": "12345678-9", "annotations": annotations}, "spec": spec});
    let mut spec = json!({"template": {"spec": {"containers": []}}});
    spec.as_object_mut().unwrap().extend(job["spec"].as_object().unwrap().clone());
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": job["metadata"], "spec": spec});
    Jobs(BTreeMap::from([("12345678-9".to_owned(), Object::read(&job).unwrap().slim())]))
}

const OWNER: Option<(&str, &str, &str)> = Some(("Job", "train", "12345678-9"));

#[test]
fn the_uid_of_an_owner_in_another_namespace_or_of_another_kind_is_not_followed() {
    let jobs = job(&json!({"muster.dev/gang": "theirs"}), &json!({"completions": 2}));
    assert!(recognise(&pod(&json!({}), OWNER), &jobs).membership.gang().is_some());
    let mut foreign = pod(&json!({}), OWNER);
    foreign.metadata.namespace = Some("other".to_owned());
    let mut disguised = pod(&json!({}), OWNER);
    disguised.metadata.owner_references.as_mut().unwrap()[0].kind = "StatefulSet".to_owned();
    disguised.metadata.owner_references.as_mut().unwrap()[0].api_version = "apps/v1".to_owned();
    for pod in [foreign, disguised] {
        let found = recognise(&pod, &jobs);
        assert_eq!((found.membership, found.gang), (Membership::Unknown, None));
        assert_eq!(found.missing.unwrap().uid, "12345678-9", "an owner of that UID may still come");
    }
}

/// What a bare pod with these annotations says of its gang.
#[track_caller]
fn bare(annotations: &Value) -> Recognised {
    let found = recognise(&pod(annotations, None), &Jobs::default());
    let gang = found.gang.expect("a member");
    assert_eq!(found.membership.gang(), Some(&gang.key));
    Recognised::clone(&gang)
}

/// What a pod of a Job says.
fn owned(on_pod: &Value, on_job: &Value, spec: &Value) -> Recognition {
    recognise(&pod(on_pod, OWNER), &job(on_job, spec))
}

#[track_caller]
fn reason(gang: &Recognised) -> &'static str {
    let invalid = gang.invalid.as_ref().expect("invalid");
    assert!(!invalid.message.is_empty());
    invalid.reason.as_str()
}

#[test]
fn a_pod_without_an_owner_or_a_topology_request_is_single() {
    let found = recognise(&pod(&json!({}), None), &Jobs::default());
    assert_eq!((found.membership, found.gang, found.missing), (Membership::Single, None, None));
}

#[test]
fn an_annotation_on_the_pod_names_the_gang_and_its_members() {
    let gang = bare(&json!({"muster.dev/gang": "train", "muster.dev/gang-size": "8", "muster.dev/gang-min": "6"}));
    assert_eq!((&*gang.key.namespace, &*gang.key.name), ("ns", "train"));
    assert_eq!((gang.size, gang.min, gang.source.convention), (Some(8), Some(6), "annotations"));
    assert_eq!(gang.invalid, None);
}

#[test]
fn a_job_opts_in_by_exactly_these_annotations_on_itself_or_its_pods() {
    let keys = [
        keys::GANG,
        keys::GANG_SIZE,
        keys::GANG_MIN,
        keys::TOPOLOGY_REQUIRED,
        keys::TOPOLOGY_PREFERRED,
        keys::SLICE_SIZE,
        keys::SLICE_TOPOLOGY,
        keys::EXCLUSIVE_TOPOLOGY,
        keys::BALANCE_TOPOLOGY,
        keys::PLACEMENT_GROUP,
    ];
    let spec = json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed"});
    for key in keys {
        let topology_request = json!({key: "2"});
        assert!(owned(&topology_request, &json!({}), &spec).gang.is_some(), "{key} on the pod");
        assert!(owned(&json!({}), &topology_request, &spec).gang.is_some(), "{key} on the Job");
    }
    for key in [
        keys::KUEUE_REQUIRED_TOPOLOGY,
        keys::KUEUE_PREFERRED_TOPOLOGY,
        keys::KUEUE_UNCONSTRAINED_TOPOLOGY,
        keys::KUEUE_SLICE_TOPOLOGY,
        keys::KUEUE_SLICE_CONSTRAINTS,
    ] {
        assert!(owned(&json!({key: "2"}), &json!({}), &spec).gang.is_some(), "{key} on the pod");
    }
    for key in ["muster.dev/demo-complete-after", keys::RANK, keys::PLAN_EPOCH, keys::REQUEUE, "muster.dev/gangs"] {
        let other = json!({key: "2"});
        let found = owned(&other, &other, &spec);
        assert_eq!(found.membership, Membership::Single, "{key} makes no gang");
    }
}

#[test]
fn the_pod_is_read_before_its_job() {
    let spec = json!({"parallelism": 4, "completions": 4});
    let found = owned(
        &json!({"muster.dev/gang-size": "3"}),
        &json!({"muster.dev/gang-size": "4", "muster.dev/topology-required": "rack"}),
        &spec,
    );
    let gang = found.gang.unwrap();
    assert_eq!(gang.size, Some(3));
    assert_eq!(&*gang.topology_requests.required.as_ref().unwrap().value, "rack");
}

#[test]
fn the_size_of_a_job_is_the_smaller_of_parallelism_and_completions() {
    for (spec, size) in [
        (json!({"parallelism": 4, "completions": 4}), Some(4)),
        (json!({"parallelism": 4, "completions": 3}), Some(3)),
        (json!({"parallelism": 4, "completions": 8}), Some(4)),
        (json!({"parallelism": 4}), Some(4)),
        (json!({}), Some(1)),
        (json!({"parallelism": 0, "completions": 4}), None),
    ] {
        let gang = owned(&json!({}), &json!({"muster.dev/topology-preferred": "rack"}), &spec).gang.unwrap();
        assert_eq!((gang.size, gang.source.convention), (size, "job"), "{spec}");
    }
}

#[test]
fn indexes_that_come_in_waves_never_stand_together() {
    let spec = json!({"parallelism": 4, "completions": 8, "completionMode": "Indexed"});
    let gang = owned(&json!({}), &json!({"muster.dev/gang-size": "4"}), &spec).gang.unwrap();
    assert_eq!(reason(&gang), "SequentialCreation");
}

#[test]
fn numbers_that_are_none_make_the_gang_invalid() {
    for value in ["0", "-1", "", "4.0", "four", "99999999999", "+4", " 4"] {
        assert_eq!(
            reason(&bare(&json!({"muster.dev/gang": "g", "muster.dev/gang-size": value}))),
            "BadNumber",
            "{value:?}"
        );
        assert_eq!(
            reason(&bare(&json!({"muster.dev/gang": "g", "muster.dev/gang-min": value}))),
            "BadNumber",
            "{value:?}"
        );
    }
    let above = bare(&json!({"muster.dev/gang": "g", "muster.dev/gang-size": "4", "muster.dev/gang-min": "5"}));
    assert_eq!(reason(&above), "BadNumber");
    assert_eq!(reason(&bare(&json!({"muster.dev/gang": "g", "muster.dev/gang-size": "5001"}))), "TooManyMembers");
    assert_eq!(bare(&json!({"muster.dev/gang": "g", "muster.dev/gang-size": "5000"})).invalid, None);
}

#[test]
fn a_topology_request_that_is_not_understood_is_never_dropped() {
    for key in [keys::SLICE_SIZE, keys::SLICE_TOPOLOGY] {
        assert_eq!(reason(&bare(&json!({"muster.dev/gang": "g", key: "2"}))), "IncompleteTopologyRequest");
    }
    assert_eq!(reason(&bare(&json!({"muster.dev/gang": "g", "muster.dev/placement-group": "maybe"}))), "BadValue");
    for policy in ["required", "preferred", "none"] {
        assert_eq!(bare(&json!({"muster.dev/gang": "g", "muster.dev/placement-group": policy})).invalid, None);
    }
}

/// DNS-1123 subdomain, as the API server checks `metadata.name`.
fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[test]
fn whatever_the_name_the_object_has_one_of_its_own_that_the_api_server_takes() {
    let long = "x".repeat(300);
    let names = [
        "",
        "%",
        "100%",
        "Train",
        "train",
        "a.b",
        "a-b",
        "a..b",
        "a.-b",
        "-a",
        "a-",
        "тренировка",
        "列車",
        "a b",
        "../x",
        &long,
    ];
    let mut seen = BTreeMap::new();
    for name in names {
        let gang = bare(&json!({"muster.dev/gang": name, "muster.dev/gang-size": "2"}));
        assert!(is_object_name(&gang.key.name), "{name:?} became {}", gang.key);
        assert_eq!(gang.invalid.is_some(), !is_object_name(name) || name.len() > 200, "{name:?}");
        assert_eq!(&*gang.source.identity, name);
        assert_eq!(seen.insert(gang.key.clone(), name), None, "{name:?}: two gangs, one object");
        // The same under an owner.
        let owned = recognise(
            &pod(&json!({"muster.dev/gang": name}), Some(("Other", "o", "ABC-DEF-012345"))),
            &Jobs::default(),
        );
        assert!(is_object_name(&owned.gang.unwrap().key.name));
    }
}

#[test]
fn two_gangs_of_one_name_in_two_jobs_stay_apart() {
    let annotations = json!({"muster.dev/gang": "train", "muster.dev/gang-size": "2"});
    let of = |uid: &str| {
        let mut jobs = job(&json!({}), &json!({}));
        let job = jobs.0.remove("12345678-9").unwrap();
        jobs.0.insert(uid.to_owned(), job);
        recognise(&pod(&annotations, Some(("Job", "train", uid))), &jobs).gang.unwrap().key.clone()
    };
    assert_ne!(of("11111111-a"), of("22222222-a"));
    assert_eq!(of("11111111-a"), of("11111111-a"));
}

#[test]
fn a_job_that_is_not_cached_leaves_the_pod_unknown() {
    for annotations in [json!({}), json!({"muster.dev/gang": "train"})] {
        let found = recognise(&pod(&annotations, OWNER), &Jobs::default());
        assert_eq!((found.membership, found.gang.is_none()), (Membership::Unknown, true));
        let missing = found.missing.unwrap();
        assert_eq!(
            (missing.kind.as_str(), missing.name.as_str(), missing.uid.as_str()),
            ("Job", "train", "12345678-9")
        );
    }
}

#[test]
fn an_owner_of_another_kind_ends_the_chain() {
    let owner = Some(("JobSet", "set", "set-uid"));
    assert_eq!(recognise(&pod(&json!({}), owner), &Jobs::default()).membership, Membership::Single);
    let found = recognise(&pod(&json!({"muster.dev/gang": "g"}), owner), &Jobs::default());
    let gang = found.gang.unwrap();
    assert_eq!(gang.source.owner, None, "only an owner that Muster reads may own the Gang");
    assert_eq!(&*gang.key.name, "g-setuid");
}

#[test]
fn owners_in_a_circle_come_to_an_end() {
    let mut jobs = job(&json!({"muster.dev/gang-size": "2"}), &json!({}));
    let circle = pod(&json!({}), OWNER).metadata.owner_references;
    jobs.0.get_mut("12345678-9").unwrap().metadata.owner_references = circle;
    assert!(recognise(&pod(&json!({}), OWNER), &jobs).gang.is_some());
}

#[test]
fn ranks_come_from_the_annotation_then_from_the_completion_index() {
    let rank =
        |annotations: &Value| match owned(annotations, &json!({"muster.dev/gang-size": "4"}), &json!({})).membership {
            Membership::Member { rank, .. } => rank,
            other => panic!("{other:?}"),
        };
    assert_eq!(rank(&json!({})), RankClaim::Missing);
    assert_eq!(rank(&json!({keys::JOB_COMPLETION_INDEX: "10"})), RankClaim::Rank(10));
    assert_eq!(rank(&json!({keys::JOB_COMPLETION_INDEX: "10", keys::RANK: "2"})), RankClaim::Rank(2));
    assert_eq!(rank(&json!({keys::RANK: "two"})), RankClaim::NotInteger("two".into()));
    let mut labelled = pod(&json!({"muster.dev/gang": "g"}), None);
    labelled.metadata.labels = Some(BTreeMap::from([(keys::JOB_COMPLETION_INDEX.to_owned(), "3".to_owned())]));
    let Membership::Member { rank, .. } = recognise(&labelled, &Jobs::default()).membership else { panic!("a member") };
    assert_eq!(rank, RankClaim::Rank(3));
}

#[test]
fn a_booking_is_read_and_does_not_make_a_gang() {
    let annotation = json!({keys::CONSUME_PROVISIONING_REQUEST: "request"});
    assert_eq!(recognise(&pod(&annotation, None), &Jobs::default()).membership, Membership::Single);
    let gang = bare(&json!({"muster.dev/gang": "g", keys::CONSUME_PROVISIONING_REQUEST: "request"}));
    assert_eq!(gang.booking.as_deref(), Some("request"));
}

/// Sizes and levels of the slices of a gang with these two annotations.
fn slices(size: &str, level: &str) -> Result<Vec<(u32, String)>, &'static str> {
    let gang =
        bare(&json!({"muster.dev/gang": "g", "muster.dev/slice-size": size, "muster.dev/slice-topology": level}));
    match gang.invalid {
        Some(invalid) => Err(invalid.reason.as_str()),
        None => {
            Ok(gang.topology_requests.slices.iter().map(|slice| (slice.size, slice.level.value.to_string())).collect())
        }
    }
}

#[test]
fn slices_are_a_size_and_a_level_or_lists_of_both() {
    assert_eq!(slices("4", "rack"), Ok(vec![(4, "rack".to_owned())]));
    assert_eq!(slices("8, 4", "rack,host"), Ok(vec![(8, "rack".to_owned()), (4, "host".to_owned())]));
    assert_eq!(slices("8,3", "rack,host"), Err("BadNumber"), "3 does not divide 8");
    assert_eq!(slices("0", "rack"), Err("BadNumber"));
    assert_eq!(slices("8,4", "rack"), Err("BadValue"));
}

#[test]
fn exclusive_and_balanced_levels_are_topology_requests() {
    let topology_requests = bare(&json!({"muster.dev/gang": "g", "muster.dev/exclusive-topology": "rack", "muster.dev/balance-topology": "leaf"})).topology_requests;
    assert_eq!(
        (&*topology_requests.exclusive.unwrap().value, &*topology_requests.balance.unwrap().value),
        ("rack", "leaf")
    );
}

#[test]
fn pods_that_name_their_role_are_one_gang_whatever_their_owners() {
    let of = |role: &str, uid: &str| {
        let annotations = json!({"muster.dev/gang": "train", "muster.dev/gang-size": "3", "muster.dev/role": role});
        let mut jobs = job(&json!({}), &json!({"parallelism": 1}));
        let job = jobs.0.remove("12345678-9").unwrap();
        jobs.0.insert(uid.to_owned(), job);
        recognise(&pod(&annotations, Some(("Job", "train", uid))), &jobs).gang.unwrap()
    };
    let (leader, worker) = (of("leader", "11111111-a"), of("worker", "22222222-a"));
    assert_eq!(leader.key, worker.key);
    let stated = [(&Arc::from("worker"), &worker), (&Arc::from("leader"), &leader)];
    let merged = merge(stated.into_iter()).unwrap();
    let roles: Vec<&str> = merged.roles.iter().map(|role| &*role.name).collect();
    assert_eq!((roles, merged.size), (vec!["leader", "worker"], Some(3)));
}

#[test]
fn thousands_of_roles_that_pods_list_are_not_kept() {
    let of = |number: usize| {
        let groups: Vec<Value> =
            (0..5_000).map(|group| json!({"name": format!("r-{number}-{group}"), "minMember": u32::MAX})).collect();
        let annotations = json!({"yunikorn.apache.org/task-groups": serde_json::to_string(&groups).unwrap()});
        let mut pod = pod(&annotations, None);
        pod.metadata.labels = Some([("applicationId".to_owned(), "app".to_owned())].into());
        (Arc::from(format!("r-{number}-0")), recognise(&pod, &Jobs::default()).gang.unwrap())
    };
    let stated: Vec<(Arc<str>, Arc<Recognised>)> = (0..5).map(of).collect();
    let merged = merge(stated.iter().map(|(role, gang)| (role, gang))).unwrap();
    assert_eq!(merged.roles.len(), muster_core::gang::MAX_ROLES + 1, "one too many is enough to refuse it by name");
}

#[test]
fn roles_that_asks_for_different_things_make_the_gang_invalid() {
    let of = |role: &str, level: &str| {
        let gang = json!({"muster.dev/gang": "g", "muster.dev/gang-size": "2", "muster.dev/role": role, "muster.dev/topology-required": level});
        Arc::new(bare(&gang))
    };
    let (leader, worker) = (of("leader", "rack"), of("worker", "zone"));
    let merged = merge([(&Arc::from("leader"), &leader), (&Arc::from("worker"), &worker)].into_iter()).unwrap();
    assert_eq!(reason(&merged), "ConflictingTopologyRequests");
}
