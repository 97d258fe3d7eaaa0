//! Tests of the ledger: who has the last capacity, and that nothing is counted twice or not at all.

use super::*;
use crate::ec2::machine::tests::p5;
use crate::offering::limits::{NODES, counted};

const DOLLARS: u64 = 1_000_000;
const P5: u64 = 55_040_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn nodes(count: u32) -> Amounts {
    Amounts::of_nodes(&counted(&p5().capacity()), P5, count)
}

/// A batch that wants so many nodes of each pool.
fn claim(batch: &str, created: i64, standing: Standing, amounts: &[(&str, u32)]) -> Claim {
    Claim {
        batch: batch.to_owned(),
        created: Some(at(created)),
        standing,
        amounts: amounts.iter().map(|(pool, count)| ((*pool).to_owned(), nodes(*count))).collect(),
        launch: None,
    }
}

fn inputs(limits: &[(&str, i64)], claims: &[Claim]) -> LedgerInputs {
    let pool =
        |limit: i64| PoolLimits { limits: [(ResourceName::from(NODES), limit)].into(), max_micro_usd_per_hour: None };
    LedgerInputs {
        pools: limits.iter().map(|(name, limit)| ((*name).to_owned(), pool(*limit))).collect(),
        cluster: Ceiling::Unlimited,
        claims: claims.to_vec(),
    }
}

#[test]
fn two_batches_that_have_not_begun_never_both_find_the_last_capacity() {
    for (first, second) in [((0, "a"), (1, "b")), ((1, "a"), (0, "b")), ((0, "a"), (0, "b"))] {
        let waits = |(created, name): (i64, &str)| claim(name, created, Standing::Waiting, &[("gpu", 8)]);
        let inputs = inputs(&[("gpu", 8)], &[waits(first), waits(second)]);
        let may = |name: &str| Ledger::before(&inputs, name).fits("gpu", &nodes(8));
        assert!(may("a") != may("b"), "a may begin: {}, b may begin: {}", may("a"), may("b"));
        assert_eq!(may("a"), first <= second, "the older one has it, the first by name of two that are as old");
    }
}

#[test]
fn a_batch_that_has_begun_goes_before_an_older_one_that_has_not() {
    let claims = [claim("old", 0, Standing::Waiting, &[("gpu", 8)]), claim("begun", 9, Standing::Begun, &[("gpu", 8)])];
    let inputs = inputs(&[("gpu", 8)], &claims);
    assert_eq!(Ledger::before(&inputs, "old").capacity("gpu", NODES), Some(0));
    assert_eq!(Ledger::before(&inputs, "begun").capacity("gpu", NODES), Some(8), "its own share is not against it");
}

#[test]
fn an_older_batch_that_does_not_fit_in_holds_nothing_up() {
    let claims = [
        claim("begun", 0, Standing::Begun, &[("gpu", 4)]),
        claim("large", 1, Standing::Waiting, &[("gpu", 8)]),
        claim("small", 2, Standing::Waiting, &[("gpu", 4)]),
    ];
    let inputs = inputs(&[("gpu", 8)], &claims);
    assert!(!Ledger::before(&inputs, "large").fits("gpu", &nodes(8)));
    assert!(Ledger::before(&inputs, "small").fits("gpu", &nodes(4)));
    assert!(!Ledger::beside_all(&inputs).fits("gpu", &nodes(1)), "the small one has the rest");
}

#[test]
fn a_batch_that_rests_holds_nothing_for_others_and_asks_again_in_its_turn() {
    let claims =
        [claim("rests", 0, Standing::Resting, &[("gpu", 8)]), claim("fresh", 1, Standing::Waiting, &[("gpu", 8)])];
    let inputs = inputs(&[("gpu", 8)], &claims);
    assert!(Ledger::before(&inputs, "fresh").fits("gpu", &nodes(8)));
    assert!(Ledger::before(&inputs, "rests").fits("gpu", &nodes(8)), "until the other has begun");
}

#[test]
fn a_batch_counts_in_every_pool_it_may_be_provisioned_from_until_it_has_begun_in_one() {
    let pools = [("one", 8), ("two", 8)];
    let waits = claim("a", 0, Standing::Waiting, &[("one", 8), ("two", 6)]);
    let ledger = Ledger::beside_all(&inputs(&pools, &[waits]));
    assert_eq!((ledger.capacity("one", NODES), ledger.capacity("two", NODES)), (Some(0), Some(2)));
    let begun = claim("a", 0, Standing::Begun, &[("two", 6)]);
    let ledger = Ledger::beside_all(&inputs(&pools, &[begun]));
    assert_eq!((ledger.capacity("one", NODES), ledger.capacity("two", NODES)), (Some(8), Some(2)));
}

#[test]
fn dollars_of_all_batches_count_for_the_cluster_and_those_of_a_pool_for_the_pool() {
    let mut inputs = inputs(
        &[("one", 100), ("two", 100)],
        &[claim("a", 0, Standing::Begun, &[("one", 1)]), claim("b", 1, Standing::Begun, &[("two", 2)])],
    );
    inputs.cluster = Ceiling::At(4 * P5);
    inputs.pools.get_mut("one").unwrap().max_micro_usd_per_hour = Some(100 * DOLLARS);
    let ledger = Ledger::beside_all(&inputs);
    let cluster = CeilingLeft { scope: CeilingScope::Cluster, left: P5, ceiling: 4 * P5 };
    let own = CeilingLeft { scope: CeilingScope::Pool, left: 100 * DOLLARS - P5, ceiling: 100 * DOLLARS };
    assert_eq!(ledger.ceilings("one"), [own, cluster]);
    assert_eq!(ledger.ceilings("two"), [cluster]);
    assert!(!ledger.fits("one", &nodes(1)), "44.96 are left in the pool");
    assert!(ledger.fits("two", &nodes(1)) && !ledger.fits("two", &nodes(2)));
}

#[test]
fn a_batch_that_may_begin_in_two_pools_spends_the_dollars_of_the_cluster_once() {
    let mut inputs =
        inputs(&[("one", 100), ("two", 100)], &[claim("a", 0, Standing::Waiting, &[("one", 2), ("two", 3)])]);
    inputs.cluster = Ceiling::At(10 * P5);
    assert_eq!(Ledger::beside_all(&inputs).ceilings("one").first().unwrap().left, 7 * P5);
}

#[test]
fn hosts_and_addresses_are_taken_until_a_later_reading_counts_them() {
    let reservation: Reservation = Reservation { free: 8, ..reservation("cr-1") };
    let subnet = Subnet {
        id: "s-1".to_owned(),
        zone: "a".to_owned(),
        zone_id: "id-a".to_owned(),
        free_addresses: 100,
        vpc_id: String::new(),
        ipv6: false,
        tags: BTreeMap::new(),
    };
    let launch = |won: Option<i64>| Claim {
        launch: Some(Launch {
            hosts: Some(Hosts { reservation: "cr-1".to_owned(), count: 4 }),
            addresses: Addresses { subnet: "s-1".to_owned(), count: 64 },
            won: won.map(at),
        }),
        ..claim("a", 0, Standing::Begun, &[("gpu", 4)])
    };
    let left = |won: Option<i64>, but: Option<&str>| {
        let ledger = Ledger::new(&inputs(&[], &[launch(won)]), but);
        (ledger.hosts(&reservation, at(60)), ledger.addresses(&subnet, at(60)))
    };
    assert_eq!(left(None, None), (4, 36), "an open launch may take them at any moment");
    assert_eq!(left(Some(60), None), (4, 36));
    assert_eq!(left(Some(59), None), (8, 100), "the reading has seen it");
    assert_eq!(left(None, Some("a")), (8, 100), "its own are not against it");
    let most = |most: u32, each: u32, is_full: fn(&str, u32) -> bool| {
        let ledger = Ledger::new(&inputs(&[], &[launch(None)]), None);
        ledger.most_addressed([&subnet].into_iter(), at(60), each, most, is_full)
    };
    assert_eq!((most(30, 1, |_, _| false), most(99, 1, |_, _| false), most(99, 5, |_, _| false)), (30, 36, 7));
    assert_eq!(most(99, 1, |_, count| count >= 8), 7, "EC2 refused eight a moment ago");
    assert_eq!((most(99, 37, |_, _| false), most(99, 1, |_, _| true)), (0, 0));
    let other = Reservation { id: "cr-2".to_owned(), ..reservation.clone() };
    assert_eq!(Ledger::new(&inputs(&[], &[launch(None)]), None).hosts(&other, at(60)), 8);
}

fn reservation(id: &str) -> Reservation {
    serde_json::from_value(serde_json::json!({
        "id": id, "instanceType": "p5.48xlarge", "zone": "a", "total": 8, "free": 8, "state": "active",
        "targeted": true, "block": false, "owner": "1", "tags": {},
    }))
    .unwrap()
}

#[test]
fn the_most_of_two_offers_is_taken_amount_by_amount() {
    let mut few_large = Amounts::default();
    few_large.resources.set(NODES, 2);
    few_large.resources.set("cpu", 400);
    few_large.micro_usd_per_hour = 7;
    let mut many_small = Amounts::default();
    many_small.resources.set(NODES, 8);
    many_small.resources.set("cpu", 100);
    many_small.micro_usd_per_hour = 9;
    let most = few_large.clone().or(&many_small);
    assert_eq!((most.resources.get(NODES), most.resources.get("cpu"), most.micro_usd_per_hour), (8, 400, 9));
    assert_eq!(many_small.or(&few_large), most);
}
