//! What a plan costs, counted: the benchmark's problems in small, with fixed seeds. The counts depend on no machine, so
//! these bounds gate: each is a third above what it costs today, so twice the work fails.

use muster_core::gang::Ledger;
use muster_core::model::node::Usage;
use muster_core::planner;
use muster_core::planner::plan::{Policy, SearchBudget, Seed, Work};

use super::cluster::{self, Cluster, Fabric};

/// Plans gangs pass by pass on a cluster that is nine tenths full; the work of all but the first pass.
fn passes(members: usize, window: usize) -> Work {
    let mut cluster = Cluster::new(7, Fabric::Spines, 20, 0.9);
    let (gang, mut ledger, mut work) = (cluster::gang(members), Ledger::default(), Work::default());
    for pass in 0..10 {
        ledger.see(&cluster.snapshot, &cluster.levels);
        let mut plans = Vec::new();
        for _ in 0..window {
            let (plan, report) = ledger.plan_plain(&gang, &Policy::default()).unwrap();
            assert_eq!(plan.places.len(), members, "{:?}", report.refusal);
            for place in &plan.places {
                ledger.assign(&gang.key, &place.node, &Usage::of(&gang.roles[0].shape));
            }
            if pass > 0 {
                work.add(report.work);
            }
            plans.push(plan);
        }
        plans.iter().for_each(|plan| cluster.arrive(plan));
        cluster.depart(members * window);
    }
    work
}

#[track_caller]
fn at_most(work: Work, most: Work) {
    let within = work.slots <= most.slots && work.vertices <= most.vertices && work.cells <= most.cells;
    assert!(within, "{work:?} is more than {most:?}");
}

#[test]
fn a_small_gang_costs_the_few_hosts_that_changed_and_the_tables_above_them() {
    // 72 gangs of 4: four or five hosts each, of a tree of tables that is about twelve deep.
    at_most(passes(4, 8), Work { slots: 560, vertices: 4_760, cells: 40_900 });
}

#[test]
fn a_large_gang_counts_only_what_changed_and_merges_only_racks_that_may_be_used() {
    // 9 gangs of 300 on 2,000 hosts: every gang takes and every departure frees some hundred hosts.
    at_most(passes(300, 1), Work { slots: 4_850, vertices: 5_100, cells: 681_366 });
}

#[test]
fn a_large_gang_on_a_cluster_nobody_remembers_counts_every_host_once() {
    let problem = Cluster::new(7, Fabric::Racks, 20, 0.5).problem(1_024);
    let (plan, report) = planner::plan(&problem, &Policy::default(), SearchBudget::default(), Seed::default());
    assert_eq!(plan.places.len(), 1_024);
    at_most(report.work, Work { slots: 2_000, vertices: 800, cells: 772_844 });
}
