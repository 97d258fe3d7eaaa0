//! Gangs whose members have volumes.

use std::sync::Arc;

use muster_core::gang::PoolView;
use muster_core::model::gang::{Claims, Phase, RankClaim, RawSlice, RawTopologyRequest, Taken};
use muster_core::model::pod::{Operator, Requirement, SelectorTerm, Shape, Together};
use muster_core::model::resources::Resources;

use super::sim::{Sim, levels, pool};
use crate::world::{key, node};

fn on(label: &str, value: &str) -> Vec<SelectorTerm> {
    let requirement = Requirement { key: Arc::from(label), operator: Operator::In, values: vec![Arc::from(value)] };
    vec![SelectorTerm { expressions: vec![requirement], fields: Vec::new() }]
}

/// Changes what each of the gang's pods asks for.
fn each(sim: &mut Sim, change: impl Fn(usize, &mut Shape, &mut Claims)) {
    for (number, pod) in sim.pods.values_mut().enumerate() {
        let (mut shape, mut claims) = (Shape::clone(pod.shape.as_ref().unwrap()), Claims::clone(&pod.claims));
        change(number, &mut shape, &mut claims);
        pod.shape = Ok(Arc::new(shape));
        pod.claims = Arc::new(claims);
    }
}

fn claim(name: &str) -> Vec<Arc<str>> {
    vec![Arc::from(name)]
}

#[test]
fn a_gang_whose_claim_is_not_bound_waits_by_name_and_is_placed_once_it_is() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 4, 4);
    each(&mut sim, |number, _, claims| {
        claims.awaits = (number == 2).then(|| Arc::from("PersistentVolumeClaim data is not bound yet"));
    });
    sim.settle();
    assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Collecting, "VolumesNotReady"));
    assert_eq!(sim.message("train"), "pod train-2 waits for a volume: PersistentVolumeClaim data is not bound yet");
    each(&mut sim, |_, _, claims| claims.awaits = None);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn members_that_one_by_one_get_their_volumes_bound_before_the_barrier_keep_their_plan() {
    let mut sim = Sim::new(&[("n1", 2), ("n2", 2)]);
    sim.gang("train", 4, 4);
    sim.scheduler = false;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Released, 1));
    // kube-scheduler has bound those of two members, where the plan has them.
    let node = sim.state("train").places[0].node.clone();
    each(&mut sim, |number, shape, _| {
        if number < 2 {
            shape.volumes = vec![on("topology.kubernetes.io/zone", "a")];
        }
        shape.requests.set("attachable-volumes-csi-d", 1);
    });
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Released, 1));
    // A volume somewhere else is another matter: the gang follows it.
    sim.nodes.values_mut().find(|other| other.name != node).unwrap().labels.insert("disk".into(), "here".into());
    each(&mut sim, |number, shape, _| {
        if number == 0 {
            shape.volumes = vec![on("disk", "here")];
        }
    });
    sim.settle();
    let gang = sim.state("train");
    let first = gang.places.iter().find(|place| place.pod.as_deref() == Some("train-0")).unwrap();
    assert!(gang.epoch > 1 && first.node != node, "{:?}", gang.places);
}

#[test]
fn a_claim_of_one_node_that_all_members_share_keeps_them_on_one_node() {
    for (free, placed) in [(4, true), (3, false)] {
        let mut sim = Sim::new(&[("n1", 3), ("n2", free)]);
        sim.gang("train", 4, 4);
        each(&mut sim, |_, _, claims| claims.one_node = claim("data"));
        sim.settle();
        assert_eq!(sim.phase("train") == Phase::Bound, placed, "{}", sim.message("train"));
        assert!(sim.bound().iter().all(|(_, node)| *node == "n2"), "{:?}", sim.bound());
    }
}

#[test]
fn claims_that_cannot_be_shared_as_they_are_make_the_gang_unsatisfiable_by_name() {
    let refused = |change: fn(usize, &mut Shape, &mut Claims)| {
        let mut sim = Sim::new(&[("n1", 8)]);
        sim.gang("train", 4, 4);
        each(&mut sim, change);
        sim.settle();
        assert_eq!((sim.phase("train"), sim.reason("train").as_str()), (Phase::Unsatisfiable, "Unsupported"));
        sim.message("train")
    };
    let message = refused(|_, _, claims| claims.one_pod = claim("data"));
    assert!(message.contains("ReadWriteOncePod claim data used by several members"), "{message}");
    let message = refused(|number, _, claims| claims.one_node = if number < 2 { claim("data") } else { Vec::new() });
    assert!(message.contains("ReadWriteOnce claim data shared by a part of the members"), "{message}");
}

#[test]
fn a_gang_waits_until_there_are_volumes_for_all_of_its_claims() {
    let mut sim = Sim::new(&[("n1", 4)]);
    sim.gang("train", 4, 4);
    let with = |volumes: u32| {
        move |number: usize, _: &mut Shape, claims: &mut Claims| {
            let claim = Arc::from(format!("data-{number}"));
            claims.taken = vec![Taken { class: Arc::from("local"), claim, volumes, ..Taken::default() }];
        }
    };
    each(&mut sim, with(3));
    sim.settle();
    assert_eq!(sim.reason("train"), "VolumesNotReady");
    assert!(sim.message("train").contains("4 claims of StorageClass local"), "{}", sim.message("train"));
    each(&mut sim, with(4));
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn a_node_takes_no_more_members_than_it_attaches_volumes_and_any_number_where_it_names_no_limit() {
    let mut sim = Sim::new(&[("n1", 8), ("n2", 8)]);
    sim.gang("train", 5, 5);
    each(&mut sim, |_, shape, _| shape.requests.set("attachable-volumes-csi-d", 1));
    for (name, most) in [("n1", 2), ("n2", 2)] {
        sim.nodes.get_mut(name).unwrap().allocatable.add(&Resources::from_iter([("attachable-volumes-csi-d", most)]));
    }
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Waiting);
    assert!(sim.message("train").contains("has capacity for 4"), "{}", sim.message("train"));
    sim.nodes.get_mut("n2").unwrap().allocatable.set("attachable-volumes-csi-d", 0);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound);
}

#[test]
fn a_claim_that_all_members_share_is_attached_to_their_node_once() {
    for (own, placed) in [(0, true), (1, false)] {
        let mut sim = Sim::new(&[("n1", 8)]);
        sim.nodes.get_mut("n1").unwrap().allocatable.set("attachable-volumes-csi-d", 2);
        sim.gang("train", 5, 5);
        each(&mut sim, |_, shape, claims| {
            shape.requests.set("attachable-volumes-csi-d", 1 + own);
            claims.one_node = claim("data");
            claims.attached = [(Arc::from("data"), "attachable-volumes-csi-d".into())].into();
        });
        sim.settle();
        assert_eq!(sim.phase("train") == Phase::Bound, placed, "{}", sim.message("train"));
    }
}

#[test]
fn a_node_that_refuses_members_with_a_shared_claim_is_not_planned_again_for_them() {
    let mut sim = Sim::new(&[("n1", 8), ("n2", 9)]);
    sim.gang("train", 5, 5);
    each(&mut sim, |_, shape, claims| {
        shape.requests.set("attachable-volumes-csi-d", 1);
        claims.one_node = claim("data");
        claims.attached = [(Arc::from("data"), "attachable-volumes-csi-d".into())].into();
    });
    refused_on_the_first(&mut sim);
}

/// The plan that is made first is refused by kube-scheduler: the next is on the other node.
fn refused_on_the_first(sim: &mut Sim) {
    sim.scheduler = false;
    sim.settle();
    let node = sim.state("train").places[0].node.clone();
    let stated = "0/2 nodes are available: 2 node(s) exceed max volume count.";
    sim.pods.get_mut("train-0").unwrap().unscheduled = Some((Arc::from("Unschedulable"), Arc::from(stated)));
    sim.wait(120);
    for _ in 0..5 {
        sim.step();
        sim.wait(1);
    }
    let places = &sim.state("train").places;
    assert!(places.len() == 5 && places.iter().all(|place| place.node != node), "{node}: {places:?}");
}

#[test]
fn a_node_that_refuses_members_with_pod_affinity_is_not_planned_again_for_them() {
    let mut sim = Sim::new(&[("n1", 8), ("n2", 9)]);
    sim.gang("train", 5, 5);
    each(&mut sim, |_, shape, _| {
        let workload = (Arc::from("job-name"), Arc::from("train"));
        shape.together = vec![Together { key: Arc::from("topology.kubernetes.io/zone"), workload }];
        shape.unsupported = vec![Arc::from(Shape::POD_AFFINITY)];
    });
    refused_on_the_first(&mut sim);
}

/// What makes a gang's members be of one shape.
fn slices(sim: &mut Sim) {
    let level = RawTopologyRequest { value: Arc::from("host"), key: "muster.dev/slice-topology" };
    sim.recognised.get_mut(&key("train")).unwrap().topology_requests.slices = vec![RawSlice { size: 2, level }];
}

#[test]
fn a_gang_with_slices_is_placed_where_all_reach_their_volumes_once_those_of_some_are_bound() {
    // In turn, so that members that differ are not whole slices.
    let patterns: [fn(usize) -> bool; 2] = [|number| number < 4, |number| number % 2 == 0];
    for bound in patterns {
        let mut sim = Sim::new(&[("n1", 4), ("n2", 4), ("n3", 8)]);
        sim.nodes.get_mut("n3").unwrap().labels.insert("topology.kubernetes.io/zone".into(), "b".into());
        sim.gang("train", 8, 8);
        slices(&mut sim);
        each(&mut sim, |number, shape, _| {
            if bound(number) {
                shape.volumes = vec![on("topology.kubernetes.io/zone", "a")];
            }
        });
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Bound, "{}", sim.message("train"));
        assert!(sim.bound().iter().all(|(_, node)| *node != "n3"), "{:?}", sim.bound());
        let nodes: Vec<_> = sim.state("train").places.iter().map(|place| (place.rank, &place.node)).collect();
        assert!(nodes.chunks(2).all(|slice| slice[0].1 == slice[1].1), "{nodes:?}");
    }
}

#[test]
fn members_with_slices_whose_volumes_are_bound_in_several_zones_keep_their_plan() {
    let zone = "topology.kubernetes.io/zone";
    let mut sim = Sim::new(&[("n1", 2), ("n2", 2)]);
    sim.nodes.get_mut("n2").unwrap().labels.insert(zone.into(), "b".into());
    sim.levels = levels(&[("region", "region")]);
    sim.gang("train", 4, 4);
    slices(&mut sim);
    sim.scheduler = false;
    sim.settle();
    assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Released, 1), "{}", sim.message("train"));
    let first = sim.state("train").places[0].node.clone();
    let (here, there) = if first.as_str() == "n1" { ("a", "b") } else { ("b", "a") };
    // One slice's are bound where the plan has them, and the other's next.
    for bound in [2, 4] {
        each(&mut sim, |number, shape, _| {
            if number < bound {
                shape.volumes = vec![on(zone, if number < 2 { here } else { there })];
            }
        });
        sim.settle();
        assert_eq!((sim.phase("train"), sim.state("train").epoch), (Phase::Released, 1), "{}", sim.message("train"));
    }
}

#[test]
fn a_newcomer_with_slices_is_placed_although_the_volumes_of_those_that_run_are_bound() {
    let mut sim = Sim::new(&[("n1", 4), ("n2", 4)]);
    sim.gang("train", 4, 4);
    sim.recognised.get_mut(&key("train")).unwrap().min = Some(2);
    slices(&mut sim);
    sim.settle();
    assert_eq!(sim.phase("train"), Phase::Bound, "{}", sim.message("train"));
    let node = sim.pods["train-2"].node.clone();
    // Each has a disk of its node.
    for pod in sim.pods.values_mut() {
        let mut shape = Shape::clone(pod.shape.as_ref().unwrap());
        shape.volumes = vec![on("disk", pod.key.name.as_ref())];
        pod.shape = Ok(Arc::new(shape));
    }
    sim.pods.remove("train-3");
    sim.member("train", "again-3", RankClaim::Rank(3));
    sim.settle();
    assert_eq!((sim.phase("train"), &sim.pods["again-3"].node), (Phase::Bound, &node), "{}", sim.message("train"));
}

#[test]
fn of_nodes_to_come_as_many_are_provisioned_as_attach_the_volumes_where_a_node_of_the_type_runs() {
    for (limits, nodes) in [(vec![], 2), (vec![2, 3], 4), (vec![1], 8)] {
        let mut sim = Sim::new(&[]);
        sim.pools.push(pool());
        for (number, limit) in limits.iter().enumerate() {
            let mut node = node(&format!("old-{number}"), 0);
            node.labels.insert("node.kubernetes.io/instance-type".into(), "p5.48xlarge".into());
            node.allocatable.set("attachable-volumes-csi-d", *limit);
            sim.nodes.insert(node.name.to_string(), node);
        }
        sim.gang("train", 8, 8);
        each(&mut sim, |_, shape, _| shape.requests.set("attachable-volumes-csi-d", 1));
        sim.settle();
        assert_eq!(sim.phase("train"), Phase::Provisioning, "{}", sim.message("train"));
        assert_eq!(sim.asked[0].offers[0].count, nodes, "{limits:?}");
    }
}

#[test]
fn two_gangs_do_not_count_on_the_same_volumes() {
    let mut sim = Sim::new(&[("n1", 8)]);
    sim.gang("one", 4, 4);
    sim.gang("two", 4, 4);
    let volumes = |sim: &mut Sim, gang: &str, volumes: Option<u32>| {
        for (name, pod) in sim.pods.iter_mut().filter(|(name, _)| name.starts_with(gang)) {
            let (class, claim) = (Arc::from("disks"), Arc::from(name.as_str()));
            let taken = |volumes| Taken { class, claim, volumes, ..Taken::default() };
            pod.claims = Arc::new(Claims { taken: volumes.map(taken).into_iter().collect(), ..Claims::default() });
        }
    };
    volumes(&mut sim, "one", Some(4));
    volumes(&mut sim, "two", Some(4));
    sim.scheduler = false;
    sim.settle();
    assert_eq!((sim.phase("one"), sim.phase("two")), (Phase::Released, Phase::Collecting));
    let message = sim.message("two");
    assert!(
        message.contains("4 that would do are available, 4 of which gangs that are placed already need"),
        "{message}"
    );
    // Those of the first are bound, one by one: what is free is the other's once there is enough of it.
    volumes(&mut sim, "one", None);
    for (free, phase) in [(3, Phase::Collecting), (4, Phase::Released)] {
        volumes(&mut sim, "two", Some(free));
        sim.settle();
        assert_eq!(sim.phase("two"), phase, "{}", sim.message("two"));
    }
}

#[test]
fn nodes_are_provisioned_in_the_zone_of_the_volume_and_nowhere_else() {
    let zones = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>();
    for (sold, provisioned) in [(["us-east-1a", "us-east-1b"], true), (["us-east-1a", "us-east-1c"], false)] {
        let mut sim = Sim::new(&[]);
        sim.pools.push(PoolView { zones: zones(&sold), ..pool() });
        sim.gang("train", 8, 8);
        each(&mut sim, |_, shape, _| shape.volumes = vec![on("topology.kubernetes.io/zone", "us-east-1b")]);
        sim.settle();
        assert_eq!(!sim.asked.is_empty(), provisioned, "{sold:?}: {}", sim.message("train"));
        if provisioned {
            assert_eq!(sim.asked[0].zones, zones(&["us-east-1b"]));
        } else {
            assert!(sim.message("train").contains("a volume of the pod cannot be reached"), "{}", sim.message("train"));
        }
    }
}
