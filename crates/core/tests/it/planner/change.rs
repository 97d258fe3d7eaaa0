//! The smallest change: making it makes the gang fit, and a smaller one does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::plan::{Change, Policy, Problem, Room, Shortfall};
use muster_core::planner;
use muster_core::topology::Tree;

use super::build::{self, GPU, host, levels, plan, problem};

/// What [`check`] may return.
pub(super) const KINDS: &[&str] =
    &["change: widen", "change: share", "change: unslice", "change: room", "change: room in several domains"];

/// Makes every change on its own; returns the kinds there were.
#[track_caller]
pub(super) fn check(problem: &Problem, policy: &Policy, shortfall: &Shortfall) -> Vec<&'static str> {
    let fits = |problem: &Problem| build::plan_with_policy(problem, policy).1.refusal.is_none();
    let mut kinds = Vec::new();
    for change in &shortfall.changes {
        let mut changed = problem.clone();
        let wishes = &mut changed.gang.wishes;
        kinds.push(match change {
            Change::Widen { to } => {
                // Every narrower level still refuses.
                let required = wishes.required.unwrap();
                for level in to.map_or(0, |to| to + 1)..required {
                    let mut narrower = problem.clone();
                    narrower.gang.wishes.required = Some(level);
                    assert!(!fits(&narrower), "level {level} would do, {problem:?}");
                }
                wishes.required = *to;
                "change: widen"
            }
            Change::Share => {
                wishes.exclusive = None;
                "change: share"
            }
            Change::Unslice => {
                wishes.slices.clear();
                "change: unslice"
            }
            Change::Room { rooms } => {
                for (index, room) in rooms.iter().enumerate() {
                    assert!(room.members > 0, "{rooms:?}");
                    let mut less = problem.clone();
                    for (other, room) in rooms.iter().enumerate() {
                        add(&mut less, room, room.members - u32::from(other == index));
                    }
                    assert!(!fits(&less), "one less in {room:?} does too, {problem:?}");
                }
                rooms.iter().for_each(|room| add(&mut changed, room, room.members));
                if rooms.len() > 1 { "change: room in several domains" } else { "change: room" }
            }
        });
        assert!(fits(&changed), "{change:?} does not do, {problem:?}");
    }
    kinds
}

/// Makes room for some members more.
fn add(problem: &mut Problem, room: &Room, members: u32) {
    let tree = Tree::build(&problem.levels, problem.hosts.iter().map(|host| &*host.node));
    let levels = problem.levels.as_slice();
    let level = room.level.as_ref().and_then(|name| levels.iter().position(|level| level.name == *name));
    let named = level.filter(|_| !room.domain.is_empty()).map(|level| {
        let mut domains = 0..tree.level(level).len();
        let domain = domains.find(|domain| tree.satisfies(level, *domain) && tree.path(level, *domain) == *room.domain);
        tree.hosts()[tree.level(level)[domain.unwrap()].hosts.start]
    });
    let Some(index) = named else {
        let labels: String = levels[..levels.len() - 1].iter().map(|level| format!("{}=new ", level.name)).collect();
        problem.hosts.push(host("new", &labels, members.into(), 0));
        return;
    };
    let host = &mut problem.hosts[index];
    let node = Arc::make_mut(&mut host.node);
    let used = host.usage.requested.get(GPU);
    let free = if node.ready { (node.allocatable.get(GPU) - used).max(0) } else { 0 };
    node.ready = true;
    node.allocatable.set(GPU, used + free + i64::from(members));
}

#[test]
fn the_score_compares_with_the_snapshot_and_with_the_empty_cluster() {
    let hosts =
        vec![host("n1", "zone=a rack=1", 4, 2), host("n2", "zone=a rack=2", 4, 2), host("n3", "zone=a rack=3", 4, 4)];
    let gang = problem(levels(&["zone", "rack"]), hosts, 4, Some(0));
    let (placed, report) = plan(&gang);
    let score = planner::score(&gang, &Policy::default(), &placed, &report).unwrap();
    let shares: Vec<(u32, u32, u32)> = score.iter().map(|level| (level.used, level.now, level.empty)).collect();
    assert_eq!(shares, [(1, 1, 1), (2, 2, 1), (2, 2, 1)]);
    let refused = problem(gang.levels, gang.hosts, 5, Some(0));
    let (placed, report) = plan(&refused);
    assert_eq!(planner::score(&refused, &Policy::default(), &placed, &report), None);
}

#[test]
fn every_kind_of_change_has_its_own_words() {
    let texts: BTreeSet<String> = [0_u8, 1, 2, 3].into_iter().map(text).collect();
    let expected = [
        "needs 4 members in one rack, the best rack a/1 holds 2: 1 node in a domain that cannot be the gang's alone; would fit \
         with others in its domain",
        "needs 4 members in one rack, the best rack a/1 holds 2; would fit if only one zone were required: a holds 5, or \
         with room for 2 more in rack a/1",
        "needs 4 members in one zone, the best zone a holds 2; would fit with room for 1 more in rack a/1, or with no \
         slices",
        "needs 7 members in one zone, the best zone a holds 5; would fit with room for 2 more in zone a",
    ];
    assert_eq!(texts.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

fn text(kind: u8) -> String {
    let hosts = vec![host("n1", "zone=a rack=1", 2, 0), host("n2", "zone=a rack=2", 3, 0)];
    let mut gang = problem(levels(&["zone", "rack"]), hosts, 4, Some(1));
    match kind {
        0 => {
            gang.hosts[1] = host("n2", "zone=a rack=2", 9, 1);
            gang.gang.wishes.exclusive = Some(1);
        }
        1 => {
            gang.hosts = vec![
                host("n1", "zone=a rack=1", 2, 0),
                host("n2", "zone=a rack=2", 2, 0),
                host("n3", "zone=a rack=3", 1, 0),
            ]
        }
        2 => {
            gang.gang.wishes.required = Some(0);
            gang.hosts = vec![host("n1", "zone=a rack=1", 3, 0), host("n2", "zone=a rack=2", 1, 0)];
            gang.gang.wishes.slices = vec![muster_core::plan::SliceWish { size: 2, level: 1 }];
        }
        _ => {
            gang = problem(gang.levels, gang.hosts, 7, Some(0));
        }
    }
    plan(&gang).1.refusal.unwrap().to_string()
}
