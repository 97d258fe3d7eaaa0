//! What an overview takes, counted: a gate that no busy machine moves.

use muster_core::planner::plan;
use muster_replay::command::{self, Arguments};
use muster_replay::dump::{self, Input};
use muster_replay::plan as planning;
use muster_view::{Overview, Work};

use crate::large;

/// Times each node is looked at, whatever the size of the cluster: for its entry, its domains, its pool, and what fits.
const LOOKS: u64 = 24;

fn overview(nodes: usize, gangs: usize) -> (Overview, Work, plan::Work) {
    let text = large::dump(nodes, gangs);
    let arguments = Arguments { files: vec![Input { name: "dump.json", text: &text }], ..Arguments::default() };
    let dump = dump::read(&arguments.files).unwrap();
    let options = command::options(&arguments, &dump).unwrap();
    let pass = planning::study(dump.clone(), &options).unwrap().work;
    let (overview, work) = muster_view::counted(dump, &options).unwrap();
    (overview, work, pass)
}

#[test]
fn an_overview_of_five_thousand_nodes_and_two_hundred_gangs_is_one_planning_pass_and_a_few_looks_at_each_node() {
    let (small, little, _) = overview(2_500, 100);
    let (large, much, pass) = overview(5_000, 200);
    assert_eq!((large.summary.nodes, large.summary.gangs, large.summary.waiting), (5_000, 200, 100));
    assert_eq!((small.summary.nodes, small.summary.waiting), (2_500, 50));
    // What is explained is what was planned: nobody plans again for the page.
    assert_eq!(much.planner, pass);
    let counts = [much.planner.vertices, much.planner.cells, much.planner.slots];
    assert!(counts.iter().zip(MOST).all(|(count, most)| (most / 2..=most).contains(count)), "{much:?}");
    // Twice the cluster is twice the looks.
    assert!(much.nodes <= LOOKS * 5_000 && much.nodes <= 2 * little.nodes + LOOKS, "{much:?} {little:?}");
}

/// Vertices, cells and slots of that pass, with a margin.
const MOST: [u64; 3] = [600_000, 3_000, 2_100_000];
