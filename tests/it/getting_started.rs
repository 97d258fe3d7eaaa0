//! The page that leads to the first gang: what it says is what template, chart, schema and command line have.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use clap::Parser as _;
use k8s_openapi::api::batch::v1::Job;
use muster::cli::Cli;
use muster::config::Config;
use muster::testbed::repository;
use muster_api::crd::{EC2NodeClass, NodePool};
use muster_api::{keys, node_class, pool as rules};
use muster_core::ec2::{ClusterAccess, Efa};
use serde_json::{Value, json};

use crate::documents::read;
use crate::page::{PAGE, blocks, commands, commands_of, manifests};

fn objects(kind: &str) -> Vec<Value> {
    let all = manifests();
    let found: Vec<Value> = all
        .iter()
        .flat_map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap())
        .filter(|object| object["kind"] == kind)
        .collect();
    assert!(!found.is_empty(), "no {kind} on the page");
    found
}

fn template() -> String {
    std::fs::read_to_string(repository().join("cloudformation/muster.yaml")).unwrap()
}

/// The value after an option.
fn after<'a>(words: &'a [String], option: &str) -> Vec<&'a str> {
    words.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1].as_str()).collect()
}

#[test]
fn a_shell_reads_every_block() {
    let mut shell = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(blocks().concat().as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tools: BTreeSet<String> = commands().into_iter().map(|words| words[0].clone()).collect();
    for tool in ["aws", "docker", "git", "helm", "kubectl", "muster"] {
        assert!(tools.contains(tool), "no command of {tool} was found in {tools:?}");
    }
}

#[test]
fn a_user_replaces_three_words_at_most() {
    let blocks = blocks();
    let own = blocks[0].lines().filter(|line| line.starts_with("export ")).count();
    assert!((1..=3).contains(&own) && own == blocks[0].lines().count(), "{}", blocks[0]);
    for block in &blocks[1..] {
        for placeholder in ["1111", "REPLACE", "YOUR", "<", "example.com"] {
            assert!(!block.replace("<<EOF", "").contains(placeholder), "{placeholder} in {block}");
        }
    }
    assert!(blocks[1].starts_with("git clone \"$SOURCE\" muster\ncd muster\n"), "{}", blocks[1]);
}

#[test]
fn every_manifest_is_read_without_an_unknown_field_and_accepted() {
    let access = ClusterAccess {
        name: "training".to_owned(),
        endpoint: "https://ABC.gr7.us-east-1.eks.amazonaws.com".to_owned(),
        certificate_authority: "TUlJQg==".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
    };
    let mut classes = BTreeSet::new();
    for written in objects("EC2NodeClass") {
        let class: EC2NodeClass = read("the page", &written);
        assert!(node_class::problems(&class, &access).is_empty(), "{written}");
        assert_eq!(rules::efa(&class), Efa::Never, "the first gang needs no EFA");
        assert!(class.spec.subnet_selector_terms.iter().all(|term| term.id.is_some()), "tags are not everybody's");
        classes.insert(class.metadata.name.clone().unwrap());
    }
    let mut pools = BTreeSet::new();
    for written in objects("NodePool") {
        let pool: NodePool = read("the page", &written);
        assert!(classes.contains(&pool.spec.template.spec.node_class_ref.name), "{written}");
        rules::limits(&pool).unwrap();
        pools.insert(pool.metadata.name.clone().unwrap());
    }
    for written in objects("Job") {
        let job: Job = read("the page", &written);
        let template = job.spec.as_ref().unwrap().template.clone();
        let annotations = template.metadata.unwrap().annotations.unwrap();
        assert_eq!(annotations.get(keys::GANG), job.metadata.name.as_ref());
        let selector = template.spec.unwrap().node_selector.unwrap_or_default();
        assert!(selector.iter().all(|(key, value)| key == keys::NODEPOOL && pools.contains(value)), "{selector:?}");
    }
}

#[test]
fn the_members_of_the_first_gang_need_two_nodes_of_its_type() {
    let jobs = objects("Job");
    let container = &jobs[0]["spec"]["template"]["spec"]["containers"][0];
    // Of the two virtual CPUs of a c6i.large; two members ask for more than one of them has.
    assert_eq!(container["resources"]["requests"]["cpu"], "1500m");
    assert_eq!((&jobs[0]["spec"]["completions"], &jobs[0]["spec"]["parallelism"]), (&json!(2), &json!(2)));
    let pool = &objects("NodePool")[0];
    assert_eq!(pool["spec"]["limits"]["nodes"], 2);
    assert_eq!(pool["spec"]["template"]["spec"]["requirements"][0]["values"], json!(["c6i.large"]));
}

#[test]
fn every_muster_command_is_one_of_muster_s() {
    let mut all = commands_of("muster");
    // Commands in the text stand between backticks, and speak to a shell as well.
    let inline = PAGE.split('`').filter(|text| text.starts_with("muster ")).map(|text| {
        text.split_whitespace().skip(1).map(|word| word.trim_matches('"').to_owned()).collect::<Vec<String>>()
    });
    let inline: Vec<Vec<String>> = inline.filter(|words| words.iter().any(|word| word.starts_with("--"))).collect();
    // `muster() { … }` defines what the others are.
    all.retain(|words| !words.is_empty());
    assert!(all.len() >= 3 && inline.len() >= 2, "{all:?} {inline:?}");
    for words in all.into_iter().chain(inline) {
        // The account of the command alone is what the page has elsewhere.
        let words = if words == ["gc", "--account"] { vec!["gc".to_owned()] } else { words };
        if let Err(error) = Cli::try_parse_from(std::iter::once("muster".to_owned()).chain(words.iter().cloned())) {
            panic!("muster {}: {error}", words.join(" "));
        }
    }
}

#[test]
fn parameters_queue_and_profile_are_those_of_the_template() {
    let template = template();
    let parameters: BTreeSet<&str> = template
        .split("\nConditions:\n")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':').filter(|name| !name.starts_with(' ')))
        .collect();
    let deploys: Vec<Vec<String>> =
        commands_of("aws").into_iter().filter(|words| words[..2] == ["cloudformation", "deploy"]).collect();
    assert_eq!(deploys.len(), 1);
    let at = deploys[0].iter().position(|word| word == "--parameter-overrides").unwrap();
    for given in &deploys[0][at + 1..] {
        assert!(parameters.contains(given.split_once('=').unwrap().0), "{given} is none of {parameters:?}");
    }
    for named in ["AccessEntry=false", "NameSuffix=-usw2", "PodIdentity=false", "ImageParameters=/images/*"] {
        assert!(PAGE.contains(&format!("`{named}`")), "{named}");
        assert!(parameters.contains(named.split_once('=').unwrap().0), "{named}");
    }
    assert!(template.contains("InstanceProfileName: !Sub ${ClusterName}-muster-node${NameSuffix}\n"));
    assert_eq!(objects("EC2NodeClass")[0]["spec"]["instanceProfile"], "training-muster-node");
    assert!(template.contains("QueueName: !Sub ${ClusterName}-muster\n"));
    let installed = commands_of("helm").concat();
    assert!(installed.contains(&"config.ec2.interruptionQueue=training-muster".to_owned()), "{installed:?}");
    for option in ["--template-file", "--stack-name"] {
        assert_eq!(after(&deploys[0], option).len(), 1, "{option}");
    }
    assert!(repository().join(after(&deploys[0], "--template-file")[0]).exists());
}

#[test]
fn the_values_of_the_charts_are_known_to_them() {
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(repository().join("charts/muster/values.schema.json")).unwrap())
            .unwrap();
    let mut config = json!({});
    let installs = commands_of("helm");
    let set: Vec<&str> =
        installs.iter().flat_map(|words| [after(words, "--set"), after(words, "--set-string")].concat()).collect();
    assert!(set.len() >= 6, "{set:?}");
    for value in set {
        let (path, value) = value.split_once('=').unwrap();
        let path = path.replace("\\.", "\u{0}");
        let parts: Vec<String> = path.split('.').map(|part| part.replace('\u{0}', ".")).collect();
        if parts[0] == "config" {
            let field = parts[1..].iter().fold(&mut config, |object, part| &mut object[part.as_str()]);
            *field = json!(value);
            continue;
        }
        let mut at = &schema;
        for part in &parts {
            let reference = at["$ref"].as_str().map(|path| schema.pointer(path.trim_start_matches('#')).unwrap());
            at = reference.unwrap_or(at);
            at = [&at["properties"][part.as_str()], &at["additionalProperties"]]
                .into_iter()
                .find(|found| found.is_object())
                .unwrap_or_else(|| panic!("{path}: the schema of the chart has no {part}"));
        }
    }
    let config = Config::parse(&config.to_string(), "the page").unwrap();
    assert!(config.ceiling.is_some() && config.ec2.region.is_some() && config.ec2.interruption_queue.is_some());
    for words in installs.iter().filter(|words| words[0] == "install") {
        assert!(repository().join(&words[2]).join("Chart.yaml").exists(), "{words:?}");
    }
}

#[test]
fn kinds_are_named_in_full_where_karpenter_has_the_same() {
    for words in commands_of("kubectl") {
        for word in &words {
            for kind in ["nodepools", "ec2nodeclasses", "nodebatches", "gangs", "nodeclaims"] {
                let named = word.split(',').any(|one| one == kind || one.starts_with(&format!("{kind}/")));
                assert!(!named, "kubectl {}: write {kind}.muster.dev", words.join(" "));
            }
        }
    }
    assert!(!PAGE.contains("--watch"), "a watch does not end by itself");
}
