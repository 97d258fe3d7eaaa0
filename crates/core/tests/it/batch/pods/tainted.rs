//! Taints that nodes keep, whatever becomes of their pool while they boot.

use super::*;

fn taint(value: &str) -> Taint {
    Taint { key: "team".into(), value: value.into(), effect: TaintEffect::NoSchedule }
}

/// A node that has registered with a taint, of a launch with these and a pool that has those by now.
fn registered(launched: &[Taint], pool: &[Taint]) -> Setup {
    let mut setup = Setup::serving(&["i-1"]);
    setup.status.phase = BatchPhase::Launched;
    setup.status.instances[0].state = MemberState::Registered;
    setup.status.instances[0].registered = Some(at(NOW - 10));
    setup.status.attempts[0].ended = Some(at(NOW - 10));
    setup.status.attempts[0].taints = launched.to_vec();
    setup.taints = pool.to_vec();
    setup.nodes[0].taints = vec![taint("a")];
    setup.memory.scratch.looked = Some(at(NOW));
    setup
}

#[test]
fn who_edits_or_deletes_a_pool_while_its_nodes_boot_changes_nothing_of_what_they_keep() {
    for (launched, pool, joins) in [
        (vec![taint("a")], vec![], true),
        (vec![taint("a")], vec![taint("b")], true),
        // Of another version, which did not write them down.
        (vec![], vec![taint("a")], true),
        (vec![taint("b")], vec![taint("c")], false),
        (vec![], vec![], false),
    ] {
        let mut setup = registered(&launched, &pool);
        setup.step();
        let state = setup.status.instances[0].state;
        assert_eq!(state == MemberState::Ready, joins, "launched with {launched:?}, now {pool:?}: {state:?}");
    }
    let mut other = registered(&[taint("a")], &[]);
    other.status.attempts[0].node_pool = "another".to_owned();
    other.step();
    assert_eq!(other.status.instances[0].state, MemberState::Registered, "a launch of another pool");
}

#[test]
fn an_attempt_takes_note_of_the_taints_that_its_pool_has() {
    let mut setup = Setup::serving(&[]);
    setup.status = BatchStatus { count: 1, ..BatchStatus::default() };
    setup.taints = vec![taint("a")];
    setup.step();
    assert_eq!(setup.status.attempts.len(), 1);
    assert_eq!(setup.status.attempts[0].taints, [taint("a")]);
}
