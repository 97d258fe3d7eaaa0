//! One function per target: takes any bytes, and fails by a panic alone.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use muster_api::conventions::{self, Kind, Object, Objects};
use muster_api::{convert, keys, pod_state};
use muster_core::ec2::{Leads, Subject, reaction};
use muster_core::model::units::Quantity;
use muster_ec2_sim::{Scenario, Simulator};
use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;

use super::{message, wire};

/// Types of general use: the built-in ones are for distributed training, and few pods of no gang are planned onto them.
const GENERAL: &str = include_str!("../seeds/catalogue/general.json");

/// A dump is planned, on the built-in types and on those of general use, as a document that can be read again and as a table.
pub fn dump(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    planned_whole(text, None);
    planned_whole(text, Some(GENERAL));
}

fn planned_whole(text: &str, catalogue: Option<&str>) {
    let arguments = |format| Arguments {
        files: vec![Input { name: "dump", text }],
        format,
        scheduler_names: vec!["muster".to_owned()],
        catalogue: catalogue.map(|text| Input { name: "general", text }),
        ..Arguments::default()
    };
    let Ok(output) = command::run(&arguments(Format::Json)) else { return };
    let document: serde_json::Value = serde_json::from_str(&output.text).expect("the document is JSON");
    assert_eq!(document["version"], 2);
    for gang in document["gangs"].as_array().expect("gangs are a list") {
        let placed = gang["outcome"] == "placed" || gang["outcome"] == "buy";
        assert_eq!(gang["members"].as_array().is_some_and(|members| !members.is_empty()), placed, "{gang}");
        assert_eq!(
            gang["buy"].as_array().is_some_and(|provision| !provision.is_empty()),
            gang["outcome"] == "buy",
            "{gang}"
        );
    }
    // Without pods of no gang there is no list of them.
    for pod in document["pods"].as_array().into_iter().flatten() {
        assert_eq!(
            pod["node"].is_null(),
            pod["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()),
            "{pod}"
        );
    }
    let table = command::run(&arguments(Format::Table)).expect("what can be read once can be read twice");
    assert_eq!(table.code, output.code);
}

/// A catalogue: two pods are planned from it, or it is refused with the field that is wrong.
pub fn catalogue(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    planned(&serde_json::json!([]), Some(text));
}

/// Requirements of a NodePool, a list in JSON: two pods are planned from it, or it is refused by name.
pub fn requirements(data: &[u8]) {
    let Ok(requirements) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    planned(&requirements, None);
}

/// What is planned for two pods and a NodePool of these requirements: every pod has an outcome, and no new node costs nothing.
fn planned(requirements: &serde_json::Value, catalogue: Option<&str>) {
    let pool = serde_json::json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "general"},
        "spec": {"template": {"spec": {"nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "any"},
                                       "requirements": requirements}}}});
    let pod = |name: &str, cpu: &str| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"schedulerName": "muster", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Pending"}})
    };
    let dump = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [pool, pod("a", "1"), pod("b", "3")]});
    let dump = dump.to_string();
    let arguments = Arguments {
        files: vec![Input { name: "dump", text: &dump }],
        format: Format::Json,
        scheduler_names: vec!["muster".to_owned()],
        catalogue: catalogue.map(|text| Input { name: "catalogue", text }),
        ..Arguments::default()
    };
    let output = match command::run(&arguments) {
        Ok(output) => output,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let document: serde_json::Value = serde_json::from_str(&output.text).expect("the document is JSON");
    let pods = document["pods"].as_array().expect("pods are a list");
    assert_eq!(pods.len(), 2, "{document}");
    for pod in pods {
        let refused = pod["outcome"] == "refused";
        assert_eq!(refused, pod["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()), "{pod}");
        assert_eq!(pod["outcome"] == "buy", pod["node"].as_str().is_some_and(|node| node.starts_with("new/")), "{pod}");
    }
}

/// A quantity is read exactly: what it says stays the same in every unit, rounded up where it must be.
pub fn quantity(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    assert!(!text.is_empty());
    let (units, milli) = (quantity.unit_ceil(), quantity.milli_ceil());
    let sign = |number: i64| number.signum();
    let of_quantity = quantity.cmp(&Quantity::ZERO) as i64;
    assert_eq!((sign(units), sign(milli)), (of_quantity, of_quantity), "{text}");
    // Rounded away from zero: no amount is lost, and none below a whole one is added.
    let away = |rounded: Quantity, before: Quantity| match of_quantity {
        1 => rounded >= quantity && before < quantity,
        -1 => rounded <= quantity && before > quantity,
        _ => rounded == quantity,
    };
    if units != i64::MAX && units != i64::MIN {
        assert!(away(Quantity::from_units(units), Quantity::from_units(units - sign(units))), "{text}");
    }
    if milli != i64::MAX && milli != i64::MIN {
        assert!(away(Quantity::from_milli(milli), Quantity::from_milli(milli - sign(milli))), "{text}");
    }
    assert!(quantity.saturating_add(Quantity::ZERO) == quantity, "{text}");
    let _ = quantity.round_to_milli().saturating_add(quantity);
    let negative = text.starts_with('-');
    assert!(!negative || quantity <= Quantity::ZERO, "{text}");
}

/// Bodies of kube-scheduler's calls. The first byte chooses the verb.
pub fn extender(data: &[u8]) {
    let Some((verb, body)) = data.split_first() else { return };
    match verb % 3 {
        0 => {
            let Ok(arguments) = serde_json::from_slice::<wire::ExtenderArgs<'_>>(body) else { return };
            let _ = (arguments.node_names, arguments.pod.metadata.uid);
            whole(body);
        }
        1 => {
            let Ok(arguments) = serde_json::from_slice::<wire::ExtenderBindingArgs>(body) else { return };
            let stated = wire::safe(&format!("{} {}", arguments.pod_name, arguments.node));
            assert!(!stated.contains('%'), "{stated}");
        }
        _ => {
            let Ok(arguments) = serde_json::from_slice::<wire::ExtenderPreemptionArgs<'_>>(body) else { return };
            let _ = arguments.pod.metadata.uid;
            whole(body);
        }
    }
}

/// A message of the interruption queue: a notice about instances, a message for others, or unreadable.
pub fn message(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match message::read_message(text) {
        Ok(message::Message::Notice(notice)) => {
            match &notice.subject {
                Subject::Instances(ids) => {
                    assert!(!ids.is_empty() && ids.iter().all(|id| id.as_str().starts_with("i-")))
                }
                Subject::Reservation(id) => assert!(id.starts_with("cr-")),
            }
            let now = notice.sent.or(notice.at).unwrap_or_default();
            let _ = reaction(&notice, Leads::default(), now);
        }
        Ok(message::Message::Other) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Bodies of calls to the simulated EC2, one a line: every one is answered, and by another run the same.
pub fn form(data: &[u8]) {
    let world = || {
        let mut scenario = Scenario::demo();
        scenario.clock.manual = true;
        Simulator::new(scenario).expect("the demo's scenario is sound")
    };
    let (first, second) = (world(), world());
    for line in data.split(|byte| *byte == b'\n').take(8) {
        let (status, text) = first.answer(line);
        assert!((200..=599).contains(&status), "{status}");
        assert!(text.starts_with('<') || text.starts_with('{'), "{text}");
        assert_eq!((status, text), second.answer(line));
    }
}

/// Labels and annotations by which a gang is recognised: lines of `key=value`, on the pod and, behind an empty line, on
/// its owner; behind a second one the owner's spec as JSON.
pub fn labels(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (mine, of_owner) = text.split_once("\n\n").unwrap_or((text, ""));
    let (of_owner, spec) = of_owner.split_once("\n\n").unwrap_or((of_owner, ""));
    let pairs = |text: &str| -> BTreeMap<String, String> {
        let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        text.lines().filter_map(pair).collect()
    };
    let mut pod = Pod::default();
    pod.metadata.name = Some("p-0".to_owned());
    pod.metadata.namespace = Some("team-a".to_owned());
    pod.metadata.uid = Some("uid-p-0".to_owned());
    pod.metadata.labels = Some(pairs(mine));
    pod.metadata.annotations = Some(pairs(mine));
    read(&pod, &Nobody);
    // The owner is of each kind in turn, and says the same whatever it is.
    for kind in Kind::ALL {
        let served = kind.served();
        let api_version = format!("{}/{}", served.group, served.versions[0]);
        pod.metadata.owner_references = Some(vec![OwnerReference {
            api_version: api_version.clone(),
            kind: served.kind.to_owned(),
            name: "train".to_owned(),
            uid: "uid-owner".to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        let owner = serde_json::json!({
            "apiVersion": api_version,
            "kind": served.kind,
            "metadata": {
                "name": "train",
                "namespace": "team-a",
                "uid": "uid-owner",
                "labels": pairs(of_owner),
                "annotations": pairs(of_owner),
            },
            "spec": serde_json::from_str::<serde_json::Value>(spec).unwrap_or_default(),
        });
        if let Some(owner) = Object::read(&owner) {
            read(&pod, &One(owner));
        }
    }
}

/// The pod of a request, read whole, as the server does for one it has not seen yet.
fn whole(body: &[u8]) {
    if let Ok(wire::WholePod { pod }) = serde_json::from_slice(body) {
        read(&pod, &Nobody);
    }
}

/// Reads a pod as the server does.
fn read(pod: &Pod, owners: &dyn Objects) {
    let recognition = conventions::recognise(pod, owners);
    let core = pod_state::read(pod, recognition.membership.clone(), &["muster".to_owned()]);
    let _ = (convert::shape_of_pod(pod), convert::usage(pod));
    let Some(stated) = recognition.gang else { return };
    assert!(!stated.key.name.is_empty());
    assert!(stated.key.name.len() <= 253, "{}", stated.key.name);
    let gang = muster_core::model::gang::Gang {
        key: stated.key.clone(),
        uid: "uid-gang".into(),
        resource_version: "1".into(),
        phase: None,
        epoch: 0,
        round: 0,
        since: None,
        minimum: 0,
        shape: None,
        minimums: BTreeMap::new(),
        running: None,
        places: Vec::new(),
        levels: Vec::new(),
        held: None,
        batch: None,
        waiting: None,
        notes: BTreeMap::new(),
        members: "".into(),
        created: None,
        deleting: false,
    };
    let pending = muster_core::gang::Pending { taint: keys::GANG_PENDING, values: &[] };
    let members = [std::sync::Arc::new(core)];
    let levels = muster_core::topology::Levels::default();
    let wanted = muster_core::gang::build_request(&stated, &gang, (&members, &[]), &BTreeSet::new(), &levels, &pending);
    if let Ok(wanted) = wanted {
        let places: usize = wanted.request.roles.iter().map(|role| role.places.len()).sum();
        assert!(places <= muster_core::model::ranks::MAX_PLACES, "{places}");
    }
}

#[derive(Debug)]
struct Nobody;

impl Objects for Nobody {
    fn by_uid(&self, _: &str) -> Option<&Object> {
        None
    }

    fn by_name(&self, _: Kind, _: &str, _: &str) -> Option<&Object> {
        None
    }
}

#[derive(Debug)]
struct One(Object);

impl Objects for One {
    fn by_uid(&self, uid: &str) -> Option<&Object> {
        (self.0.metadata.uid.as_deref() == Some(uid)).then_some(&self.0)
    }

    /// Every group that is asked for by name is this one too.
    fn by_name(&self, kind: Kind, _: &str, _: &str) -> Option<&Object> {
        (self.0.kind == kind).then_some(&self.0)
    }
}
