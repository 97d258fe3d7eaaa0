//! Gangs of other systems, read from objects as their controllers write them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;
use muster_api::conventions::{Kind, NAMES, Object, Objects, Recognition, recognise};
use muster_api::{convert, gang_state};
use muster_core::model::gang::{Membership, RankClaim, Recognised};
use serde_json::{Value, json};

#[derive(Debug, Default)]
struct Known(Vec<Object>);

impl Objects for Known {
    fn by_uid(&self, uid: &str) -> Option<&Object> {
        self.0.iter().find(|object| object.metadata.uid.as_deref() == Some(uid))
    }

    fn by_name(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.0.iter().find(|object| {
            object.kind == kind && object.metadata.namespace.as_deref() == Some(namespace) && object.name() == name
        })
    }
}

/// The documents of a fixture.
fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// What the pod of these documents is, beside the others.
fn recognised(documents: &[Value]) -> Recognition {
    let known = Known(documents.iter().filter_map(Object::read).collect());
    let pod = documents.iter().find(|document| document["kind"] == "Pod").expect("a pod");
    let pod: Pod = serde_json::from_value(convert::keep_scheduling_group(pod.clone())).unwrap();
    recognise(&pod, &known)
}

/// Convention, identity, size, minimum, role and rank in one line, then roles and topology requests.
fn line(recognition: &Recognition) -> String {
    let Some(gang) = &recognition.gang else { return format!("{:?}", recognition.membership) };
    let Membership::Member { role, rank, .. } = &recognition.membership else { panic!("a member") };
    let number = |number: Option<u32>| number.map_or("?".to_owned(), |number| number.to_string());
    let rank = match rank {
        RankClaim::Rank(rank) => rank.to_string(),
        RankClaim::Missing => "-".to_owned(),
        RankClaim::NotInteger(text) => format!("{text:?}"),
    };
    let roles: Vec<String> = gang.roles.iter().map(|role| format!("{}:{}", role.name, number(role.count))).collect();
    let Recognised { source, size, min, topology_requests, invalid, .. } = &**gang;
    let mut line = format!(
        "{} {} {}/{} role={role} rank={rank} [{}]",
        source.convention,
        gang.key.name,
        number(*min),
        number(*size),
        roles.join(" ")
    );
    for (name, topology_request) in [
        ("required", &topology_requests.required),
        ("preferred", &topology_requests.preferred),
        ("exclusive", &topology_requests.exclusive),
    ] {
        if let Some(topology_request) = topology_request {
            let _ = write!(line, " {name}={}", topology_request.value);
        }
    }
    for slice in &topology_requests.slices {
        let _ = write!(line, " slice={}@{}", slice.size, slice.level.value);
    }
    if let Some(invalid) = invalid {
        let _ = write!(line, " {}", invalid.reason);
    }
    line
}

#[track_caller]
fn check(fixture: &str, expected: &str) {
    assert_eq!(line(&recognised(&documents(fixture))), expected);
}

#[test]
fn a_jobset_is_one_gang_of_all_its_jobs() {
    check(include_str!("fixtures/jobset.yaml"), "jobset pytorch-5e7aaaaa ?/5 role=workers rank=2 [leader:1 workers:4]");
}

#[test]
fn a_trainjob_is_the_gang_of_its_jobset() {
    check(include_str!("fixtures/trainjob.yaml"), "jobset tune-7a100000 ?/4 role=node rank=3 [node:4]");
}

#[test]
fn every_group_of_a_leaderworkerset_is_a_gang() {
    check(
        include_str!("fixtures/leaderworkerset.yaml"),
        "leaderworkerset vllm-1-17500000 ?/4 role=worker rank=1 [leader:1 worker:3]",
    );
}

#[test]
fn a_pytorchjob_has_a_master_workers_and_a_minimum() {
    check(
        include_str!("fixtures/pytorchjob.yaml"),
        "kubeflow mnist-70700000 3/5 role=worker rank=1 [master:1 worker:4] required=cloud.provider.com/rack",
    );
}

#[test]
fn a_tfjob_has_a_chief_parameter_servers_workers_and_a_minimum() {
    check(
        include_str!("fixtures/tfjob.yaml"),
        "kubeflow dist-mnist-7f100000 6/7 role=worker rank=2 [chief:1 ps:2 worker:4]",
    );
}

#[test]
fn the_master_of_an_xgboostjob_is_a_member_like_its_workers() {
    let fixture = include_str!("fixtures/xgboostjob.yaml");
    check(fixture, "kubeflow iris-86b00000 ?/3 role=master rank=0 [master:1 worker:2]");
    let gang = recognised(&documents(fixture)).gang.unwrap();
    let why = gang.restart_would_fail.as_deref();
    assert_eq!(why, Some("XGBoostJob iris: spec.xgbReplicaSpecs.Master.restartPolicy is Never"));
}

#[test]
fn worker_0_of_a_paddlejob_without_a_master_is_a_worker() {
    check(include_str!("fixtures/paddlejob.yaml"), "kubeflow resnet-9add0000 ?/2 role=worker rank=0 [worker:2]");
}

#[test]
fn a_jaxjob_is_a_gang_of_its_workers() {
    check(include_str!("fixtures/jaxjob.yaml"), "kubeflow spmd-1a100000 ?/3 role=worker rank=1 [worker:3]");
}

#[test]
fn workers_of_an_mpijob_whose_launcher_works_too_count_from_one() {
    check(include_str!("fixtures/mpijob.yaml"), "kubeflow hpl-3b100000 ?/4 role=worker rank=0 [launcher:1 worker:3]");
}

#[test]
fn every_replica_type_of_every_training_job_is_a_role() {
    // Types as the operators' API has them, in the order of their ranks.
    let kinds: [(&str, &str, &[&str]); 6] = [
        (include_str!("fixtures/pytorchjob.yaml"), "pytorchReplicaSpecs", &["Master", "Worker"]),
        (include_str!("fixtures/tfjob.yaml"), "tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"]),
        (include_str!("fixtures/xgboostjob.yaml"), "xgbReplicaSpecs", &["Master", "Worker"]),
        (include_str!("fixtures/paddlejob.yaml"), "paddleReplicaSpecs", &["Master", "Worker"]),
        (include_str!("fixtures/jaxjob.yaml"), "jaxReplicaSpecs", &["Worker"]),
        (include_str!("fixtures/mpijob.yaml"), "mpiReplicaSpecs", &["Launcher", "Worker"]),
    ];
    for (fixture, specs, types) in kinds {
        let replicas = |(at, name): (usize, &&str)| ((*name).to_owned(), json!({"replicas": at + 2}));
        let all: serde_json::Map<String, Value> = types.iter().enumerate().map(replicas).collect();
        let line = changed(fixture, &format!("/spec/{specs}"), Value::Object(all));
        let role = |(at, name): (usize, &&str)| format!("{}:{}", name.to_ascii_lowercase(), at + 2);
        let roles: Vec<String> = types.iter().enumerate().map(role).collect();
        let sum: usize = (2..types.len() + 2).sum();
        assert!(
            line.contains(&format!("/{sum} ")) && line.contains(&format!("[{}]", roles.join(" "))),
            "{specs}: {line}"
        );
    }
}

#[test]
fn a_raycluster_that_asks_is_a_gang_of_head_and_hosts() {
    let fixture = include_str!("fixtures/raycluster.yaml");
    check(fixture, "ray tune-4a400000 ?/7 role=tpu rank=5 [head:1 tpu:6]");
    let mut documents = documents(fixture);
    documents[0]["metadata"]["labels"] = json!({});
    assert_eq!(recognised(&documents).membership, Membership::Single, "one that does not ask is elastic");
}

#[test]
fn worker_groups_of_a_raycluster_are_as_large_as_kuberay_makes_them() {
    let mut documents = documents(include_str!("fixtures/raycluster.yaml"));
    for (fields, found) in [
        (json!({"replicas": 3}), "?/7 role=tpu rank=5 [head:1 tpu:6]"),
        (json!({"replicas": 0, "minReplicas": 4}), "?/9 role=tpu rank=5 [head:1 tpu:8]"),
        (json!({"minReplicas": 2}), "?/5 role=tpu rank=5 [head:1 tpu:4]"),
        (json!({"replicas": 8, "maxReplicas": 4}), "?/9 role=tpu rank=5 [head:1 tpu:8]"),
        (json!({"replicas": 3, "suspend": true}), "?/1 role=tpu rank=- [head:1]"),
        (json!({}), "?/1 role=tpu rank=- [head:1]"),
    ] {
        let mut group = json!({"groupName": "tpu", "numOfHosts": 2});
        group.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        documents[0]["spec"]["workerGroupSpecs"][0] = group;
        assert_eq!(line(&recognised(&documents)), format!("ray tune-4a400000 {found}"), "{fields}");
    }
}

#[test]
fn an_owner_that_is_suspended_or_scaled_to_none_is_stopped() {
    let stopped = |kind: &str, version: &str, spec: Value| {
        let metadata = json!({"name": "a", "namespace": "ml", "uid": "u"});
        Object::read(&json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}))
            .unwrap()
            .is_stopped()
    };
    for (kind, version, spec) in [
        ("Job", "batch/v1", json!({"suspend": true, "parallelism": 4})),
        ("Job", "batch/v1", json!({"parallelism": 0})),
        ("JobSet", "jobset.x-k8s.io/v1alpha2", json!({"suspend": true})),
        ("PyTorchJob", "kubeflow.org/v1", json!({"runPolicy": {"suspend": true}})),
        ("RayCluster", "ray.io/v1", json!({"suspend": true})),
        ("StatefulSet", "apps/v1", json!({"replicas": 0})),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", json!({"replicas": 0})),
    ] {
        assert!(stopped(kind, version, spec.clone()), "{kind} {spec}");
    }
    for (kind, version, spec) in [
        ("Job", "batch/v1", json!({"suspend": false, "parallelism": 4})),
        ("Job", "batch/v1", json!({})),
        ("JobSet", "jobset.x-k8s.io/v1alpha2", json!({"suspend": false})),
        ("PyTorchJob", "kubeflow.org/v1", json!({"runPolicy": {}})),
        ("StatefulSet", "apps/v1", json!({"replicas": 1})),
        ("RayCluster", "ray.io/v1", json!({"replicas": 0})),
    ] {
        assert!(!stopped(kind, version, spec.clone()), "{kind} {spec}");
    }
}

#[test]
fn coscheduling_names_a_minimum() {
    check(include_str!("fixtures/coscheduling.yaml"), "coscheduling nginx-coscheduling 3/? role= rank=- []");
    check(include_str!("fixtures/coscheduling-old.yaml"), "coscheduling nginx-coscheduling 3/? role= rank=- []");
    // The group does not exist yet: the gang is known, its size is not.
    let pod = documents(include_str!("fixtures/coscheduling.yaml")).split_off(1);
    assert_eq!(line(&recognised(&pod)), "coscheduling nginx-coscheduling ?/? role= rank=- []");
}

#[test]
fn kueue_groups_and_workloads_have_sizes_offsets_and_slices() {
    check(
        include_str!("fixtures/kueue-pod-group.yaml"),
        "kueue-pod-group group-kueue-pod-group ?/4 role= rank=1 [] preferred=cloud.provider.com/block \
         slice=2@cloud.provider.com/rack",
    );
    check(
        include_str!("fixtures/kueue-workload.yaml"),
        "kueue-workload job-train-1a2b3-kueue-workload ?/4 role=main rank=2 [main:4] slice=4@cloud.provider.com/block \
         slice=2@cloud.provider.com/rack",
    );
}

#[test]
fn kubernetes_own_groups_are_gangs_if_their_policy_is() {
    check(
        include_str!("fixtures/native-1.36.yaml"),
        "native training-native 4/? role= rank=- [] required=topology.kubernetes.io/rack",
    );
    check(include_str!("fixtures/native-1.37.yaml"), "native training-native 2/? role= rank=- []");
    check(include_str!("fixtures/native-1.35.yaml"), "native training-workers-native 4/? role= rank=- []");
    check(include_str!("fixtures/native-basic.yaml"), "Single");
    let pod = documents(include_str!("fixtures/native-1.36.yaml")).split_off(1);
    assert_eq!(recognised(&pod).membership, Membership::Unknown, "a group that is not known may be no gang");
}

#[test]
fn of_other_systems_identity_and_size_are_read() {
    check(include_str!("fixtures/volcano.yaml"), "volcano tf-8f2c-volcano 3/? role=worker rank=- [ps:? worker:?]");
    check(include_str!("fixtures/kai.yaml"), "kai pg-train-1-kai 5/? role= rank=- []");
    check(include_str!("fixtures/koordinator.yaml"), "koordinator gang-koordinator 3/4 role= rank=- []");
    check(
        include_str!("fixtures/yunikorn.yaml"),
        "yunikorn sleep-1-yunikorn ?/7 role=group-a rank=- [group-a:5 group-b:2]",
    );
    check(include_str!("fixtures/grove.yaml"), "grove infer-0-grove 5/? role= rank=- []");
    let mut documents = documents(include_str!("fixtures/volcano.yaml"));
    documents[2]["metadata"]["annotations"] = json!({});
    assert_eq!(
        line(&recognised(&documents)),
        "volcano-job tf-0c000000 3/3 role=worker rank=- [ps:1 worker:2]",
        "without a group the job itself is the gang"
    );
}

/// The line of a fixture after a change to its first document.
fn changed(fixture: &str, pointer: &str, value: Value) -> String {
    let mut documents = documents(fixture);
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    documents[0].pointer_mut(parent).unwrap()[field.replace("~1", "/").as_str()] = value;
    line(&recognised(&documents))
}

#[test]
fn volcano_s_tiers_are_levels_counted_from_the_host_or_named() {
    let topology = |value: Value| changed(include_str!("fixtures/volcano.yaml"), "/spec/networkTopology", value);
    let topology_request = |value: Value| topology(value).split_once("worker:?]").unwrap().1.to_owned();
    assert_eq!(topology_request(json!({"mode": "hard", "highestTierAllowed": 2})), " required=tier-2");
    assert_eq!(topology_request(json!({"highestTierName": "spine"})), " required=spine");
    assert_eq!(topology_request(json!({"mode": "hard"})), " required=tier-1");
    assert_eq!(topology_request(json!({"mode": "soft", "highestTierAllowed": 1})), " preferred=tier-1");
    assert_eq!(topology_request(json!({"mode": "soft"})), "");
    let parts = |value: Value| changed(include_str!("fixtures/volcano.yaml"), "/spec/subGroupPolicy", value);
    let hard = json!({"mode": "hard", "highestTierAllowed": 1});
    let one = json!([{"name": "part", "subGroupSize": 2, "networkTopology": hard}]);
    assert!(parts(one).ends_with(" slice=2@tier-1"));
    let two = json!([{"subGroupSize": 2, "networkTopology": hard}, {"subGroupSize": 3, "networkTopology": hard}]);
    assert!(parts(two).ends_with(" BadValue"), "what cannot be kept is reported");
}

#[test]
fn sub_groups_of_volcano_by_label_are_kept_whole_whatever_the_ranks_are() {
    let hard = json!({"mode": "hard", "highestTierAllowed": 1});
    let policy = |change: Value| {
        let mut policy = json!({"subGroupSize": 2, "networkTopology": hard, "matchLabelKeys": ["team", "part"]});
        for (key, value) in change.as_object().unwrap() {
            policy[key] = value.clone();
        }
        policy
    };
    let pod = |part: &str, policy: Value| {
        let mut documents = documents(include_str!("fixtures/volcano.yaml"));
        documents[0]["spec"]["minMember"] = json!(4);
        documents[0]["spec"]["subGroupPolicy"] = json!([policy]);
        documents[2]["metadata"]["uid"] = json!(part);
        documents[2]["metadata"]["labels"] = json!({"team": "a", "part": part});
        recognised(&documents)
    };
    assert_eq!(
        line(&pod("7", policy(json!({})))),
        "volcano tf-8f2c-volcano 4/4 role=a-7 rank=- [a-7:2] slice=2@tier-1"
    );
    let whole = muster_api::conventions::merge(["7", "3"].map(|part| pod(part, policy(json!({})))).iter().map(|pod| {
        match (&pod.membership, &pod.gang) {
            (Membership::Member { role, .. }, Some(gang)) => (role, gang),
            other => panic!("{other:?}"),
        }
    }));
    let whole = whole.unwrap();
    assert_eq!(
        whole.roles.iter().map(|role| (&*role.name, role.count)).collect::<Vec<_>>(),
        [("a-7", Some(2)), ("a-3", Some(2))]
    );
    assert_eq!((whole.size, whole.min, &whole.invalid), (Some(4), Some(4), &None));
    let at_least = pod("7", policy(json!({"minSubGroups": 3})));
    assert_eq!(line(&at_least), "volcano tf-8f2c-volcano 6/6 role=a-7 rank=- [a-7:2] slice=2@tier-1");
    let message = |policy: Value| pod("7", policy).gang.unwrap().invalid.clone().map(|invalid| invalid.message);
    assert!(message(policy(json!({"matchLabelKeys": ["team", "none"]}))).unwrap().contains("lacks the label none"));
    assert!(
        message(policy(json!({"labelSelector": {"matchLabels": {"team": "b"}}}))).unwrap().contains("labelSelector")
    );
    assert_eq!(message(policy(json!({"labelSelector": {"matchLabels": {"team": "a"}}}))), None);
}

#[test]
fn kai_s_levels_are_read_from_the_group_or_from_annotations() {
    let fixture = include_str!("fixtures/kai.yaml");
    let constraint = json!({"topology": "t", "requiredTopologyLevel": "block", "preferredTopologyLevel": "rack"});
    assert_eq!(
        changed(fixture, "/spec/topologyConstraint", constraint.clone()),
        "kai pg-train-1-kai 5/? role= rank=- [] required=block preferred=rack"
    );
    let nested = json!([{"name": "a", "minMember": 2, "topologyConstraint": constraint}]);
    assert!(changed(fixture, "/spec/subGroups", nested).ends_with(" BadValue"));
    let mut documents = documents(fixture);
    let annotations = documents[1]["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.insert("kai.scheduler/topology-required-placement".to_owned(), json!("zone"));
    annotations.insert("kai.scheduler/segment-topology-required-placement".to_owned(), json!("rack"));
    assert!(line(&recognised(&documents)).ends_with(" BadValue"), "half a topology request");
    let annotations = documents[1]["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.insert("kai.scheduler/segment-size".to_owned(), json!("4"));
    assert!(line(&recognised(&documents)).ends_with(" required=zone slice=4@rack"));
}

#[test]
fn of_koordinator_s_layers_the_lowest_of_each_strategy_counts() {
    let group = |spec: &str| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}, "metadata": {
            "name": "p", "namespace": "ml", "uid": "1", "labels": {"pod-group.scheduling.sigs.k8s.io": "train"}}});
        let group = json!({"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 4},
            "metadata": {"name": "train", "namespace": "ml", "uid": "2",
                "annotations": {"gang.scheduling.koordinator.sh/network-topology-spec": spec}}});
        line(&recognised(&[group, pod]))
    };
    let line = group(
        r#"{"gatherStrategy": [{"layer": "block", "strategy": "PreferGather"}, {"layer": "spine", "strategy": "PreferGather"},
            {"layer": "zone", "strategy": "MustGather"}]}"#,
    );
    assert_eq!(line, "koordinator train-koordinator 4/? role= rank=- [] required=zone preferred=block,spine");
    assert!(group("{").ends_with(" BadValue"));
    assert!(group(r#"{"gatherStrategy": [{"layer": "block", "strategy": "Perhaps"}]}"#).ends_with(" BadValue"));
}

#[test]
fn a_statefulset_that_opts_in_counts_from_its_first_ordinal() {
    let fixture = include_str!("fixtures/statefulset.yaml");
    check(fixture, "statefulset db-57a70000 ?/3 role= rank=1 [] preferred=leaf");
    let mut documents = documents(fixture);
    documents[0]["metadata"]["annotations"] = json!({});
    assert_eq!(recognised(&documents).membership, Membership::Single);
}

/// The reason why a gang is invalid after a change to the first document, and that the text names the way out.
#[track_caller]
fn invalid(fixture: &str, pointer: &str, value: Value, way_out: &str) {
    let mut documents = documents(fixture);
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let field = field.replace("~1", "/");
    documents[0].pointer_mut(parent).unwrap()[field.as_str()] = value;
    let gang = recognised(&documents).gang.expect("a gang");
    let invalid = gang.invalid.as_ref().unwrap_or_else(|| panic!("{pointer} is invalid"));
    assert_eq!(invalid.reason.as_str(), "SequentialCreation");
    assert!(invalid.message.contains(way_out), "{}", invalid.message);
}

#[test]
fn pods_that_come_one_after_the_other_fill_no_gang() {
    let jobset = include_str!("fixtures/jobset.yaml");
    invalid(jobset, "/spec/startupPolicy", json!({"startupPolicyOrder": "InOrder"}), "muster.dev/gang");
    let depends = json!([{"name": "leader", "status": "Ready"}]);
    invalid(jobset, "/spec/replicatedJobs/0/dependsOn", depends, "muster.dev/gang");
    let exclusive = json!({"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"});
    invalid(jobset, "/metadata/annotations", exclusive, "node-selector");
    let lws = include_str!("fixtures/leaderworkerset.yaml");
    invalid(lws, "/spec/startupPolicy", json!("LeaderReady"), "LeaderCreated");
    let exclusive = json!({"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"});
    invalid(lws, "/metadata/annotations", exclusive, "muster.dev/topology-required");
    let mpi = include_str!("fixtures/mpijob.yaml");
    invalid(mpi, "/spec/launcherCreationPolicy", json!("WaitForWorkersReady"), "AtStartup");
    let set = include_str!("fixtures/statefulset.yaml");
    invalid(set, "/spec/podManagementPolicy", json!("OrderedReady"), "Parallel");
}

#[test]
fn a_stage_with_a_gang_of_its_own_is_a_gang_and_leaves_the_rest_to_its_owner() {
    let mut documents = documents(include_str!("fixtures/jobset.yaml"));
    documents[0]["spec"]["startupPolicy"] = json!({"startupPolicyOrder": "InOrder"});
    let gang = json!({"annotations": {"muster.dev/gang": "stage"}});
    documents[0]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = gang;
    // A pod of the other stage.
    let mut leader = documents.clone();
    leader[2]["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = json!("leader");
    leader[2]["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"] = json!("0");
    assert_eq!(line(&recognised(&leader)), "jobset pytorch-5e7aaaaa ?/1 role=leader rank=0 [leader:1]");
    documents[2]["metadata"]["annotations"]["muster.dev/gang"] = json!("stage");
    assert_eq!(line(&recognised(&documents)), "annotations stage-5e7aaaaa ?/4 role=workers rank=2 [workers:4]");
}

#[test]
fn exclusive_placement_by_node_selector_is_one_slice_a_job() {
    let mut documents = documents(include_str!("fixtures/jobset.yaml"));
    documents[0]["metadata"]["annotations"] = json!({
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.provider.com/rack",
        "alpha.jobset.sigs.k8s.io/node-selector": "true",
    });
    documents[0]["spec"]["replicatedJobs"].as_array_mut().unwrap().truncate(1);
    assert_eq!(
        line(&recognised(&documents)),
        "jobset pytorch-5e7aaaaa ?/4 role=workers rank=2 [workers:4] exclusive=cloud.provider.com/rack \
         slice=2@cloud.provider.com/rack"
    );
}

#[test]
fn exclusive_subgroups_are_slices() {
    let mut documents = documents(include_str!("fixtures/leaderworkerset.yaml"));
    documents[0]["metadata"]["annotations"] =
        json!({"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": "rack"});
    documents[0]["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = json!({"subGroupSize": 2});
    documents[0]["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = Value::Null;
    assert_eq!(
        line(&recognised(&documents)),
        "leaderworkerset vllm-1-17500000 ?/4 role= rank=2 [] exclusive=rack slice=2@rack"
    );
}

#[test]
fn the_first_of_two_identities_counts_and_the_other_is_named() {
    let mut documents = documents(include_str!("fixtures/coscheduling.yaml"));
    documents[1]["metadata"]["annotations"] = json!({"muster.dev/gang": "mine", "muster.dev/gang-size": "2"});
    let gang = recognised(&documents).gang.unwrap();
    assert_eq!((gang.source.convention, gang.size, gang.min), ("annotations", Some(2), None));
    let conflict = gang.conflict.as_ref().expect("a conflict");
    assert!(conflict.contains("mine") && conflict.contains("nginx"), "{conflict}");
}

#[test]
fn ours_goes_before_the_convention_field_by_field() {
    let mut documents = documents(include_str!("fixtures/pytorchjob.yaml"));
    let annotations = documents[1]["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.insert("muster.dev/gang-min".to_owned(), json!("4"));
    annotations.insert("muster.dev/topology-required".to_owned(), json!("zone"));
    annotations.insert("muster.dev/rank".to_owned(), json!("3"));
    assert_eq!(
        line(&recognised(&documents)),
        "kubeflow mnist-70700000 4/5 role=worker rank=3 [master:1 worker:4] required=zone"
    );
}

#[test]
fn an_owner_that_is_not_known_leaves_the_pod_unknown_and_is_named() {
    for (fixture, kind) in [
        (include_str!("fixtures/jobset.yaml"), "JobSet"),
        (include_str!("fixtures/leaderworkerset.yaml"), "LeaderWorkerSet"),
        (include_str!("fixtures/pytorchjob.yaml"), "PyTorchJob"),
        (include_str!("fixtures/raycluster.yaml"), "RayCluster"),
    ] {
        let without: Vec<Value> = documents(fixture).into_iter().filter(|document| document["kind"] != kind).collect();
        let found = recognised(&without);
        assert_eq!(found.membership, Membership::Unknown, "{kind}");
        assert_eq!(found.missing.as_ref().map(|missing| missing.kind.as_str()), Some(kind));
        assert!(!found.reads.is_empty(), "it is recognised again when the {kind} appears");
    }
}

#[test]
fn an_owner_that_would_not_survive_a_stop_is_named_with_the_field() {
    let says = |fixture: &str, change: &dyn Fn(&mut Vec<Value>)| {
        let mut documents = documents(fixture);
        change(&mut documents);
        recognised(&documents).gang.unwrap().restart_would_fail.clone().map(|text| text.to_string())
    };
    let jobset = include_str!("fixtures/jobset.yaml");
    assert_eq!(says(jobset, &|_| {}), None, "it restarts three times");
    let never = says(jobset, &|documents| documents[0]["spec"]["failurePolicy"] = json!({"maxRestarts": 0})).unwrap();
    assert!(never.contains("maxRestarts") && never.contains("backoffLimit 0"), "{never}");
    let ignores = says(jobset, &|documents| {
        documents[0]["spec"]["failurePolicy"] = json!({"maxRestarts": 0});
        let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
        for job in documents[0]["spec"]["replicatedJobs"].as_array_mut().unwrap() {
            job["template"]["spec"]["podFailurePolicy"] = json!({"rules": [rule]});
        }
    });
    assert_eq!(ignores, None);
    let pytorch = include_str!("fixtures/pytorchjob.yaml");
    let never = says(pytorch, &|documents| {
        documents[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = json!("Never");
    });
    assert!(never.unwrap().contains("Worker.restartPolicy is Never"));
}

#[test]
fn every_convention_has_a_fixture_and_fits_into_a_gang_object() {
    let mut seen = BTreeMap::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures")).unwrap() {
        let path = entry.unwrap().path();
        let documents = documents(&std::fs::read_to_string(&path).unwrap());
        let Some(gang) = recognised(&documents).gang else { continue };
        assert_eq!(gang.invalid, None, "{}", path.display());
        let spec = gang_state::spec(&gang);
        assert!(spec.min <= spec.size, "{}", path.display());
        seen.insert(gang.source.convention, path);
    }
    // These two have tests of their own beside the annotations.
    let missing = NAMES
        .iter()
        .filter(|name| !seen.contains_key(*name) && !matches!(**name, "annotations" | "job" | "volcano-job"));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
}
