//! What is shipped is what runs: the Deployment against what the testbed starts.

use std::collections::BTreeSet;

use muster::testbed::repository;
use muster::testbed::settings::read_yaml;
use muster::testbed::stack::serve_args;
use serde_json::Value;

fn shipped(file: &str) -> Vec<Value> {
    read_yaml(&repository().join(file)).unwrap()
}

#[test]
fn the_deployment_starts_muster_with_the_arguments_the_suites_use() {
    let documents = shipped("manifests/deployment.yaml");
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let muster = containers.iter().find(|container| container["name"] == "muster").unwrap();
    let args: Vec<&str> = muster["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(args, serve_args("/etc/muster/muster.yaml"));
}

#[test]
fn the_shipped_configuration_is_valid_and_agrees_with_the_scheduler_s() {
    let text = std::fs::read_to_string(repository().join("manifests/muster.yaml")).unwrap();
    let config = muster::config::Config::parse(&text, "manifests/muster.yaml").unwrap();
    let scheduler = &shipped("scheduler-config/own-scheduler.yaml")[0];
    let extenders = scheduler["extenders"].as_array().unwrap();
    let binding = extenders.iter().find(|extender| extender["bindVerb"] == "bind").unwrap();
    assert_eq!(binding["httpTimeout"], format!("{}s", config.http_timeout.as_secs()));
    assert!(extenders.iter().all(|extender| extender["ignorable"] != true), "silent scheduling pod by pod");
    assert!(extenders.iter().all(|extender| extender["nodeCacheCapable"] == true));
    for extender in extenders {
        let url = extender["urlPrefix"].as_str().unwrap();
        assert!(url.starts_with(&format!("http://{}/v1/", config.extender)), "{url}");
    }
}

#[test]
fn the_permissions_that_are_asked_for_at_the_start_are_those_of_the_shipped_roles() {
    let permissions: BTreeSet<String> =
        muster::permissions::permissions().unwrap().iter().map(ToString::to_string).collect();
    for right in [
        "watch nodes",
        "patch pods/status",
        "create pods/binding",
        "watch namespaces",
        "get servicecidrs.networking.k8s.io/kubernetes",
        "update gangs.muster.dev",
    ] {
        assert!(permissions.contains(right), "{right} in {permissions:#?}");
    }
    assert!(permissions.contains("patch leases.coordination.k8s.io"));
}

#[test]
fn nothing_may_be_written_but_what_muster_writes_and_nothing_secret_be_read() {
    let permissions = muster::permissions::permissions().unwrap();
    let reads = |verb: &str| matches!(verb, "get" | "list" | "watch");
    let writes: BTreeSet<String> =
        permissions.iter().filter(|right| !reads(&right.verb)).map(ToString::to_string).collect();
    let crds = ["gangs", "nodebatches"];
    let of_crds = crds.iter().flat_map(|plural| {
        let own = ["create", "update", "patch", "delete"].map(|verb| format!("{verb} {plural}.muster.dev"));
        own.into_iter().chain(["update", "patch"].map(|verb| format!("{verb} {plural}/status.muster.dev")))
    });
    let of_people = ["nodepools", "ec2nodeclasses"]
        .iter()
        .flat_map(|plural| ["update", "patch"].map(|verb| format!("{verb} {plural}/status.muster.dev")));
    let known = [
        "patch pods",
        "patch pods/status",
        "create pods/binding",
        "create pods/eviction",
        "delete pods",
        "patch nodes",
        "delete nodes",
        "update provisioningrequests/status.autoscaling.x-k8s.io",
        "patch provisioningrequests/status.autoscaling.x-k8s.io",
        "create events",
        "patch events",
        "create events.events.k8s.io",
        "patch events.events.k8s.io",
        "create leases.coordination.k8s.io",
        "update leases.coordination.k8s.io",
        "patch leases.coordination.k8s.io",
    ];
    let known: BTreeSet<String> = known.map(str::to_owned).into_iter().chain(of_crds).chain(of_people).collect();
    assert_eq!(writes, known);
    let wide = |text: &str| matches!(text, "*" | "secrets" | "configmaps" | "serviceaccounts/token");
    let too_much = permissions.iter().filter(|right| wide(&right.verb) || wide(&right.resource) || wide(&right.group));
    assert_eq!(too_much.map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn what_the_charts_share_with_the_kustomization_is_the_same_to_the_byte() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    let mut pairs = vec![
        ("scheduler-config/own-scheduler.yaml".to_owned(), "charts/muster/files/own-scheduler.yaml".to_owned()),
        ("manifests/monitoring/pod-monitor.yaml".to_owned(), "charts/muster/files/pod-monitor.yaml".to_owned()),
    ];
    for name in ["rules", "dashboard-operations", "dashboard-money"] {
        pairs.push((format!("manifests/observability/{name}.yaml"), format!("charts/muster/files/{name}.yaml")));
    }
    for name in [
        "rbac",
        "rbac-scheduler",
        "flow-schemas",
        "admission-policy",
        "reserved-keys-policy",
        "priority-class",
        "service",
    ] {
        pairs.push((format!("manifests/{name}.yaml"), format!("charts/muster/files/{name}.yaml")));
    }
    for kind in ["ec2nodeclasses", "gangs", "nodebatches", "nodepools"] {
        let file = format!("{kind}.muster.dev.yaml");
        pairs.push((format!("manifests/crds/{file}"), format!("charts/muster-crd/files/{file}")));
    }
    let stale: Vec<&str> =
        pairs.iter().filter(|(from, to)| read(from) != read(to)).map(|(_, to)| to.as_str()).collect();
    assert!(stale.is_empty(), "run hack/charts.sh; these are not current: {stale:?}");
}

#[test]
fn kube_scheduler_has_the_same_release_in_the_kustomization_in_the_chart_and_in_the_tests() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    let (helpers, makefile) = (read("charts/muster/templates/_helpers.tpl"), read("Makefile"));
    let tested = read("hack/control-plane/kubernetes/go.mod") + &makefile;
    for minor in ["1.35", "1.36", "1.37"] {
        let component = &shipped(&format!("manifests/kubernetes/{minor}/kustomization.yaml"))[0];
        let tag = component["images"][0]["newTag"].as_str().unwrap();
        assert!(tag.starts_with(&format!("v{minor}.")), "{tag}");
        assert!(helpers.contains(&format!("\"{minor}\" \"{tag}\"")), "{tag} in the chart's helpers");
        assert!(tested.contains(tag), "{tag} is what the suites run on");
    }
}
