//! Recorded decisions come out the same, or the difference has a name.

use jiff::Timestamp;
use muster_core::gang::Decision;
use muster_core::model::names::ObjectKey;
use muster_core::model::node::{Node, Usage};
use muster_core::model::pod::Shape;
use muster_core::planner;
use muster_core::planner::plan::{
    GangRequest, Host, Policy, Problem, Role, RolePlace, SearchBudget, Seed, TopologyRequests,
};
use muster_core::topology::Levels;
use muster_replay::command::{self, Format};
use muster_replay::decision::{Decisions, VERSION};
use muster_replay::dump::Input;

fn decision() -> Decision {
    let host = |name: &str| Host {
        node: std::sync::Arc::new(Node {
            name: name.into(),
            labels: [("topology.kubernetes.io/zone".into(), "a".into())].into(),
            taints: Vec::new(),
            allocatable: [("nvidia.com/gpu", 8), ("pods", 110)].into_iter().collect(),
            unschedulable: false,
            held: false,
            ready: true,
            deleting: false,
            memory: None,
            provider_id: None,
            created: None,
        }),
        usage: std::sync::Arc::new(Usage::default()),
    };
    let shape = Shape { requests: [("nvidia.com/gpu", 8), ("pods", 1)].into_iter().collect(), ..Shape::default() };
    let key = ObjectKey::new("team-a", "train");
    let role = Role { name: "".into(), shape, min: 2, places: vec![RolePlace::default(); 2] };
    let problem = Problem {
        levels: Levels::default(),
        hosts: vec![host("n-1"), host("n-2"), host("n-3")],
        gang: GangRequest { key: key.clone(), roles: vec![role], topology_requests: TopologyRequests::default() },
    };
    let policy = Policy::default();
    let (plan, report) = planner::plan(&problem, &policy, SearchBudget::default(), Seed::default());
    Decision { gang: key, at: Timestamp::UNIX_EPOCH, policy, problem, plan, report }
}

fn replay(decisions: Vec<Decision>) -> (String, u8) {
    let file = Decisions { version: VERSION, muster: "0.1.0".to_owned(), decisions };
    let text = serde_json::to_string(&file).unwrap();
    let output = command::replay(&[Input { name: "record.json", text: &text }], Format::Table).unwrap();
    (output.text, output.code)
}

#[test]
fn a_decision_is_replayed_from_its_file_to_the_same_plan() {
    let (text, code) = replay(vec![decision()]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("team-a/train at 1970-01-01T00:00:00Z: the same plan again (2 members placed)"), "{text}");
}

#[test]
fn a_decision_that_comes_out_otherwise_names_the_first_difference() {
    let mut other = decision();
    other.plan.places[1].node = "n-3".into();
    let (text, code) = replay(vec![decision(), other]);
    assert_eq!(code, 3);
    assert!(text.contains("DIFFERS: role 0 rank 1 was placed on n-3, now role 0 rank 1 on n-2"), "{text}");
    let mut refused = decision();
    refused.problem.hosts.truncate(1);
    let (text, code) = replay(vec![refused]);
    assert_eq!(code, 3);
    assert!(text.contains("DIFFERS: 2 members were placed, now 0"), "{text}");
}

#[test]
fn a_file_that_holds_no_decisions_is_an_error_with_field_and_value() {
    let error =
        |text: &str| command::replay(&[Input { name: "record.json", text }], Format::Table).unwrap_err().to_string();
    assert!(error("{").contains("record.json"));
    assert!(error("{\"version\": \"x\"}").contains("version"));
    assert!(error("{\"version\": 2, \"muster\": \"\", \"decisions\": []}").contains("version 2 is not 1"));
}
