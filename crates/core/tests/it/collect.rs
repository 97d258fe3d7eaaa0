//! Orphans both ways: what is collected, and above all what is not.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{
    Account, Collection, Findings, HeldCost, KnownBatch, KnownInstance, KnownNode, collect, held_cost, sweep_round,
};
use muster_core::ec2::{
    GroupState, Instance, InstanceState, LaunchTemplate, PlacementGroup, TAG_ATTEMPT, TAG_BATCH, TAG_CLUSTER_UID, Tags,
};
use muster_core::model::names::{InstanceId, NodeName};
use muster_core::offering::PriceBook;
use proptest::prelude::*;

const NOW: i64 = 1_800_000_000;
const GRACE: SignedDuration = SignedDuration::from_secs(120);

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW - seconds).unwrap()
}

fn tags(cluster: &str, batch: Option<&str>, attempt: u32) -> Tags {
    let mut tags = Tags::from([
        (TAG_CLUSTER_UID.to_owned(), cluster.to_owned()),
        (TAG_ATTEMPT.to_owned(), attempt.to_string()),
        ("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned()),
    ]);
    tags.extend(batch.map(|batch| (TAG_BATCH.to_owned(), batch.to_owned())));
    tags
}

fn instance(id: &str, tags: Tags, age: i64, state: InstanceState) -> Instance {
    Instance {
        id: id.into(),
        state,
        state_reason: None,
        instance_type: "p5.48xlarge".to_owned(),
        zone: "us-east-1a".to_owned(),
        private_dns_name: None,
        launch_time: Some(ago(age)),
        tags,
        placement_group: Some("group".to_owned()),
        placement_group_id: Some("pg-1".to_owned()),
        image_id: "ami-1".to_owned(),
        subnet_id: None,
        ended: None,
    }
}

fn running(id: &str, batch: &str, attempt: u32) -> Instance {
    instance(id, tags("c", Some(batch), attempt), 600, InstanceState::Running)
}

fn group(name: &str, batch: &str) -> PlacementGroup {
    PlacementGroup {
        name: name.to_owned(),
        id: format!("pg-{name}"),
        state: GroupState::Available,
        strategy: "cluster".to_owned(),
        tags: tags("c", Some(batch), 1),
    }
}

fn template(name: &str, batch: &str) -> LaunchTemplate {
    LaunchTemplate {
        id: format!("lt-{name}"),
        name: name.to_owned(),
        latest_version: 1,
        tags: tags("c", Some(batch), 1),
    }
}

fn batch(uid: &str, instances: &[&str]) -> KnownBatch {
    KnownBatch {
        name: format!("name-{uid}"),
        uid: uid.to_owned(),
        instances: instances
            .iter()
            .map(|id| KnownInstance { id: InstanceId::from(*id), since: Some(ago(600)), settled: false })
            .collect(),
        ..KnownBatch::default()
    }
}

fn look(account: &Account, batches: &[KnownBatch], nodes: &[KnownNode]) -> Findings {
    let now = Timestamp::from_second(NOW).unwrap();
    collect(&Collection { cluster_uid: "c", account, batches, nodes, grace: GRACE, now })
}

fn account(instances: Vec<Instance>) -> Account {
    Account { instances, ..Account::default() }
}

fn ids(of: &[&str]) -> BTreeSet<InstanceId> {
    of.iter().map(|id| InstanceId::from(*id)).collect()
}

#[test]
fn an_instance_of_no_batch_is_terminated_and_so_is_one_of_a_known_attempt_that_no_list_names() {
    let account = account(vec![running("i-1", "b", 1), running("i-2", "b", 1), running("i-3", "gone", 1)]);
    let found = look(&account, &[batch("b", &["i-1"])], &[]);
    assert_eq!(found.instances, ids(&["i-2", "i-3"]));
}

#[test]
fn an_attempt_in_flight_and_what_is_young_are_left_alone() {
    let young = instance("i-2", tags("c", Some("gone"), 1), 119, InstanceState::Pending);
    let account = account(vec![running("i-1", "b", 2), young]);
    let open = KnownBatch { in_flight: Some(2), ..batch("b", &[]) };
    assert!(look(&account, std::slice::from_ref(&open), &[]).is_empty());
    let other_attempt = KnownBatch { in_flight: Some(3), ..open };
    assert_eq!(look(&account, &[other_attempt], &[]).instances, ids(&["i-1"]));
}

#[test]
fn what_lacks_one_of_the_two_tags_is_never_touched() {
    let of_others = [
        tags("c", None, 1),
        tags("another", Some("gone"), 1),
        Tags::from([("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned())]),
    ];
    let instances = of_others.iter().enumerate();
    let instances =
        instances.map(|(n, tags)| instance(&format!("i-{n}"), tags.clone(), 600, InstanceState::Running)).collect();
    let mut account = account(instances);
    account.groups = of_others.iter().map(|tags| PlacementGroup { tags: tags.clone(), ..group("g", "gone") }).collect();
    account.templates =
        of_others.iter().map(|tags| LaunchTemplate { tags: tags.clone(), ..template("t", "gone") }).collect();
    assert!(look(&account, &[], &[]).is_empty());
}

#[test]
fn an_entry_without_its_instance_is_a_lost_node_unless_the_batch_ends_or_is_young() {
    let ended = instance("i-2", tags("c", Some("b"), 1), 600, InstanceState::Terminated);
    let account = account(vec![running("i-1", "b", 1), ended]);
    let known = batch("b", &["i-1", "i-2", "i-3"]);
    let lost = look(&account, std::slice::from_ref(&known), &[]).lost;
    assert_eq!(lost.get("name-b"), Some(&ids(&["i-2", "i-3"])));

    let ending = KnownBatch { ending: true, ..known.clone() };
    assert!(look(&account, &[ending], &[]).is_empty());
    let mut young = known.clone();
    young.instances.iter_mut().for_each(|instance| instance.since = Some(ago(60)));
    assert!(look(&account, &[young], &[]).is_empty());
    let mut settled = known;
    settled.instances.iter_mut().for_each(|instance| instance.settled = true);
    assert!(look(&account, &[settled], &[]).is_empty());
}

#[test]
fn a_node_of_ours_without_instance_is_deleted_and_one_whose_instance_is_only_not_visible_yet_is_not() {
    let node = |name: &str, id: &str| KnownNode { name: NodeName::from(name), instance: InstanceId::from(id) };
    let nodes = [node("a", "i-1"), node("b", "i-2"), node("c", "i-3")];
    let mut young = batch("b", &["i-1", "i-3"]);
    young.instances[1].since = Some(ago(10));
    let found = look(&account(vec![running("i-1", "b", 1)]), &[young], &nodes);
    assert_eq!(found.nodes, BTreeMap::from([(NodeName::from("b"), InstanceId::from("i-2"))]));
}

/// So many nodes of one batch, each with its Node.
fn nodes_of(count: usize) -> (KnownBatch, Vec<KnownNode>) {
    let names: Vec<String> = (0..count).map(|n| format!("i-{n}")).collect();
    let node = |id: &String| KnownNode { name: format!("n-{id}").as_str().into(), instance: id.as_str().into() };
    let nodes = names.iter().map(node).collect();
    (batch("b", &names.iter().map(String::as_str).collect::<Vec<_>>()), nodes)
}

/// What is found when EC2 does not show so many of these nodes.
fn missing(count: usize, unseen: usize) -> Findings {
    let (known, nodes) = nodes_of(count);
    let there = known.instances.iter().skip(unseen).map(|instance| running(instance.id.as_str(), "b", 1)).collect();
    look(&account(there), &[known], &nodes)
}

#[test]
fn an_answer_without_any_instance_writes_nothing_off_and_deletes_no_node() {
    let found = missing(6, 6);
    assert_eq!((found.lost["name-b"].len(), found.nodes.len()), (6, 6));
    let round = sweep_round(&found, &found, &BTreeSet::new());
    assert!(round.act.is_empty(), "{:?}", round.act);
    assert_eq!(round.held, Some(found));
}

#[test]
fn five_and_a_tenth_of_what_is_listed_may_be_unseen_at_once() {
    assert!(!missing(5, 5).held() && missing(6, 6).held());
    assert!(!missing(100, 10).held() && missing(100, 11).held());
    // A Node of no entry counts like an entry without a Node, and one with both counts once.
    let (_, nodes) = nodes_of(6);
    assert!(look(&account(Vec::new()), &[], &nodes).held());
    assert!(!look(&account(Vec::new()), &[], &nodes[1..]).held());
}

#[test]
fn nodes_that_ec2_shows_as_ended_are_written_off_however_many_they_are() {
    let (known, nodes) = nodes_of(20);
    let ended = |listed: &KnownInstance| {
        let tags = tags("c", Some("b"), 1);
        instance(listed.id.as_str(), tags, 600, InstanceState::Terminated)
    };
    let found = look(&account(known.instances.iter().map(ended).collect()), &[known], &nodes);
    let round = sweep_round(&found, &found, &BTreeSet::new());
    assert_eq!((round.act.lost["name-b"].len(), round.act.nodes.len(), round.held), (20, 20, None));
}

#[test]
fn what_is_unseen_is_written_off_once_a_person_named_exactly_that_set() {
    let (found, more) = (missing(20, 6), missing(20, 7));
    let confirmed = |digest: &str| sweep_round(&found, &found, &[digest].into()).act.nodes.len();
    assert_eq!((confirmed(&more.digest()), confirmed(&found.digest())), (0, 6));
    // Orphans alone are named as before, whoever is unseen beside them.
    assert_eq!(missing(20, 1).digest(), Findings::default().digest());
}

#[test]
fn groups_and_templates_go_when_nobody_wants_them_and_the_group_is_empty() {
    let mut account = account(vec![running("i-1", "b", 1)]);
    account.groups = vec![group("group", "gone"), group("empty", "gone"), group("kept", "b"), group("older", "b")];
    account.templates = vec![template("kept", "b"), template("old", "b"), template("orphan", "gone")];
    let mut known = batch("b", &["i-1"]);
    known.group = Some("kept".to_owned());
    known.templates = BTreeSet::from(["kept".to_owned()]);
    let found = look(&account, &[known], &[]);
    assert_eq!(found.groups, BTreeSet::from(["empty".to_owned(), "older".to_owned()]));
    assert_eq!(found.templates, BTreeSet::from(["lt-old".to_owned(), "lt-orphan".to_owned()]));
}

#[test]
fn more_than_five_and_a_tenth_of_all_at_once_pass_the_safety_threshold() {
    let many = |orphans: usize, kept: usize| {
        let names: Vec<String> = (0..kept).map(|n| format!("i-k{n}")).collect();
        let mut instances: Vec<Instance> = (0..orphans).map(|n| running(&format!("i-o{n}"), "gone", 1)).collect();
        instances.extend(names.iter().map(|id| running(id, "b", 1)));
        look(&account(instances), &[batch("b", &names.iter().map(String::as_str).collect::<Vec<_>>())], &[])
    };
    assert!(!many(5, 0).held(), "five are always allowed");
    assert!(many(6, 0).held());
    assert!(!many(10, 90).held(), "a tenth");
    assert!(many(11, 90).held());
    assert_ne!(many(6, 0).digest(), many(7, 0).digest(), "what is confirmed is exactly what was seen");
    assert_eq!(many(6, 0).digest(), many(6, 3).digest());
}

#[test]
fn only_what_both_looks_found_is_acted_on() {
    let first =
        look(&account(vec![running("i-1", "gone", 1), running("i-2", "gone", 1)]), &[batch("b", &["i-3"])], &[]);
    let second = look(&account(vec![running("i-1", "gone", 1)]), &[], &[]);
    let both = first.confirmed_by(&second);
    assert_eq!(both.instances, ids(&["i-1"]));
    assert!(both.lost.is_empty());
}

/// So many instances of an attempt of batch `b`, which has closed its attempts up to the second.
fn of_attempt(attempt: u32, count: usize) -> Findings {
    let instances = (0..count).map(|n| running(&format!("i-{n}"), "b", attempt)).collect();
    look(&account(instances), &[KnownBatch { closed: 2, ..batch("b", &[]) }], &[])
}

#[test]
fn what_a_known_batch_did_not_keep_of_a_closed_attempt_is_collected_at_once_however_much_it_is() {
    for attempt in [1, 2] {
        let found = of_attempt(attempt, 6);
        let round = sweep_round(&found, &found, &BTreeSet::new());
        assert_eq!((round.act.instances.len(), round.held), (6, None), "attempt {attempt}");
    }
}

#[test]
fn an_attempt_that_its_batch_has_not_come_to_means_a_restored_backup_and_is_held() {
    let found = of_attempt(3, 6);
    let round = sweep_round(&found, &found, &BTreeSet::new());
    assert!(round.act.is_empty());
    assert_eq!(round.held, Some(found));
}

#[test]
fn while_the_rest_is_held_what_is_explained_goes_and_nothing_else() {
    let mut instances: Vec<Instance> = (0..6).map(|n| running(&format!("i-lost{n}"), "gone", 1)).collect();
    instances.push(running("i-old", "b", 1));
    let mut account = account(instances);
    account.templates = vec![template("orphan", "gone")];
    let found = look(&account, &[KnownBatch { closed: 1, ..batch("b", &[]) }], &[]);
    let round = sweep_round(&found, &found, &BTreeSet::new());
    assert_eq!(round.act.instances, ids(&["i-old"]));
    assert!(round.act.templates.is_empty() && !found.templates.is_empty());
    assert_eq!(round.held.unwrap().unexplained().len(), 6);
}

#[test]
fn only_the_set_that_a_person_named_is_released() {
    let found = of_attempt(3, 6);
    let (digest, other) = (found.digest(), of_attempt(3, 7).digest());
    let held = |confirmed: &[&str]| sweep_round(&found, &found, &confirmed.iter().copied().collect()).held.is_some();
    assert!(held(&[&other]), "the confirmation of another set is none");
    assert!(!held(&[&digest]) && !held(&[&other, &digest]));
}

#[test]
fn what_the_second_look_did_not_find_is_left_alone() {
    let first = look(&account(vec![running("i-1", "gone", 1), running("i-2", "gone", 1)]), &[], &[]);
    let second = look(&account(vec![running("i-1", "gone", 1)]), &[], &[]);
    assert_eq!(sweep_round(&first, &second, &BTreeSet::new()).act.instances, ids(&["i-1"]));
    assert_eq!(sweep_round(&second, &first, &BTreeSet::new()).act.instances, ids(&["i-1"]));
}

#[test]
fn what_a_person_is_to_end_is_named_before_they_confirm_it() {
    let many = |count: u32| {
        let account = account((0..count).map(|n| running(&format!("i-{n:02}"), "gone", 1)).collect());
        let found = look(&account, &[], &[]);
        let cost = held_cost(&found.held_orphans(), &account, &PriceBook::default(), ago(0));
        (found.sentence(&account, cost, "uid-1"), found.digest())
    };
    let (text, digest) = many(7);
    assert!((0..7).all(|n| text.contains(&format!("i-{n:02} p5.48xlarge us-east-1a"))), "{text}");
    assert!(text.contains("--cluster-uid uid-1") && text.ends_with(&format!("(set {digest})")), "{text}");
    let (text, _) = many(32);
    assert!(text.contains("i-19 p5.48xlarge us-east-1a, and 12 more)") && !text.contains("i-20"), "{text}");

    let text = missing(6, 6).sentence(&Account::default(), HeldCost::default(), "uid-1");
    assert!(text.matches(" of name-b").count() == 6 && text.contains("credentials and Region"), "{text}");
}

#[test]
fn what_is_held_has_a_price_and_an_age() {
    let mut instances: Vec<Instance> = (0..7).map(|n| running(&format!("i-{n}"), "gone", 1)).collect();
    instances[3].launch_time = Some(ago(7200));
    let account = account(instances);
    let held = look(&account, &[], &[]).unexplained();
    let cost = held_cost(&held, &account, &PriceBook::default(), ago(0));
    assert_eq!((cost.micro_usd_per_hour, cost.oldest), (7 * 55_040_000, SignedDuration::from_hours(2)));
}

fn anything() -> impl Strategy<Value = (Account, Vec<KnownBatch>)> {
    let state = prop::sample::select(vec![
        InstanceState::Pending,
        InstanceState::Running,
        InstanceState::ShuttingDown,
        InstanceState::Terminated,
        InstanceState::Stopped,
    ]);
    let one = (0..12_u32, 0..4_u32, 0..3_u32, 0..300_i64, state, 0..4_u32);
    let instances = prop::collection::btree_map(0..30_u32, one, 0..30);
    let batch = (prop::collection::btree_set(0..30_u32, 0..10), prop::option::of(0..3_u32), any::<bool>(), 0..300_i64);
    (instances, prop::collection::vec(batch, 0..4)).prop_map(|(instances, batches)| {
        let instances = instances
            .into_iter()
            .map(|(id, (_, of, attempt, age, state, whose))| {
                let batch = format!("b{of}");
                let tags = match whose {
                    0 => tags("another", Some(&batch), attempt),
                    1 => tags("c", None, attempt),
                    _ => tags("c", Some(&batch), attempt),
                };
                instance(&format!("i-{id}"), tags, age, state)
            })
            .collect();
        let batches = batches
            .into_iter()
            .enumerate()
            .map(|(n, (ids, in_flight, ending, age))| KnownBatch {
                name: format!("name-b{n}"),
                uid: format!("b{n}"),
                in_flight,
                ending,
                instances: ids
                    .into_iter()
                    .map(|id| KnownInstance { id: format!("i-{id}").into(), since: Some(ago(age)), settled: false })
                    .collect(),
                ..KnownBatch::default()
            })
            .collect();
        (account(instances), batches)
    })
}

proptest! {
    #[test]
    fn nothing_of_others_nothing_listed_and_nothing_in_flight_is_ever_terminated((account, batches) in anything()) {
        let found = look(&account, &batches, &[]);
        for id in &found.instances {
            let instance = account.instances.iter().find(|instance| instance.id == *id).unwrap();
            prop_assert_eq!(instance.tags.get(TAG_CLUSTER_UID).map(String::as_str), Some("c"));
            let uid = instance.tags.get(TAG_BATCH).cloned();
            prop_assert!(uid.is_some());
            prop_assert!(!batches.iter().any(|batch| batch.instances.iter().any(|listed| listed.id == *id)));
            let attempt = instance.tags.get(TAG_ATTEMPT).and_then(|attempt| attempt.parse().ok());
            prop_assert!(!batches.iter().any(|batch| Some(&batch.uid) == uid.as_ref() && batch.in_flight == attempt));
            prop_assert!(instance.launch_time.unwrap() <= ago(120));
        }
    }

    #[test]
    fn what_was_collected_is_not_found_again((mut account, mut batches) in anything()) {
        let found = look(&account, &batches, &[]);
        for instance in &mut account.instances {
            if found.instances.contains(&instance.id) {
                instance.state = InstanceState::ShuttingDown;
            }
        }
        for batch in &mut batches {
            let lost = found.lost.get(&batch.name).cloned().unwrap_or_default();
            batch.instances.iter_mut().filter(|instance| lost.contains(&instance.id)).for_each(|i| i.settled = true);
        }
        prop_assert!(look(&account, &batches, &[]).is_empty());
    }

    #[test]
    fn every_live_instance_of_ours_is_listed_or_found_or_excused((account, batches) in anything()) {
        let found = look(&account, &batches, &[]);
        for instance in account.instances.iter().filter(|instance| instance.state.live()) {
            let ours = instance.tags.get(TAG_CLUSTER_UID).is_some_and(|uid| uid == "c")
                && instance.tags.contains_key(TAG_BATCH);
            let listed = batches.iter().any(|batch| batch.instances.iter().any(|listed| listed.id == instance.id));
            let young = instance.launch_time.unwrap() > ago(120);
            let open = batches.iter().any(|batch| batch.in_flight.is_some());
            prop_assert!(!ours || listed || young || open || found.instances.contains(&instance.id));
        }
    }
}
