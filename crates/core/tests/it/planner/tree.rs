//! The topology tree.

use muster_core::planner::plan::Host;
use muster_core::topology::{Levels, Step, Tree};

use super::build::{host, levels};

fn build(levels: &Levels, hosts: &[Host]) -> Tree {
    Tree::build(levels, hosts.iter().map(|host| &*host.node))
}

/// Domains of a level, each as the names of its nodes.
fn domains(tree: &Tree, hosts: &[Host], level: usize) -> Vec<String> {
    let names = |range: std::ops::Range<usize>| {
        let names: Vec<&str> = tree.hosts()[range].iter().map(|host| hosts[*host].node.name.as_str()).collect();
        names.join(" ")
    };
    tree.level(level).iter().map(|domain| names(domain.hosts.clone())).collect()
}

#[test]
fn siblings_and_hosts_stand_in_natural_order() {
    let hosts = [
        host("n10", "zone=a rack=r10", 1, 0),
        host("n9", "zone=a rack=r10", 1, 0),
        host("n1", "zone=a rack=r9", 1, 0),
        host("n2", "zone=A rack=r100", 1, 0),
    ];
    let tree = build(&levels(&["zone", "rack"]), &hosts);
    assert_eq!(domains(&tree, &hosts, 0), ["n2", "n1 n9 n10"]);
    assert_eq!(domains(&tree, &hosts, 1), ["n2", "n1", "n9 n10"]);
    assert_eq!(tree.path(1, 2), "a/r10");
    assert_eq!(tree.level(0)[1].children, 1..3);
    assert_eq!(tree.level(1)[2].children, 2..4);
    assert_eq!(tree.level(1)[2].parent, 1);
    assert_eq!(tree.domain_of(1, 3), 2);
}

#[test]
fn absent_deepest_layers_are_contracted() {
    let levels = levels(&["zone", "spine", "block", "rack"]);
    let hosts = [
        host("a1", "zone=a spine=s1 block=b1", 1, 0),
        host("a2", "zone=a spine=s1 block=b1", 1, 0),
        host("a3", "zone=a spine=s1 block=b2", 1, 0),
        host("a4", "zone=a spine=s1 block=b1 rack=r1", 1, 0),
    ];
    let tree = build(&levels, &hosts);
    assert_eq!(domains(&tree, &hosts, 2), ["a4 a1 a2", "a3"]);
    assert_eq!(domains(&tree, &hosts, 3), ["a4", "a1 a2", "a3"], "a block without racks is one rack");
    assert!((0..3).all(|rack| tree.satisfies(3, rack)), "the deepest present layer is the leaf");
    assert_eq!(tree.path(3, 1), "a/s1/b1");
}

#[test]
fn a_label_missing_in_the_middle_satisfies_nothing_there() {
    let hosts = [host("a1", "zone=a rack=r1", 1, 0), host("a2", "zone=a spine=s1 rack=r1", 1, 0)];
    let tree = build(&levels(&["zone", "spine", "rack"]), &hosts);
    assert_eq!(domains(&tree, &hosts, 1), ["a2", "a1"]);
    assert!(tree.satisfies(1, 0) && !tree.satisfies(1, 1));
    assert!(tree.satisfies(2, 0) && tree.satisfies(2, 1));
}

#[test]
fn a_node_without_any_network_label_is_a_domain_of_its_own() {
    let hosts = [
        host("a3", "zone=a", 1, 0),
        host("a1", "zone=a", 1, 0),
        host("a2", "zone=a spine=s1", 1, 0),
        host("x1", "", 1, 0),
        host("x2", "", 1, 0),
    ];
    let tree = build(&levels(&["zone", "spine", "rack"]), &hosts);
    assert_eq!(domains(&tree, &hosts, 0), ["a2 a1 a3", "x1 x2"]);
    assert_eq!(domains(&tree, &hosts, 1), ["a2", "a1", "a3", "x1", "x2"]);
    assert_eq!(domains(&tree, &hosts, 2), ["a2", "a1", "a3", "x1", "x2"]);
    assert!(tree.satisfies(1, 0) && (1..5).all(|spine| !tree.satisfies(1, spine)));
    assert!((1..5).all(|rack| !tree.satisfies(2, rack)), "nothing is known about their leaf");
    assert!(tree.satisfies(0, 0) && !tree.satisfies(0, 1));
    assert_eq!(tree.level(1)[3].step, Step::Own("x1".into()));
}

#[test]
fn a_label_value_under_two_parents_is_two_domains_and_a_warning() {
    let hosts = [
        host("a1", "zone=a rack=r1", 1, 0),
        host("b1", "zone=b rack=r1", 1, 0),
        host("a2", "zone=a rack=r10", 1, 0),
        host("b2", "zone=b rack=r10", 1, 0),
        host("b3", "zone=b rack=r3", 1, 0),
    ];
    let tree = build(&levels(&["zone", "rack"]), &hosts);
    assert_eq!(tree.level(1).len(), 5);
    assert_eq!(tree.splits().len(), 1);
    assert_eq!((&*tree.splits()[0].value, tree.splits()[0].values), ("r1", 2));
}

#[test]
fn an_empty_cluster_has_an_empty_tree() {
    let tree = build(&Levels::default(), &[]);
    assert_eq!(tree.depth(), 6);
    assert!((0..6).all(|level| tree.level(level).is_empty()));
    assert!(!tree.satisfies(0, 0) && !tree.satisfies(99, 0));
    assert_eq!(tree.path(2, 7), "");
}
