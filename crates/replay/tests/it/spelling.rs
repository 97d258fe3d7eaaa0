//! Labels, names, amounts and references that the API server refuses: each is named by field and value, and the rest goes on.

use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use muster_replay::explain::Target;
use serde_json::Value;

use crate::support::document;

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus:\n  conditions: [{type: Ready, status: \"True\"}]\n  \
                    allocatable: {cpu: 4, memory: 64Gi, pods: 110}\n";

fn pod(metadata: &str, spec: &str, resources: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec:\n  schedulerName: muster\n  {spec}\n  \
         containers: [{{name: c, resources: {{{resources}}}}}]\n"
    )
}

fn good() -> String {
    pod("name: good, namespace: d", "priority: 0", "requests: {cpu: 1}")
}

/// What is ignored of a bad object, beside a pod that is placed all the same.
fn ignored(object: &str) -> (String, String) {
    let document = document(&format!("{NODE}{object}{}", good()));
    let pods = document["pods"].as_array().unwrap();
    let good = pods.iter().find(|pod| pod["name"] == "good").unwrap();
    assert_eq!(good["outcome"], "placed", "{object}");
    let text = |field: &str| {
        document["ignored"][0][field].as_str().unwrap_or_else(|| panic!("{object}: {document:#}")).to_owned()
    };
    (text("name"), text("why"))
}

#[test]
fn what_no_pod_can_be_spelled_like_is_named() {
    let spec = |spec: &str| pod("name: bad, namespace: d", spec, "requests: {cpu: 1}");
    let asks = |resources: &str| pod("name: bad, namespace: d", "priority: 0", resources);
    let near = |term: &str| {
        spec(&format!(
            "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{{term}}}]}}}}"
        ))
    };
    let spread = |fields: &str| {
        let one = format!("topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, {fields}");
        spec(&format!("topologySpreadConstraints: [{{{one}}}]"))
    };
    let tolerates = |fields: &str| spec(&format!("tolerations: [{{{fields}}}]"));
    let apart = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]";
    let terms = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let node_term = |term: &str| {
        spec(&format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: \
             [{{{term}}}]}}]}}}}}}"
        ))
    };
    let one = "topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule";
    for (object, why) in [
        (pod("name: bad, namespace: d, labels: {a b: c}", "priority: 0", ""), "metadata.labels: `a b` is no label key".to_owned()),
        (
            pod("name: bad, namespace: d, labels: {a: b c}", "priority: 0", ""),
            "metadata.labels.a: `b c` is no label value".to_owned(),
        ),
        (spec("nodeSelector: {UPPER bad!: a}"), "spec.nodeSelector: `UPPER bad!` is no label key".to_owned()),
        (near("topologyKey: a b, labelSelector: {}"), format!("{apart}.topologyKey: `a b` is no label key")),
        (
            near("topologyKey: zone, labelSelector: {matchLabels: {a: a-}}"),
            format!("{apart}.labelSelector.matchLabels.a: `a-` is no label value"),
        ),
        (
            near("topologyKey: zone, labelSelector: {matchExpressions: [{key: a b, operator: Exists}]}"),
            format!("{apart}.labelSelector.matchExpressions[0].key: `a b` is no label key"),
        ),
        (
            near("topologyKey: zone, labelSelector: {matchExpressions: [{key: a, operator: In, values: [b c]}]}"),
            format!("{apart}.labelSelector.matchExpressions[0].values: `b c` is no label value"),
        ),
        (
            near("topologyKey: zone, labelSelector: {}, namespaces: [A]"),
            format!("{apart}.namespaces: `A` is no name of a namespace"),
        ),
        (
            near("topologyKey: zone, matchLabelKeys: [a]"),
            format!("{apart}.matchLabelKeys: `a` needs a labelSelector"),
        ),
        (
            near("topologyKey: zone, labelSelector: {}, matchLabelKeys: [a], mismatchLabelKeys: [a]"),
            format!("{apart}.mismatchLabelKeys: `a` is among matchLabelKeys too"),
        ),
        (
            node_term("key: a b, operator: Exists"),
            format!("{terms}[0].matchExpressions[0].key: `a b` is no label key"),
        ),
        (
            node_term("key: a, operator: In, values: [b c]"),
            format!("{terms}[0].matchExpressions[0].values: `b c` is no label value"),
        ),
        (
            spread("matchLabelKeys: [a]"),
            "spec.topologySpreadConstraints[0].matchLabelKeys: `a` needs a labelSelector".to_owned(),
        ),
        (
            spec(&format!("topologySpreadConstraints: [{{{one}}}, {{{one}}}]")),
            "spec.topologySpreadConstraints[1].topologyKey: `zone` is there twice with whenUnsatisfiable: DoNotSchedule".to_owned(),
        ),
        (
            asks("requests: {hugepages-2Mi: 500m}"),
            "spec.containers[0].resources.requests[hugepages-2Mi]: `500m` is not a whole number".to_owned(),
        ),
        (
            spec("resources: {requests: {cpu: 2}, limits: {cpu: 1}}"),
            "spec.resources.requests[cpu]: `2` is more than its limit, `1`".to_owned(),
        ),
        (
            spec("initContainers: [{name: i, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]"),
            "spec.initContainers[0].resources.requests[cpu]: `2` is more than its limit, `1`".to_owned(),
        ),
        (
            tolerates("key: a, operator: Lt, value: '5x'"),
            "spec.tolerations[0].value: `5x` has to be an integer where the operator is Gt or Lt".to_owned(),
        ),
        (tolerates("key: a b, operator: Exists"), "spec.tolerations[0].key: `a b` is no label key".to_owned()),
        (tolerates("key: a, value: b c"), "spec.tolerations[0].value: `b c` is no label value".to_owned()),
        (
            tolerates("key: a, operator: Gt, value: many"),
            "spec.tolerations[0].value: `many` has to be an integer where the operator is Gt or Lt".to_owned(),
        ),
        (
            tolerates("key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 5"),
            "spec.tolerations[0].tolerationSeconds: `5` needs effect: NoExecute".to_owned(),
        ),
        (
            asks("requests: {cpu: 2}, limits: {cpu: 1}"),
            "spec.containers[0].resources.requests[cpu]: `2` is more than its limit, `1`".to_owned(),
        ),
        (
            asks("requests: {nvidia.com/gpu: 500m}"),
            "spec.containers[0].resources.requests[nvidia.com/gpu]: `500m` is not a whole number".to_owned(),
        ),
        (asks("limits: {a b: 1}"), "spec.containers[0].resources.limits: `a b` is no name of a resource".to_owned()),
    ] {
        let (name, found) = ignored(&object);
        assert_eq!((name.as_str(), found.split(": at most").next().unwrap()), ("bad", why.as_str()), "{object}");
    }
}

#[test]
fn what_the_api_server_adds_to_a_selector_when_a_pod_is_created_is_no_fault() {
    let merged = |operator: &str| {
        format!("labelSelector: {{matchExpressions: [{{key: hash, operator: {operator}, values: [x]}}]}}")
    };
    let spread = format!(
        "topologySpreadConstraints: [{{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, {}, matchLabelKeys: [hash]}}]",
        merged("In")
    );
    let term = |keys: &str, operator: &str| {
        format!(
            "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: zone, {}, {keys}: [hash]}}]}}}}",
            merged(operator)
        )
    };
    let tolerates = "tolerations: [{key: a, operator: Gt, value: '-5'}]".to_owned();
    for spec in [spread, term("matchLabelKeys", "In"), term("mismatchLabelKeys", "NotIn"), tolerates] {
        let document = document(&format!(
            "{NODE}{}",
            pod("name: merged, namespace: d, labels: {hash: x}", &spec, "requests: {cpu: 1}")
        ));
        assert_eq!(document["ignored"], serde_json::json!([]), "{spec}");
    }
}

#[test]
fn what_no_claim_class_or_taint_can_be_spelled_like_is_named() {
    let claim = |spec: &str| {
        format!(
            "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: bad, namespace: d}}\nspec: {{{spec}}}\n"
        )
    };
    let class = "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: bad}\nprovisioner: p\nallowedTopologies: \
                 [{matchLabelExpressions: [{key: a b, values: [x]}]}]\n";
    let node = |taint: &str| {
        format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: bad}}\nspec: {{taints: [{{{taint}}}]}}\n")
    };
    for (object, why) in [
        (
            claim("accessModes: [ReadWriteOncePod, ReadOnlyMany]"),
            "spec.accessModes: `ReadWriteOncePod` is there beside another",
        ),
        (
            claim("resources: {requests: {storage: 0}}"),
            "spec.resources.requests[storage]: `0` has to be greater than zero",
        ),
        (class.to_owned(), "allowedTopologies[0].matchLabelExpressions[0].key: `a b` is no label key"),
        (node("key: a b, effect: NoSchedule"), "spec.taints[0].key: `a b` is no label key"),
        (node("key: a, value: b c, effect: NoSchedule"), "spec.taints[0].value: `b c` is no label value"),
    ] {
        let (name, found) = ignored(&object);
        assert_eq!((name.as_str(), found.split(": at most").next().unwrap()), ("bad", why), "{object}");
    }
    let alone = document(&claim("accessModes: [ReadWriteOncePod]"));
    assert_eq!(alone["ignored"], serde_json::json!([]));
}

#[test]
fn names_that_no_object_has_are_named_and_push_nobody_out() {
    for (metadata, name, why) in [
        ("name: good, namespace: 5", "good", "metadata.namespace: `5` is no name"),
        ("name: good, namespace: D", "good", "metadata.namespace: `D` is no name"),
        ("name: 5, namespace: d", "document 2 of dump.yaml", "metadata.name: `5` is no name"),
        ("name: a/b, namespace: d", "a/b", "metadata.name: `a/b` is no name"),
    ] {
        let bad = pod(metadata, "priority: 0", "requests: {cpu: 1}");
        assert_eq!(ignored(&bad), (name.to_owned(), why.to_owned()), "{metadata}");
    }
}

#[test]
fn a_budget_that_means_nothing_is_named() {
    let budget = |spec: &str| {
        format!(
            "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: bad, namespace: d}}\nspec: {{{spec}}}\n"
        )
    };
    for (spec, why) in [
        ("minAvailable: -1", "spec.minAvailable: `-1` is negative"),
        ("maxUnavailable: 101%", "spec.maxUnavailable: `101%` is neither a number nor a percentage such as 50%"),
        ("minAvailable: 1, maxUnavailable: 50%", "spec.maxUnavailable: `50%` and spec.minAvailable exclude each other"),
        (
            "minAvailable: 1, selector: {matchExpressions: [{key: a, operator: Near}]}",
            "spec.selector.matchExpressions[0].operator: `Near` is none of In, NotIn, Exists, DoesNotExist",
        ),
    ] {
        assert_eq!(ignored(&budget(spec)), ("bad".to_owned(), why.to_owned()), "{spec}");
    }
}

#[test]
fn a_pod_of_which_a_field_has_another_type_makes_its_gang_invalid() {
    let bad = pod(
        "name: bad, namespace: d, annotations: {muster.dev/gang: g, muster.dev/gang-size: \"1\"}",
        "nodeSelector: 5",
        "",
    );
    let document = document(&format!("{NODE}{bad}"));
    assert_eq!(document["gangs"][0]["outcome"], "invalid", "{document:#}");
    assert_eq!(document["gangs"][0]["reasons"][0]["code"], "BadPod");
}

#[test]
fn explain_says_what_of_an_object_cannot_be_read() {
    let bad = pod("name: bad, namespace: d", "nodeSelector: {a b: c}", "requests: {cpu: 1}");
    let text = format!("{NODE}{bad}{}", good());
    let ask = |target: &Target| {
        let arguments = Arguments { files: vec![Input { name: "dump.yaml", text: &text }], ..Arguments::default() };
        command::explain(&arguments, target).map(drop).map_err(|error| error.to_string())
    };
    let pod = |name: &str| Target::Pod { namespace: "d".to_owned(), name: name.to_owned() };
    assert_eq!(ask(&pod("bad")), Err("pod d/bad cannot be read: spec.nodeSelector: `a b` is no label key".to_owned()));
    assert_eq!(ask(&pod("good")), Ok(()));
    assert!(ask(&pod("nobody")).unwrap_err().starts_with("there is no pod d/nobody"));
    let elsewhere = Target::Pod { namespace: "other".to_owned(), name: "bad".to_owned() };
    assert!(ask(&elsewhere).unwrap_err().starts_with("there is no pod other/bad"), "{:?}", ask(&elsewhere));
}

#[test]
fn a_pool_is_not_used_whose_class_cannot_be_read() {
    let pool = |class: &str| {
        format!(
            "---\napiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {{template: {{spec: {{nodeClassRef: \
             {{{class}}}}}}}}}\n"
        )
    };
    let class = |spec: &str| {
        format!("---\napiVersion: muster.dev/v1alpha1\nkind: EC2NodeClass\nmetadata: {{name: c}}\nspec: {spec}\n")
    };
    let ours = pool("group: muster.dev, kind: EC2NodeClass, name: c");
    let why = |text: &str| {
        let document = document(text);
        let all = document["ignored"].as_array().unwrap();
        let of_pool = all.iter().find(|one| one["kind"] == "NodePool").unwrap_or_else(|| panic!("{document:#}"));
        of_pool["why"].as_str().unwrap().to_owned()
    };
    let unread = why(&format!("{ours}{}", class("5")));
    assert!(unread.starts_with("spec.template.spec.nodeClassRef: EC2NodeClass c cannot be read: spec: "), "{unread}");
    let other = why(&pool("group: karpenter.k8s.aws, kind: EC2NodeClass, name: c"));
    assert_eq!(other, "spec.template.spec.nodeClassRef.group: \"karpenter.k8s.aws\" is not muster.dev");
    let kind = why(&pool("group: muster.dev, kind: NodeClass, name: c"));
    assert_eq!(kind, "spec.template.spec.nodeClassRef.kind: \"NodeClass\" is not EC2NodeClass");
    let negative = why(&format!(
        "{ours}{}",
        class(
            "{amiSelectorTerms: [{id: ami-1}], subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], \
                instanceProfile: nodes, kubelet: {kubeReserved: {cpu: '-1'}}}"
        )
    ));
    assert_eq!(negative, "EC2NodeClass c: spec.kubelet.kubeReserved.cpu: \"-1\" is negative");
}

fn catalogue(text: &str) -> String {
    let catalogue = Some(Input { name: "cat.json", text });
    command::run(&Arguments { catalogue, format: Format::Json, ..Arguments::default() }).unwrap_err().to_string()
}

#[test]
fn what_no_catalogue_can_hold_is_named_by_path_and_value() {
    let described =
        |more: &str| format!("{{\"types\": [{{\"name\": \"a\", \"capacity\": {{\"cpu\": 1, \"pods\": 9}}, {more}}}]}}");
    let offering = |zone: &str, price: u64| {
        format!("{{\"zone\": \"{zone}\", \"market\": \"spot\", \"usdMicroPerHour\": {price}}}")
    };
    let ec2: Value = serde_json::json!({
        "name": "a", "vcpu": 2, "memoryMib": 4096, "gpus": [], "neuronDevices": 0, "efaMax": 0, "networkCards": [],
        "ipv4PerInterface": 5, "supportsClusterGroup": true, "usageClasses": [], "architectures": ["x86_64"],
    });
    let changed = |field: &str, value: Value| {
        let mut one = ec2.clone();
        one[field] = value;
        serde_json::json!({"types": [one]}).to_string()
    };
    for (text, says) in [
        (described("\"labels\": {\"a b\": \"c\"}"), "types[0].labels: \"a b\" is no label key".to_owned()),
        (described("\"labels\": {\"a\": \"b c\"}"), "types[0].labels.a: \"b c\" is no label value".to_owned()),
        (described("\"overhead\": {\"cpu\": \"-1\"}"), "types[0].overhead.cpu: \"-1\" is negative".to_owned()),
        (
            described(&format!("\"offerings\": [{}, {}]", offering("z", 1), offering("z", 2))),
            "types[0].offerings[1]: z on spot is there twice".to_owned(),
        ),
        (described(&format!("\"offerings\": [{}]", offering("", 1))), "types[0].offerings[0].zone: \"\" is empty".to_owned()),
        (
            described("\"offerings\": [{\"zone\": \"z\", \"market\": \"reserved\", \"usdMicroPerHour\": 1, \"reservation\": \"\", \"free\": 1}]"),
            "types[0].offerings[0].reservation: \"\" is empty".to_owned(),
        ),
        (
            "{\"types\": [{\"name\": \"a\", \"capacity\": {\"pods\": 1}}]}".to_owned(),
            "types[0].capacity.cpu: is missing, or 0".to_owned(),
        ),
        (
            "{\"types\": [{\"name\": \"a\", \"capacity\": {\"cpu\": 1}}]}".to_owned(),
            "types[0].capacity.pods: is missing, or 0".to_owned(),
        ),
        (
            "{\"types\": [{\"name\": \"\", \"capacity\": {\"cpu\": 1, \"pods\": 9}}]}".to_owned(),
            "types[0].name: \"\" is empty".to_owned(),
        ),
        (changed("bogus", 1.into()), "types[0].bogus: unknown field `bogus`".to_owned()),
        (changed("vcpu", 0.into()), "types[0].vcpu: 0 is not greater than zero".to_owned()),
        (
            changed("architectures", serde_json::json!(["sparc"])),
            "types[0].architectures: \"sparc\" is none of i386".to_owned(),
        ),
        (
            "{\"types\": [], \"prices\": [{\"type\": \"a\", \"usdMicroPerHour\": 1}, {\"type\": \"a\", \"usdMicroPerHour\": 2}]}"
                .to_owned(),
            "prices[1]: \"a\" has a price in every zone on on-demand twice".to_owned(),
        ),
    ] {
        let error = catalogue(&text);
        assert!(error.starts_with(&format!("read catalogue cat.json: {says}")), "{text}: {error}");
    }
}
