//! The planner by scenario: one topology request or one complaint each.

use std::sync::Arc;

use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::resources::Resources;
use muster_core::planner::plan::{
    Elastic, GangRequest, Host, Placement, Policy, Problem, Refusal, SliceTopologyRequest, TopologyRequests,
};
use muster_core::planner::{self, Memory, Pruning};
use muster_core::topology::Levels;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::build::{GPU, applied, bare, host, levels, nodes, plan, plan_with_policy, problem, role};

const ZONE: Option<usize> = Some(0);
const RACK: Option<usize> = Some(1);
const SPREAD: Policy = Policy { placement: Placement::Locality, elastic: Elastic::Spread };

fn zone_and_rack() -> Levels {
    levels(&["zone", "rack"])
}

/// Racks of one-accelerator hosts in one zone: `sizes[i]` hosts in rack `i`.
fn racks(sizes: &[usize], gpus: i64) -> Vec<Host> {
    let mut hosts = Vec::new();
    for (rack, size) in sizes.iter().enumerate() {
        hosts.extend(
            (0..*size).map(|index| host(&format!("r{rack}-n{index}"), &format!("zone=a rack={rack}"), gpus, 0)),
        );
    }
    hosts
}

fn used(problem: &Problem) -> Vec<u32> {
    plan(problem).1.levels.iter().map(|level| level.used).collect()
}

fn refused(problem: &Problem) -> String {
    let (plan, report) = plan(problem);
    assert!(plan.places.is_empty());
    report.refusal.unwrap().to_string()
}

/// What is wrong, without what would help.
fn wrong(problem: &Problem) -> String {
    bare(plan(problem).1.refusal).unwrap().to_string()
}

#[test]
fn a_cap_at_the_zone_still_finds_the_one_rack_that_fits() {
    let hosts = racks(&[2, 4, 3], 1);
    assert_eq!(used(&problem(zone_and_rack(), hosts, 4, ZONE)), [1, 1, 4]);
}

#[test]
fn without_any_topology_request_the_lowest_common_domain_is_found() {
    let hosts = racks(&[2, 4, 3], 1);
    assert_eq!(used(&problem(zone_and_rack(), hosts, 4, None)), [1, 1, 4]);
}

#[test]
fn the_tightest_of_several_racks_is_taken_on_an_irregular_fabric() {
    let hosts = racks(&[1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 6, 6, 6, 8, 11], 1);
    let (plan, _) = plan(&problem(zone_and_rack(), hosts, 8, ZONE));
    assert!(nodes(&plan).iter().all(|node| node.starts_with("r13-")), "{:?}", nodes(&plan));
}

#[test]
fn twelve_members_fill_two_hosts_of_six_rather_than_the_fullest_first() {
    let hosts =
        vec![host("n1", "zone=a rack=1", 8, 0), host("n2", "zone=a rack=1", 6, 0), host("n3", "zone=a rack=1", 6, 0)];
    let (plan, _) = plan(&problem(zone_and_rack(), hosts, 12, RACK));
    assert_eq!(nodes(&plan), [["n2"; 6], ["n3"; 6]].concat());
}

#[test]
fn packing_keeps_hosts_whole_where_locality_would_break_one() {
    // The nibbled host is too small for both; a whole host must be broken, or both nibbled ones used.
    let hosts = vec![host("n1", "", 8, 0), host("n2", "", 8, 7), host("n3", "", 8, 7)];
    let problem = problem(levels(&[]), hosts, 2, None);
    assert_eq!(nodes(&plan(&problem).0), ["n1", "n1"]);
    let packing = Policy { placement: Placement::Packing, ..Policy::default() };
    assert_eq!(nodes(&plan_with_policy(&problem, &packing).0), ["n2", "n3"]);
}

#[test]
fn nodes_with_just_enough_accelerators_are_taken_before_untouched_ones() {
    // A gang of 2 × 6 fits both pairs once; on the untouched one the next gang of 2 × 8 would find no place.
    let mut hosts = vec![host("n1", "zone=a rack=1", 8, 0), host("n2", "zone=a rack=1", 8, 0)];
    hosts.extend([host("n3", "zone=a rack=2", 8, 2), host("n4", "zone=a rack=2", 8, 2)]);
    let mut gang = problem(zone_and_rack(), hosts, 2, RACK);
    gang.gang.roles[0].shape.requests.set(GPU, 6);
    for placement in [Placement::Locality, Placement::Packing] {
        let policy = Policy { placement, ..Policy::default() };
        assert_eq!(nodes(&plan_with_policy(&gang, &policy).0), ["n3", "n4"], "{placement:?}");
        let mut memory = Memory::new(gang.levels.clone(), gang.hosts.clone());
        assert_eq!(nodes(&memory.plan(gang.gang.clone(), &policy).0), ["n3", "n4"], "{placement:?}");
    }
}

#[test]
fn a_gang_that_cannot_avoid_an_untouched_node_takes_the_one_that_keeps_least_free() {
    let hosts = vec![host("n1", "", 16, 0), host("n2", "", 8, 0)];
    let mut gang = problem(levels(&[]), hosts, 1, None);
    gang.gang.roles[0].shape.requests.set(GPU, 6);
    gang.gang.roles[0].shape.one_per_node = true;
    assert_eq!(nodes(&plan(&gang).0), ["n2"]);
}

#[test]
fn members_without_accelerators_leave_as_little_as_possible_of_what_is_scarcest() {
    let mut hosts = vec![host("n1", "", 0, 0), host("n2", "", 0, 0), host("n3", "", 0, 0)];
    for (host, (cpu, memory)) in hosts.iter_mut().zip([(9, 640), (11, 64), (7, 640)]) {
        let node = Arc::make_mut(&mut host.node);
        node.allocatable.add(&Resources::from_iter([("cpu", cpu * 1_000), ("memory", memory << 30)]));
    }
    let mut gang = problem(levels(&[]), hosts, 1, None);
    gang.gang.roles[0].shape.requests = Resources::from_iter([("cpu", 6_000), ("memory", 40 << 30), ("pods", 1)]);
    assert_eq!(nodes(&plan(&gang).0), ["n3"]);
    Arc::make_mut(&mut gang.hosts[1].node).allocatable.set("memory", 40 << 30);
    assert_eq!(nodes(&plan(&gang).0), ["n2"], "of its memory nothing is left");
}

#[test]
fn ranks_run_along_the_racks_in_natural_order() {
    let mut hosts = Vec::new();
    for rack in [10, 9, 2, 1] {
        hosts
            .extend((0..2).map(|index| host(&format!("h{rack}-{}", index + 9), &format!("zone=a rack=r{rack}"), 2, 0)));
    }
    let (plan, report) = plan(&problem(zone_and_rack(), hosts, 16, ZONE));
    let expected = ["h1-9", "h1-10", "h2-9", "h2-10", "h9-9", "h9-10", "h10-9", "h10-10"];
    assert_eq!(nodes(&plan), expected.into_iter().flat_map(|node| [node; 2]).collect::<Vec<_>>());
    assert_eq!(report.ring_crossings, [0, 4, 8], "one edge per border, and the one that closes the ring");
    let ranks: Vec<u32> = plan.places.iter().map(|place| place.rank).collect();
    assert_eq!(ranks, (0..16).collect::<Vec<_>>());
}

#[test]
fn ranks_run_across_roles_in_role_order() {
    let mut problem = problem(zone_and_rack(), racks(&[2, 2], 2), 0, ZONE);
    problem.gang.roles = vec![role("leader", 1, 1), role("worker", 4, 4)];
    let (plan, _) = plan(&problem);
    assert_eq!(
        plan.places.iter().map(|place| (place.role, place.rank)).collect::<Vec<_>>(),
        [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]
    );
    assert_eq!(nodes(&plan), ["r0-n0", "r0-n0", "r0-n1", "r0-n1", "r1-n0"]);
}

#[test]
fn the_order_of_the_hosts_does_not_matter() {
    let forward = problem(zone_and_rack(), racks(&[3, 3, 3], 2), 8, ZONE);
    let mut backward = forward.clone();
    backward.hosts.reverse();
    assert_eq!(plan(&forward), plan(&backward));
}

#[test]
fn carrying_a_plan_out_and_planning_again_changes_nothing() {
    let before = problem(zone_and_rack(), racks(&[3, 2, 4], 2), 7, ZONE);
    let (first, first_report) = plan(&before);
    let (second, second_report) = plan(&applied(&before, &first));
    assert_eq!(nodes(&first), nodes(&second));
    assert!(second.places.iter().all(|place| place.bound));
    assert_eq!(first_report.levels, second_report.levels);
    assert_eq!(second_report.work.cells, 0);
}

#[test]
fn a_replacement_stays_in_the_rack_of_the_members_that_run() {
    // Rack 0 has a tighter hole, but the gang stands in rack 1.
    let before = problem(zone_and_rack(), racks(&[1, 5], 1), 4, ZONE);
    let mut after = applied(&before, &plan(&before).0);
    after.gang.roles[0].places[2].bound = None;
    let (plan, _) = plan(&after);
    assert_eq!(nodes(&plan), ["r1-n0", "r1-n1", "r1-n4", "r1-n3"]);
    assert_eq!(plan.places.iter().map(|place| place.bound).collect::<Vec<_>>(), [true, true, false, true]);
}

#[test]
fn elastic_members_spread_by_default_and_stay_inside_on_request() {
    let mut problem = problem(zone_and_rack(), racks(&[3, 2], 1), 0, ZONE);
    problem.gang.roles = vec![role("worker", 6, 2)];
    let (inside, report) = plan_with_policy(&problem, &Policy { elastic: Elastic::Inside, ..SPREAD });
    assert_eq!((nodes(&inside), report.unplaced), (vec!["r1-n0", "r1-n1"], 4));
    let (spread, report) = plan(&problem);
    assert_eq!((spread.places.len(), report.unplaced), (5, 1));
}

#[test]
fn slices_keep_consecutive_ranks_in_one_rack_each() {
    // Three racks of three hosts: six members in slices of two leave one host of each of them free.
    let mut gang = problem(zone_and_rack(), racks(&[3, 3, 3], 1), 6, ZONE);
    gang.gang.topology_requests.slices = vec![SliceTopologyRequest { size: 2, level: 1 }];
    let (first, _) = plan(&gang);
    assert_eq!(nodes(&first), ["r0-n0", "r0-n1", "r1-n0", "r1-n1", "r2-n0", "r2-n1"]);
    // A lost member of a slice comes back beside the one that is left, although another rack has as much capacity.
    let mut damaged = applied(&gang, &first);
    damaged.gang.roles[0].places[3].bound = None;
    let (again, _) = plan(&damaged);
    assert_eq!(nodes(&again)[3], "r1-n2");
    gang.gang.topology_requests.slices[0].size = 3;
    assert_eq!(plan(&gang).1.levels[1].used, 2);
    gang.gang.topology_requests.slices[0].size = 4;
    assert_eq!(wrong(&gang), "slices of 4 do not divide 6 members");
}

#[test]
fn nested_slices_hold_at_both_levels() {
    let mut hosts = racks(&[2, 2], 3);
    hosts.push(host("r9-n0", "zone=a rack=9", 4, 0));
    let mut gang = problem(zone_and_rack(), hosts, 8, ZONE);
    gang.gang.topology_requests.slices =
        vec![SliceTopologyRequest { size: 4, level: 1 }, SliceTopologyRequest { size: 2, level: 2 }];
    assert_eq!(nodes(&plan(&gang).0), ["r0-n0", "r0-n0", "r0-n1", "r0-n1", "r9-n0", "r9-n0", "r9-n0", "r9-n0"]);
}

#[test]
fn an_exclusive_rack_holds_one_slice_and_nobody_else() {
    let mut hosts = racks(&[4, 4, 4], 1);
    Arc::make_mut(&mut hosts[0].usage).requested.set(GPU, 1);
    let mut gang = problem(zone_and_rack(), hosts, 4, ZONE);
    gang.gang.topology_requests.slices = vec![SliceTopologyRequest { size: 2, level: 1 }];
    gang.gang.topology_requests.exclusive = RACK;
    assert_eq!(nodes(&plan(&gang).0), ["r1-n0", "r1-n1", "r2-n0", "r2-n1"]);
    // Without slices the whole gang is alone in one.
    gang.gang.topology_requests.slices.clear();
    assert_eq!(nodes(&plan(&gang).0), ["r1-n0", "r1-n1", "r1-n2", "r1-n3"]);
}

#[test]
fn balance_divides_evenly_over_as_few_racks_as_possible() {
    let mut gang = problem(zone_and_rack(), racks(&[15, 9, 2], 1), 16, ZONE);
    let per_rack = |gang: &Problem| {
        let plan = plan(gang).0;
        ["r0-", "r1-", "r2-"].map(|rack| nodes(&plan).iter().filter(|node| node.starts_with(rack)).count())
    };
    assert_eq!(per_rack(&gang), [15, 0, 1]);
    gang.gang.topology_requests.balance = RACK;
    assert_eq!(per_rack(&gang), [8, 8, 0]);
}

#[test]
fn balance_beside_a_bound_member_keeps_what_packing_puts_above_it() {
    // Four on the host of four leave fewest slots over; with five a host would be broken.
    let hosts = vec![host("n0", "", 3, 0), host("n1", "", 4, 0), host("n2", "", 1, 1)];
    let mut gang = problem(levels(&["zone"]), hosts, 0, None);
    gang.gang.roles = vec![role("", 6, 4)];
    gang.gang.roles[0].places[4].bound = Some("n2".into());
    gang.gang.topology_requests.balance = Some(1);
    let packing = Policy { placement: Placement::Packing, elastic: Elastic::Inside };
    assert_eq!(nodes(&plan_with_policy(&gang, &packing).0), ["n1", "n1", "n1", "n1", "n2"]);
}

#[test]
fn every_role_reaches_its_minimum_before_elastic_members_get_capacity() {
    let mut problem = problem(zone_and_rack(), racks(&[5], 1), 0, ZONE);
    problem.gang.roles = vec![role("a", 4, 1), role("b", 3, 2)];
    let places = plan_with_policy(&problem, &SPREAD).0.places;
    let per_role = [0, 1].map(|role| places.iter().filter(|place| place.role == role).count());
    assert_eq!(per_role, [3, 2]);
}

#[test]
fn a_refusal_names_the_best_domain_the_shortfall_and_what_blocks() {
    let mut hosts = racks(&[3, 2], 1);
    hosts.push(host("z", "rack=9", 9, 0));
    for host in &mut hosts[..1] {
        let taint = Taint { key: "team".into(), value: "100%".into(), effect: TaintEffect::NoSchedule };
        Arc::make_mut(&mut host.node).taints.push(taint);
    }
    Arc::make_mut(&mut hosts[1].usage).requested = Resources::from_iter([(GPU, 1)]);
    Arc::make_mut(&mut hosts[3].usage).requested = Resources::from_iter([(GPU, 1)]);
    let text = refused(&problem(zone_and_rack(), hosts.clone(), 5, ZONE));
    let expected = "needs capacity for 5 members in one zone; the best, a, has capacity for 2: 2 nodes insufficient nvidia.com/gpu, \
                    1 node untolerated taint team=100_:NoSchedule, 1 node without a label for zone; would fit with capacity \
                    for 3 more in zone a, or with no required level";
    assert_eq!(text, expected);
    let text = refused(&problem(zone_and_rack(), hosts[..5].to_vec(), 2, RACK));
    let expected = "needs capacity for 2 members in one rack; the best, a/0, has capacity for 1: 2 nodes insufficient nvidia.com/gpu, \
                    1 node untolerated taint team=100_:NoSchedule; would fit if only one zone were required: a has capacity for 2, \
                    or with capacity for 1 more in rack a/0, or with taint team=100_:NoSchedule tolerated";
    assert_eq!(text, expected);
    let text = refused(&problem(zone_and_rack(), hosts[..3].to_vec(), 2, None));
    assert!(text.starts_with("needs capacity for 2 members; all nodes together have capacity for 1: "), "{text}");
    let text = refused(&problem(zone_and_rack(), vec![host("x", "", 1, 0)], 1, RACK));
    assert_eq!(
        text,
        "needs capacity for 1 member in one rack; no node has a label for that level: 1 node without a label for rack; would fit \
         with capacity for 1 more in a new rack, or with no required level"
    );
}

#[test]
fn what_the_planner_does_not_model_is_refused_before_anything_else() {
    let sound = problem(zone_and_rack(), racks(&[4], 1), 2, ZONE);

    let mut gang = sound.clone();
    gang.gang.roles[0].shape.unsupported.push("topologySpreadConstraints".into());
    assert_eq!(wrong(&gang), "the members carry a constraint that is not supported: topologySpreadConstraints");

    let mut gang = sound.clone();
    let mut other = role("head", 1, 1);
    other.shape.requests.set("cpu", 1);
    gang.gang.roles.push(other);
    gang.gang.topology_requests.balance = RACK;
    assert_eq!(bare(plan(&gang).1.refusal), Some(Refusal::MixedShapes { shapes: 2, changes: Vec::new() }));

    let mut gang = sound.clone();
    gang.gang.roles[0].min = 3;
    assert_eq!(wrong(&gang), "needs at least 3 members but has 2");

    let mut gang = sound;
    gang.gang.topology_requests.required = Some(7);
    assert_eq!(bare(plan(&gang).1.refusal), Some(Refusal::UnknownLevel { level: 7, changes: Vec::new() }));
}

#[test]
fn a_bound_member_decides_the_domain_or_the_gang_is_refused() {
    let mut gang = problem(zone_and_rack(), racks(&[2, 4], 1), 3, RACK);
    gang.gang.roles[0].places[1].bound = Some("r0-n0".into());
    Arc::make_mut(&mut gang.hosts[0].usage).requested.set(GPU, 1);
    let expected = "needs capacity for 2 more members beside 1 bound in one rack; the best, a/0, has capacity for 1: \
                    1 node insufficient nvidia.com/gpu; would fit if only one zone were required: a has capacity for 5, \
                    or with capacity for 1 more in rack a/0";
    assert_eq!(refused(&gang), expected);
}

#[test]
fn members_bound_apart_or_to_a_lost_node_are_named() {
    let mut gang = problem(zone_and_rack(), racks(&[2, 4], 1), 3, RACK);
    gang.gang.roles[0].places[0].bound = Some("r0-n0".into());
    gang.gang.roles[0].places[2].bound = Some("r1-n0".into());
    assert!(matches!(plan(&gang).1.refusal, Some(Refusal::BoundOutside { node, .. }) if node.as_str() == "r1-n0"));
    gang.gang.roles[0].places[2].bound = Some("lost".into());
    assert!(matches!(plan(&gang).1.refusal, Some(Refusal::BoundOutside { node, .. }) if node.as_str() == "lost"));
}

#[test]
fn a_shape_that_keeps_away_from_itself_gets_one_host_per_member() {
    let mut gang = problem(zone_and_rack(), racks(&[3], 8), 3, ZONE);
    gang.gang.roles[0].shape.one_per_node = true;
    let (first, _) = plan(&gang);
    assert_eq!(nodes(&first), ["r0-n0", "r0-n1", "r0-n2"]);
    let mut replaced = applied(&gang, &first);
    replaced.gang.roles[0].places[1].bound = None;
    assert_eq!(plan(&replaced).0.places.len(), 0, "the lost member's node still holds a pod of the shape");
    Arc::make_mut(&mut replaced.hosts[1].usage).own_shape_pods = 0;
    assert_eq!(nodes(&plan(&replaced).0), ["r0-n0", "r0-n1", "r0-n2"]);
}

#[test]
fn leaf_is_the_deepest_layer_a_node_has() {
    let levels = levels(&["zone", "spine", "block", "rack"]);
    let hosts = vec![
        host("a1", "zone=a spine=s block=b1", 1, 0),
        host("a2", "zone=a spine=s block=b1", 1, 0),
        host("a3", "zone=a spine=s block=b2", 1, 0),
        host("a4", "zone=a", 4, 0),
    ];
    let leaf = levels.resolve("leaf");
    let (plan, _) = plan(&problem(levels.clone(), hosts.clone(), 2, leaf));
    assert_eq!(nodes(&plan), ["a1", "a2"]);
    let text = refused(&problem(levels, hosts, 3, leaf));
    assert!(
        text.starts_with("needs capacity for 3 members in one rack; the best, a/s/b1, has capacity for 2"),
        "{text}"
    );
}

#[test]
fn a_missed_preference_is_reported_and_a_redundant_one_is_not() {
    #[track_caller]
    fn check(required: Option<usize>, preferred: usize, members: u32, expected: Option<usize>) {
        let mut gang = problem(zone_and_rack(), racks(&[2, 2], 1), members, required);
        gang.gang.topology_requests =
            TopologyRequests { required, preferred: Some(preferred), ..TopologyRequests::default() };
        assert_eq!(plan(&gang).1.preferred_missed, expected);
    }
    check(ZONE, 1, 3, RACK);
    check(ZONE, 1, 2, None);
    check(ZONE, 0, 3, None);
    check(RACK, 0, 2, None);
    check(None, 2, 2, Some(2));
}

#[test]
fn a_gang_without_accelerators_is_placed_too() {
    let mut gang = problem(zone_and_rack(), racks(&[2, 2], 0), 4, ZONE);
    gang.gang.roles[0].shape.requests = Resources::from_iter([("pods", 1)]);
    let (plan, report) = plan(&gang);
    assert_eq!(nodes(&plan), ["r0-n0"; 4]);
    assert_eq!(report.levels.iter().map(|level| level.used).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn nothing_to_place_and_nowhere_to_place_it_are_answered() {
    let empty = problem(Levels::default(), Vec::new(), 2, ZONE);
    assert_eq!(
        refused(&empty),
        "needs capacity for 2 members in one zone; no node has a label for that level; \
         would fit with capacity for 2 more in a new zone"
    );
    let GangRequest { key, topology_requests, roles: _ } = empty.gang.clone();
    let nobody = Problem { gang: GangRequest { key, topology_requests, roles: Vec::new() }, ..empty };
    let (plan, report) = plan(&nobody);
    assert_eq!((plan.places.len(), report.refusal), (0, None));
}

#[test]
fn a_node_listed_twice_is_used_once() {
    let mut hosts = racks(&[1], 2);
    hosts.push(hosts[0].clone());
    let text = refused(&problem(zone_and_rack(), hosts, 3, ZONE));
    assert!(text.contains("has capacity for 2"), "{text}");
}

#[test]
fn small_gangs_on_large_clusters_merge_nothing() {
    let hosts = racks(&[16; 63], 8);
    let (plan, report) = plan(&problem(zone_and_rack(), hosts, 8, ZONE));
    assert_eq!(nodes(&plan), ["r0-n0"; 8]);
    assert_eq!(report.work.cells, 0);
}

#[test]
fn the_work_for_a_wide_gang_on_a_large_cluster_is_bounded() {
    let mut hosts = racks(&[16; 312], 8);
    for (index, host) in (0..).zip(&mut hosts) {
        // Any pattern that fills racks and hosts unevenly.
        let taken = (index * index + index / 7) % 9;
        Arc::make_mut(&mut host.usage).requested.set(GPU, taken);
    }
    let (plan, report) = plan(&problem(zone_and_rack(), hosts, 512, ZONE));
    assert_eq!(plan.places.len(), 512);
    assert!(report.work.cells < 20_000_000, "{:?}", report.work);
}

#[test]
fn the_work_for_a_thousand_members_on_twenty_thousand_hosts_is_bounded() {
    let mut rng = ChaCha8Rng::seed_from_u64(42);
    let mut hosts = racks(&[100; 200], 8);
    for host in &mut hosts {
        let taken = (0..8).map(|_| i64::from(rng.random_range(0..=1))).sum();
        Arc::make_mut(&mut host.usage).requested.set(GPU, taken);
    }
    let problem = problem(zone_and_rack(), hosts, 1_024, ZONE);
    let (plan, report) = plan(&problem);
    assert_eq!(plan.places.len(), 1_024);
    let (unpruned, all) = planner::plan_with(&problem, &Policy::default(), Pruning::Off);
    assert_eq!(unpruned, plan);
    assert!(report.work.cells * 5 < all.work.cells, "{:?} of {:?}", report.work, all.work);
}
