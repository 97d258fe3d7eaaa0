//! Dollars are booked exactly once, whoever books, dies, waits or tries again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::batch::{Booking, Books, OTHER, Payer, ROWS, SHARED, StrandedCause, book, shares, spent_so_far};
use muster_core::ec2::CapacityType;
use muster_core::model::batch::{
    Batch, BatchMember, BatchPhase, BatchSpec, BatchStatus, Billing, MemberState, Owner, OwnerRef, Share,
};
use muster_core::model::names::ObjectKey;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// A batch of which everything has ended, and that cost so much.
fn closed(uid: &str, namespace: Option<&str>, spent: u64) -> Batch {
    let owner = namespace.map(|namespace| OwnerRef { key: ObjectKey::new(namespace, "train"), uid: "g".to_owned() });
    let spec = BatchSpec { owner: owner.map_or(Owner::Pods, Owner::Gang), ..BatchSpec::default() };
    let billing = Billing {
        since: Some(NOW),
        spent,
        stranded: [(StrandedCause::Join, spent / 2)].into(),
        by_instance: true,
        closed: true,
        ..Billing::default()
    };
    let status = BatchStatus {
        phase: BatchPhase::Terminating,
        node_pool: Some("h100".to_owned()),
        capacity_type: Some(CapacityType::Spot),
        billing: Some(billing),
        ..BatchStatus::default()
    };
    let (name, uid) = (format!("batch-{uid}"), uid.to_owned());
    Batch { name, uid, created: None, deleting: false, spec: Arc::new(spec), status, newer: None }
}

fn uids(batches: &[&Batch]) -> BTreeSet<String> {
    batches.iter().map(|batch| batch.uid.clone()).collect()
}

fn written(books: &Books, batch: &Batch, exist: &BTreeSet<String>) -> Books {
    match book(books, "h100", batch, exist) {
        Booking::Write(next) => next,
        other @ (Booking::Done | Booking::Open) => panic!("{other:?}"),
    }
}

fn total(books: &Books) -> u64 {
    books.rows.values().map(|spent| spent.all).sum()
}

#[test]
fn a_bill_is_booked_for_its_namespace_and_capacity_type_and_not_twice() {
    let (one, other) = (closed("u-1", Some("ml"), 5_000_000), closed("u-2", None, 3));
    let exist = uids(&[&one, &other]);
    let books = written(&written(&Books::default(), &one, &exist), &other, &exist);
    let row = |namespace: &str| {
        let payer = Payer { namespace: namespace.to_owned(), capacity_type: "spot".to_owned() };
        books.rows.get(&payer).map(|spent| (spent.all, spent.stranded.get("join").copied()))
    };
    assert_eq!((row("ml"), row(SHARED)), (Some((5_000_000, Some(2_500_000))), Some((3, Some(1)))));
    assert_eq!(book(&books, "h100", &one, &exist), Booking::Done, "it is in the books");
    assert_eq!(book(&Books::default(), "h100", &one, &BTreeSet::new()), Booking::Done, "whoever deleted it booked it");
    assert_eq!(book(&Books::default(), "a100", &one, &exist), Booking::Done, "nothing was spent on that pool");
}

#[test]
fn a_bill_of_nothing_is_not_booked() {
    let free = closed("u-1", Some("ml"), 0);
    assert_eq!(book(&Books::default(), "h100", &free, &uids(&[&free])), Booking::Done);
}

#[test]
fn a_bill_that_may_still_grow_is_not_booked() {
    let mut open = closed("u-1", Some("ml"), 5);
    open.status.billing.as_mut().unwrap().closed = false;
    assert_eq!(book(&Books::default(), "h100", &open, &uids(&[&open])), Booking::Open);
    open.status.billing = None;
    assert_eq!(book(&Books::default(), "h100", &open, &uids(&[&open])), Booking::Open);
}

#[test]
fn namespaces_after_the_first_fifty_rows_are_counted_together_and_none_is_lost() {
    let batches: Vec<Batch> = (0..ROWS as u64 + 7)
        .map(|number| closed(&format!("u-{number}"), Some(&format!("ns-{number:03}")), 10))
        .collect();
    let mut books = Books::default();
    for batch in &batches {
        books = written(&books, batch, &uids(&[batch]));
    }
    let other = Payer { namespace: OTHER.to_owned(), capacity_type: "spot".to_owned() };
    assert_eq!((books.rows.len(), books.rows[&other].all, total(&books)), (ROWS + 1, 70, 570));
    assert_eq!(books.booked.len(), 1, "names of batches that are gone are forgotten");
    // A bill that still runs is shown where it will be booked.
    let late = closed("u-late", Some("ns-999"), 10);
    let sums = spent_so_far(&[("h100", books)].into(), std::iter::once(&late), NOW);
    assert_eq!(sums[&("h100".to_owned(), other)].all, 80);
}

#[test]
fn what_an_earlier_candidate_cost_stays_with_its_pool() {
    let mut batch = closed("u-1", Some("ml"), 100);
    let (node_pool, stranded) = ("a100".to_owned(), [(StrandedCause::Join, 50)].into());
    let earlier = Share { node_pool, capacity_type: Some(CapacityType::OnDemand), spent: 80, stranded };
    batch.status.billing.as_mut().unwrap().earlier = vec![earlier, Share { spent: 5, ..Share::default() }];
    let found: Vec<(String, u64)> =
        shares(&batch.status, None).into_iter().map(|one| (one.node_pool, one.spent)).collect();
    assert_eq!(found, [("a100".to_owned(), 80), (String::new(), 5), ("h100".to_owned(), 15)]);
    let exist = uids(&[&batch]);
    let Booking::Write(a100) = book(&Books::default(), "a100", &batch, &exist) else { panic!("not booked") };
    assert_eq!((total(&a100), total(&written(&Books::default(), &batch, &exist))), (80, 15));
    let sums = spent_so_far(&[("a100", a100), ("h100", Books::default())].into(), std::iter::once(&batch), NOW);
    assert_eq!(sums.values().map(|spent| spent.all).sum::<u64>(), 100, "one part is booked, and two are not yet");
}

#[test]
fn a_bill_that_runs_is_shown_up_to_a_minute_ago_and_never_falls() {
    let at = |seconds: i64| Timestamp::from_second(NOW.as_second() + seconds).unwrap();
    let mut batch = closed("u-1", Some("ml"), 0);
    batch.status = BatchStatus {
        phase: BatchPhase::InUse,
        count: 2,
        price: Some(2 * 3_600_000_000),
        node_pool: Some("h100".to_owned()),
        billing: Some(Billing { since: Some(at(0)), spent: 7, by_instance: true, ..Billing::default() }),
        instances: ["i-1", "i-2"]
            .map(|id| BatchMember {
                launched: Some(at(-30)),
                billed: (id == "i-1").then(|| at(0)),
                ..BatchMember::new(id.into(), 1, MemberState::Ready)
            })
            .to_vec(),
        ..BatchStatus::default()
    };
    let shown = |seconds| {
        let sums = spent_so_far(&BTreeMap::new(), std::iter::once(&batch), at(seconds));
        sums.into_iter().map(|((pool, payer), spent)| (pool, payer.capacity_type, spent.all)).collect::<Vec<_>>()
    };
    let row = |micro| vec![("h100".to_owned(), "unknown".to_owned(), micro)];
    assert_eq!(shown(0), row(7), "nothing before it is a minute old");
    assert_eq!(shown(60), row(7 + 30_000_000), "one instance is not in the sum since its launch");
    assert_eq!(shown(70), row(7 + 50_000_000));
}

/// What an API server has: the books of one pool with their version, and the batches that exist.
#[derive(Clone, Debug)]
struct Server {
    books: Books,
    version: u32,
    batches: BTreeMap<String, Batch>,
}

/// How far somebody is who books a batch and deletes it.
#[derive(Clone, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Read {
        books: Books,
        version: u32,
    },
    Looked {
        books: Books,
        version: u32,
        exist: BTreeSet<String>,
    },
    Booked,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The process does its next step for the batch.
    Step(usize),
    /// It does it, and dies before it knows.
    StepAndDie(usize),
    /// It dies.
    Die(usize),
    /// It takes another batch up.
    Take(usize, usize),
    /// Somebody else writes the pool.
    Touch,
}

impl Server {
    fn step(&mut self, batch: &Batch, stage: Stage) -> Stage {
        match stage {
            Stage::Idle => Stage::Read { books: self.books.clone(), version: self.version },
            Stage::Read { books, version } => {
                Stage::Looked { books, version, exist: self.batches.keys().cloned().collect() }
            }
            Stage::Looked { books, version, exist } => match book(&books, "h100", batch, &exist) {
                Booking::Done => Stage::Booked,
                Booking::Write(next) if version == self.version => {
                    (self.books, self.version) = (next, self.version + 1);
                    Stage::Booked
                }
                Booking::Write(_) => Stage::Idle,
                Booking::Open => panic!("it is closed"),
            },
            Stage::Booked => {
                self.batches.remove(&batch.uid);
                Stage::Idle
            }
        }
    }

    /// What is shown of it.
    fn shown(&self) -> u64 {
        let sums = spent_so_far(&[("h100", self.books.clone())].into(), self.batches.values(), NOW);
        sums.values().map(|spent| spent.all).sum()
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (0..3_usize).prop_map(Event::Step),
        1 => (0..3_usize).prop_map(Event::StepAndDie),
        1 => (0..3_usize).prop_map(Event::Die),
        2 => (0..3_usize, 0..4_usize).prop_map(|(process, batch)| Event::Take(process, batch)),
        1 => Just(Event::Touch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Three processes that each assume to lead, in every order of their steps.
    #[test]
    fn every_bill_is_counted_exactly_once_at_every_moment(events in prop::collection::vec(event(), 0..120)) {
        let all: Vec<Batch> = (0..4).map(|number| closed(&format!("u-{number}"), Some("ml"), 10_u64.pow(number))).collect();
        let mut server = Server {
            books: Books::default(),
            version: 0,
            batches: all.iter().map(|batch| (batch.uid.clone(), batch.clone())).collect(),
        };
        let mut processes: Vec<(usize, Stage)> = vec![(0, Stage::Idle); 3];
        for event in events {
            match event {
                Event::Step(process) => {
                    let (batch, stage) = &mut processes[process];
                    *stage = server.step(&all[*batch], std::mem::take(stage));
                }
                Event::StepAndDie(process) => {
                    let (batch, stage) = std::mem::take(&mut processes[process]);
                    server.step(&all[batch], stage);
                }
                Event::Die(process) => processes[process] = (0, Stage::Idle),
                Event::Take(process, batch) => processes[process] = (batch, Stage::Idle),
                Event::Touch => server.version += 1,
            }
            prop_assert_eq!(server.shown(), 1_111);
        }
        for batch in &all {
            let mut stage = Stage::Idle;
            while server.batches.contains_key(&batch.uid) {
                stage = server.step(batch, stage);
            }
        }
        prop_assert_eq!((total(&server.books), server.shown()), (1_111, 1_111));
    }
}
