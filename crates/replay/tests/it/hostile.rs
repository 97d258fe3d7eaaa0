//! Hostile input ends in an error or in a reported object, at once and without a panic.

use std::fmt::Write;

use muster_replay::command::{self, Arguments, CommandError, Format};
use muster_replay::dump::Input;

use crate::support::{document, dump, names, run};

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus:\n  conditions: [{type: Ready, status: \"True\"}]\n  allocatable: {cpu: CPU, memory: 64Gi, pods: 110}\n";
const GANG: &str = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {muster.dev/gang: g, muster.dev/gang-size: \"1\"}}\nspec:\n  schedulerName: muster\n  containers: [{name: c, resources: {requests: {cpu: ASK}}}]\n";

fn with(cpu: &str, ask: &str) -> serde_json::Value {
    document(&format!("{}{}", NODE.replace("CPU", cpu), GANG.replace("ASK", ask)))
}

#[test]
fn absurd_amounts_saturate() {
    assert_eq!(with("9223372036854775808", "1")["gangs"][0]["outcome"], "placed");
    assert_eq!(with("1e300", "9223372036854775807")["gangs"][0]["outcome"], "placed");
    assert_eq!(with("4", "9223372036854775808")["gangs"][0]["outcome"], "refused");
    assert_eq!(with("4", "99999999999999999999999999E")["gangs"][0]["outcome"], "refused");
}

#[test]
fn negative_and_unreadable_amounts_are_reported_with_field_and_value() {
    let node = with("-4", "1");
    assert_eq!(node["ignored"][0]["why"], "status.allocatable[cpu]: `-4` is negative");
    let pod = with("4", "-1");
    assert_eq!(pod["ignored"][0]["why"], "spec.containers[0].resources.requests[cpu]: `-1` is negative");
    assert_eq!(pod["gangs"][0]["outcome"], "invalid");
    let pod = with("4", "much");
    let why = pod["ignored"][0]["why"].as_str().unwrap();
    assert!(why.contains("spec.containers[0].resources.requests[cpu]") && why.contains("much"), "{why}");
}

#[test]
fn a_constraint_that_the_api_server_refuses_is_named_by_field_and_value_and_the_rest_goes_on() {
    let required = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ";
    let near = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ";
    let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let spread = |fields: &str| format!("topologySpreadConstraints: [{{topologyKey: zone, {fields}}}]");
    let init = |field: &str| format!("initContainers: [{{name: i, {field}}}]");
    let at = |why: &str| format!("spec.initContainers[0].{why}");
    let cases = [
        (format!("{required}[]}}}}}}"), format!("{path}: `[]` selects no node at all")),
        (
            format!("{required}[{{matchExpressions: [{{key: a, operator: Like, values: [b]}}]}}]}}}}}}"),
            format!(
                "{path}[0].matchExpressions[0].operator: `Like` is none of In, NotIn, Exists, DoesNotExist, Gt, Lt"
            ),
        ),
        (
            format!("{required}[{{matchExpressions: [{{key: a, operator: Gt, values: [many]}}]}}]}}}}}}"),
            format!("{path}[0].matchExpressions[0].values: `[many]` has to be one integer"),
        ),
        (
            format!("{required}[{{matchFields: [{{key: metadata.uid, operator: In, values: [b]}}]}}]}}}}}}"),
            format!("{path}[0].matchFields[0].key: `metadata.uid` is none of metadata.name"),
        ),
        (
            format!("{near}[{{topologyKey: \"\", labelSelector: {{}}}}]}}}}"),
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: `` is empty"
                .to_owned(),
        ),
        (
            spread("maxSkew: 0, whenUnsatisfiable: DoNotSchedule"),
            "spec.topologySpreadConstraints[0].maxSkew: `0` has to be greater than zero".to_owned(),
        ),
        (
            spread("maxSkew: 1, whenUnsatisfiable: Perhaps"),
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: `Perhaps` is none of DoNotSchedule, ScheduleAnyway"
                .to_owned(),
        ),
        (
            spread("maxSkew: 1, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Maybe"),
            "spec.topologySpreadConstraints[0].nodeTaintsPolicy: `Maybe` is none of Honor, Ignore".to_owned(),
        ),
        (
            spread(
                "maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: a, operator: In}]}",
            ),
            "spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].values: `[]` has to hold a value"
                .to_owned(),
        ),
        (
            "tolerations: [{key: a, operator: Exists, effect: Never}]".to_owned(),
            "spec.tolerations[0].effect: `Never` is none of NoSchedule, PreferNoSchedule, NoExecute".to_owned(),
        ),
        (
            init("ports: [{containerPort: 1, hostPort: 70000}]"),
            at("ports[0].hostPort: `70000` is not between 1 and 65535"),
        ),
        (init("ports: [{containerPort: -1}]"), at("ports[0].containerPort: `-1` is not between 1 and 65535")),
        (
            init("ports: [{containerPort: 1, protocol: ICMP}]"),
            at("ports[0].protocol: `ICMP` is none of TCP, UDP, SCTP"),
        ),
        (init("ports: [{containerPort: 1, hostIP: here}]"), at("ports[0].hostIP: `here` is no IP address")),
        (init("restartPolicy: Ever"), at("restartPolicy: `Ever` is none of Always, OnFailure, Never")),
    ];
    let pod = |name: &str, field: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d}}\nspec:\n  schedulerName: muster\n  {field}\n  \
             containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]\n"
        )
    };
    for (field, why) in cases {
        let text = format!("{}{}{}", NODE.replace("CPU", "4"), pod("bad", &field), pod("good", "priority: 0"));
        let document = document(&text);
        assert_eq!(document["ignored"][0]["name"], "bad", "{field}: {document:#}");
        assert_eq!(document["ignored"][0]["why"], why.as_str());
        let pods = document["pods"].as_array().unwrap();
        let outcomes: Vec<(&str, &str)> =
            pods.iter().map(|pod| (pod["name"].as_str().unwrap(), pod["outcome"].as_str().unwrap())).collect();
        assert_eq!(outcomes, [("bad", "refused"), ("good", "placed")], "{field}");
        assert_eq!(pods[0]["reasons"][0]["change"], why.as_str());
    }
    let born = pod("late", "priority: 0").replace("late,", "late, creationTimestamp: yesterday,");
    let late = document(&format!("{}{born}", NODE.replace("CPU", "4")));
    let why = late["ignored"][0]["why"].as_str().unwrap();
    assert!(why.starts_with("metadata.creationTimestamp: `yesterday`: "), "{why}");
    assert_eq!((&late["pods"][0]["name"], &late["pods"][0]["outcome"]), (&"late".into(), &"refused".into()));
    let taint = "  conditions: [{type: Ready, status: \"True\"}]\nspec: {taints: [{key: a, effect: Sometimes}]}\n";
    let node = NODE.replace("CPU", "4").replace("  conditions: [{type: Ready, status: \"True\"}]\n", "");
    let document = document(&format!("{node}{taint}"));
    let why = "spec.taints[0].effect: `Sometimes` is none of NoSchedule, PreferNoSchedule, NoExecute";
    assert_eq!(document["ignored"][0]["why"], why);
}

#[test]
fn what_no_volume_can_have_is_named_by_field_and_value_and_the_rest_goes_on() {
    let of = |kind: &str, fields: &str| {
        let group = if kind.starts_with("Persistent") { "v1" } else { "storage.k8s.io/v1" };
        format!("apiVersion: {group}\nkind: {kind}\nmetadata: {{name: bad, namespace: d}}\n{fields}\n---\n")
    };
    let claim = |field: &str| of("PersistentVolumeClaim", &format!("spec: {{{field}}}"));
    let volume = |field: &str| of("PersistentVolume", &format!("spec: {{{field}}}"));
    let class = |field: &str| of("StorageClass", &format!("provisioner: ebs.csi.aws.com\n{field}"));
    let drivers = |driver: &str| of("CSINode", &format!("spec: {{drivers: [{{nodeID: i-1, {driver}}}]}}"));
    let near = |term: &str| volume(&format!("nodeAffinity: {{required: {{nodeSelectorTerms: [{term}]}}}}"));
    let modes = "ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod";
    let cases = [
        (claim("accessModes: [ReadWriteTwice]"), format!("spec.accessModes[0]: `ReadWriteTwice` is none of {modes}")),
        (claim("volumeMode: Tape"), "spec.volumeMode: `Tape` is none of Filesystem, Block".to_owned()),
        (claim("resources: {requests: {storage: -1Gi}}"), "spec.resources.requests[storage]: `-1Gi` is negative".to_owned()),
        (
            claim("selector: {matchExpressions: [{key: a, operator: Near}]}"),
            "spec.selector.matchExpressions[0].operator: `Near` is none of In, NotIn, Exists, DoesNotExist".to_owned(),
        ),
        (volume("capacity: {storage: -5Gi}"), "spec.capacity[storage]: `-5Gi` is negative".to_owned()),
        (
            near("{matchExpressions: [{key: a, operator: Near, values: [b]}]}"),
            "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].operator: `Near` is none of In, NotIn, Exists, \
             DoesNotExist, Gt, Lt"
                .to_owned(),
        ),
        (
            class("volumeBindingMode: Sometimes"),
            "volumeBindingMode: `Sometimes` is none of Immediate, WaitForFirstConsumer".to_owned(),
        ),
        (
            class("allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: []}]}]"),
            "allowedTopologies[0].matchLabelExpressions[0].values: `[]` has to hold a value".to_owned(),
        ),
        (
            drivers("name: ebs.csi.aws.com, allocatable: {count: -3}"),
            "spec.drivers[0].allocatable.count: `-3` is negative".to_owned(),
        ),
        (drivers("name: \"\""), "spec.drivers[0].name: `` is empty".to_owned()),
    ];
    let good = "apiVersion: v1\nkind: Pod\nmetadata: {name: good, namespace: d}\nspec:\n  schedulerName: muster\n  containers: \
                [{name: c, resources: {requests: {cpu: 1}}}]\n---\n";
    for (object, why) in cases {
        let document = document(&format!("{object}{good}{}", NODE.replace("CPU", "4")));
        assert_eq!(document["ignored"][0]["name"], "bad", "{object}: {document:#}");
        assert_eq!(document["ignored"][0]["why"], why.as_str());
        assert_eq!(document["pods"][0]["outcome"], "placed", "{object}");
    }
    let unreadable = document(&claim("resources: {requests: {storage: lots}}"));
    let why = unreadable["ignored"][0]["why"].as_str().unwrap();
    assert!(why.starts_with("spec.resources.requests[storage]: ") && why.contains("lots"), "{why}");
}

#[test]
fn a_requirement_of_a_pool_that_says_nothing_is_named_by_field_and_value() {
    let pool = |requirements: &str| {
        format!(
            "apiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {{template: {{spec: {{nodeClassRef: \
             {{group: muster.dev, kind: EC2NodeClass, name: c}}, requirements: [{requirements}]}}}}}}\n"
        )
    };
    let cpus = |values: &str| pool(&format!("{{key: muster.dev/instance-cpu, operator: Gt, values: [{values}]}}"));
    let at = "spec.template.spec.requirements[0]: muster.dev/instance-cpu";
    for (values, why) in [("many", "\"many\" is no integer"), ("'1', '2'", "2 values instead of one integer")] {
        let document = document(&cpus(values));
        assert_eq!(document["ignored"][0]["why"], format!("{at}: {why}"), "{document:#}");
    }
}

#[test]
fn a_pool_of_general_use_is_referred_to_a_catalogue_that_has_such_types() {
    let pool = "apiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {name: p}\nspec: {template: {spec: {nodeClassRef: \
                {group: muster.dev, kind: EC2NodeClass, name: c}, requirements: [{key: muster.dev/instance-category, operator: In, \
                values: [m]}]}}}\n";
    let document = document(pool);
    let why = document["ignored"][0]["why"].as_str().unwrap_or_else(|| panic!("{document:#}"));
    assert!(why.contains("no type of the catalogue built-in") && why.contains("--catalogue"), "{why}");
}

#[test]
fn everything_in_a_pool_that_says_nothing_is_named_at_once_by_field_and_value() {
    let document = document(
        "apiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {name: p}\nspec:\n  limits: {cpu: lots, nodes: 1500m}\n  \
         maxUsdPerHour: some\n  disruption: {consolidateAfter: soon, budgets: [{nodes: 10%}]}\n  template:\n    spec:\n      nodeClassRef: \
         {group: muster.dev, kind: EC2NodeClass, name: c}\n      expireAfter: 720h\n      requirements:\n      - {key: \
         muster.dev/instance-cpu, operator: Gt, values: [many]}\n      - {key: muster.dev/instance-memory, operator: Lt, values: []}\n      \
         taints: [{key: a, effect: Never}]\n      startupTaints: [{key: b, effect: Now}, {key: c, effect: NoSchedule}]\n",
    );
    let why = document["ignored"][0]["why"].as_str().unwrap_or_else(|| panic!("{document:#}"));
    let fields: Vec<&str> = why.split("; spec.").map(|one| one.trim_start_matches("spec.")).collect();
    let of = |field: &str, value: &str| fields.iter().any(|one| one.starts_with(field) && one.contains(value));
    for (field, value) in [
        ("template.spec.taints: a", "\"Never\""),
        ("template.spec.startupTaints: b", "\"Now\""),
        ("template.spec.requirements[0]: muster.dev/instance-cpu", "\"many\""),
        ("template.spec.requirements[1]: muster.dev/instance-memory", "0 values"),
        ("limits.cpu", "\"lots\""),
        ("limits.nodes", "\"1500m\""),
        ("maxUsdPerHour", "\"some\""),
        ("disruption.consolidateAfter", "\"soon\""),
        ("template.spec.expireAfter", "\"720h\""),
        ("disruption.budgets", "1 budgets"),
    ] {
        assert!(of(field, value), "{field}: {why}");
    }
    assert_eq!(fields.len(), 10, "{why}");
}

#[test]
fn a_file_that_is_no_catalogue_is_not_repeated_whole() {
    let text = "root:x:0:0:root ".repeat(1_000);
    let catalogue = Some(Input { name: "passwd", text: &text });
    let error = command::run(&Arguments { catalogue, ..Arguments::default() }).unwrap_err().to_string();
    assert!(error.starts_with("read catalogue passwd: ") && error.len() < 500, "{error}");
}

#[test]
fn text_that_is_no_yaml_is_an_error_that_names_the_file() {
    for text in ["{", "a: [", "\u{1}", "- a\nb: c", "kind: Node\nkind: Pod\n"] {
        let error = run(text, Format::Json).unwrap_err();
        assert!(matches!(error, CommandError::Read(_)), "{text:?}: {error}");
        assert!(error.to_string().contains("dump.yaml"), "{error}");
    }
}

#[test]
fn odd_documents_are_reported_or_skipped() {
    for text in
        ["", "---\n---\n", "null", "[]", "{}", "5", "kind: List\napiVersion: v1\nitems: null\n", "kind: List\nitems: 5"]
    {
        assert!(run(text, Format::Json).is_ok(), "{text:?}");
    }
    let document =
        document("apiVersion: v1\nkind: Pod\nmetadata: 5\n---\napiVersion: v1\nkind: Node\nmetadata: {name: [n]}\n");
    assert_eq!(document["ignored"].as_array().unwrap().len(), 2);
}

#[test]
fn an_expansion_of_aliases_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{inner}]").unwrap();
    }
    assert!(run(&text, Format::Json).is_err());
}

#[test]
fn a_job_of_billions_of_pods_is_invalid_and_costs_nothing() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, annotations: {muster.dev/gang: j}}\nspec:\n  completionMode: Indexed\n  completions: 2147483647\n  parallelism: 2147483647\n  template:\n    spec: {schedulerName: muster, containers: [{name: c}]}\nstatus: {completedIndexes: 0-4000000000}\n";
    let document = document(job);
    assert_eq!(document["gangs"][0]["outcome"], "invalid");
    assert_eq!(document["gangs"][0]["reasons"][0]["code"], "TooManyMembers");
}

#[test]
fn more_nodes_than_the_reader_takes_are_an_error() {
    let node = |number| format!("{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{{\"name\":\"n{number}\"}}}}");
    let text: String = (0..=muster_replay::dump::MAX_NODES).map(node).collect();
    let error = run(&text, Format::Json).unwrap_err();
    assert_eq!(error.to_string(), "dump has more than 100000 nodes");
}

#[test]
fn no_line_of_a_dump_can_be_spoilt_so_that_it_panics() {
    let values = ["", "-1", "9223372036854775808", "~", "[]", "{a: 1}", "\"\u{0}%s\"", "1e999", "new/0/0"];
    let mut runs = 0;
    for name in names() {
        let text = dump(&name);
        let lines: Vec<&str> = text.lines().collect();
        for at in (0..lines.len()).step_by(11) {
            let value = values[(at / 11) % values.len()];
            let spoilt = match lines[at].split_once(": ") {
                Some((key, _)) => format!("{key}: {value}"),
                None => value.to_owned(),
            };
            let before = lines[..at].join("\n");
            let after = lines[at + 1..].join("\n");
            // Whether it can still be read does not matter here.
            let _ = run(&format!("{before}\n{spoilt}\n{after}\n"), Format::Json);
            runs += 1;
        }
    }
    assert!(runs > 150, "{runs}");
}

#[test]
fn a_text_that_is_nested_too_deeply_is_an_error_and_no_overflow() {
    let mut block = String::new();
    for depth in 0..3_000 {
        writeln!(block, "{}a:", " ".repeat(depth)).unwrap();
    }
    for text in ["[".repeat(200_000), "{\"a\":".repeat(200_000), "- ".repeat(100_000), "{a: ".repeat(100_000), block] {
        let error = run(&text, Format::Json).unwrap_err();
        assert!(error.to_string().starts_with("read dump.yaml: "), "{error}");
    }
}

#[test]
fn an_empty_cluster_and_absurd_levels_are_answered() {
    let text = GANG.replace("ASK", "1");
    let document = document(&text);
    assert_eq!(document["gangs"][0]["outcome"], "refused");
    assert_eq!(document["gangs"][0]["levels"].as_array().unwrap().last().unwrap()["key"], "kubernetes.io/hostname");
    let levels: Vec<String> = (0..17).map(|level| format!("example.com/l{level}")).collect();
    let arguments = muster_replay::command::Arguments {
        files: vec![muster_replay::dump::Input { name: "dump.yaml", text: &text }],
        levels,
        ..Default::default()
    };
    let error = muster_replay::command::run(&arguments).unwrap_err().to_string();
    assert!(error.contains("18 topology levels are more than 16"), "{error}");
}
