//! A batch without an attempt.

use muster_core::batch::{Change, JoinClocks, Look, Made, Probe, Probes, Sight};
use muster_core::ec2::{CapacityType, Target};
use muster_core::model::batch::{
    AttemptOutcome, Batch, BatchPhase, BatchSpec, BatchStatus, CandidateRow, Hold, HoldReason, MemberState,
};
use muster_core::model::gang::{Phase, Pod};
use muster_core::offering::{Exclusion, Ranked};
use muster_core::reason::Why;

use super::compare;
use super::scene::{NOW, Scene, after, batch, error, having, member, ranked, ranking, tags};
use crate::world::{self, at};

fn fresh() -> Scene {
    Scene::new(BatchStatus::default())
}

fn offered(candidates: &[Ranked]) -> Scene {
    fresh().with(|one| one.says.ranking = ranking(candidates, &[]))
}

/// A candidate that differs in more than the zone.
fn other(zone: &str, change: impl FnOnce(&mut Ranked)) -> Ranked {
    let mut one = ranked(zone);
    change(&mut one);
    one
}

fn not_started(seconds: i64) -> Exclusion {
    Exclusion::ReservationNotStarted { id: "cr-1".to_owned(), start: Some(at(seconds)) }
}

fn lost() -> BatchStatus {
    let mut status = after(BatchPhase::Pending, AttemptOutcome::Lost);
    status.attempts[0].code = Some("InsufficientInstanceCapacity".to_owned());
    status
}

fn held(reason: HoldReason) -> BatchStatus {
    let candidates = vec![CandidateRow {
        node_pool: "p0".to_owned(),
        instance_type: "p5.48xlarge".to_owned(),
        zone: "a".to_owned(),
        subnet: "subnet-a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        count: 1,
        group: false,
        reservation: None,
        price: Some(100_000_000),
        why: "it was offered".to_owned(),
    }];
    BatchStatus { held: Some(Hold { reason, seen: "1".to_owned() }), misses: 2, failed_rounds: 3, candidates, ..lost() }
}

#[test]
fn a_batch_without_an_attempt_begins_the_best_candidate_it_has_not_tried_in_this_round() {
    let group = |one: &mut Ranked| one.candidate.placement_group = true;
    let reserved = |one: &mut Ranked, block: bool| {
        one.candidate.capacity_type = CapacityType::Reserved;
        one.candidate.reservation = Some(Target { id: "cr-1".to_owned(), block });
    };
    let unsold = [Exclusion::NotSold, Exclusion::NoTypes];
    let rows = [
        ("it has never tried: the first candidate", offered(&[ranked("a"), ranked("b")])),
        (
            "it has tried the first: the second",
            offered(&[ranked("a"), ranked("b")]).with(|one| one.batch.status = lost()),
        ),
        (
            "a round that began after it tried: the first again",
            offered(&[ranked("a"), ranked("b")]).with(|one| one.batch.status = BatchStatus { round_from: 1, ..lost() }),
        ),
        (
            "the last attempt is to be retried: the same candidate",
            offered(&[ranked("a"), ranked("b")])
                .with(|one| one.batch.status = after(BatchPhase::Pending, AttemptOutcome::Retry)),
        ),
        ("a candidate in a placement group: a group of its own", offered(&[other("a", group)])),
        (
            "a group that it has already stays",
            offered(&[other("a", group)])
                .status(|status| (status.placement_group, status.generation) = (Some("mine".to_owned()), 4)),
        ),
        (
            "a reservation in a group of somebody else: no group of its own, and by RunInstances",
            offered(&[other("a", |one| {
                group(one);
                reserved(one, false);
                one.candidate.reservation_group = Some("theirs".to_owned());
            })]),
        ),
        ("a Capacity Block", offered(&[other("a", |one| reserved(one, true))])),
        (
            "the Region has too many fleets: by RunInstances",
            offered(&[ranked("a")]).with(|one| one.says.without_fleets = true),
        ),
        (
            "candidates with and without a price, and what is excluded, are shown",
            fresh().with(|one| {
                let free = other("b", |one| one.candidate.price_micro_usd_per_hour = None);
                one.says.ranking = ranking(&[ranked("a"), free], &unsold);
            }),
        ),
        ("a dry run only tells", offered(&[ranked("a")]).with(|one| one.dry_run = true)),
        ("a dry run tells of the group", offered(&[other("a", group)]).with(|one| one.dry_run = true)),
        ("a pause that is over", offered(&[ranked("a")]).status(|status| status.next_attempt_after = Some(at(NOW)))),
    ];
    compare("pending-begins", &rows);
}

#[test]
fn a_batch_without_a_candidate_waits_longer_each_round_and_never_for_what_is_past() {
    let nothing = |reasons: &[Exclusion]| {
        let reasons = reasons.to_vec();
        Scene::new(lost()).with(|one| one.says.ranking = ranking(&[], &reasons))
    };
    let tried = |failed| {
        let mut scene = offered(&[ranked("a")]).with(|one| one.batch.status = lost());
        scene.batch.status.failed_rounds = failed;
        scene
    };
    let rows = [
        ("all were tried: the first pause", tried(0)),
        ("all were tried for the second time", tried(1)),
        ("all were tried for the third time", tried(2)),
        ("all were tried for the hundredth time", tried(99)),
        ("nothing is offered", nothing(&[])),
        (
            "nothing is offered, and each reason is reported once",
            nothing(&[Exclusion::NotSold, Exclusion::NotSold, Exclusion::NoTypes]),
        ),
        (
            "what keeps pools from being used comes first, and three reasons are enough",
            nothing(&[Exclusion::NotSold, Exclusion::NoTypes, Exclusion::UnknownType])
                .with(|one| one.says.problems = vec!["no NodeClass".to_owned()]),
        ),
        ("a reservation begins before the pause ends", nothing(&[not_started(NOW + 900), not_started(NOW + 10)])),
        ("a reservation begins after the pause", nothing(&[not_started(NOW + 900)])),
        (
            "a reservation that should have begun is not waited for",
            nothing(&[not_started(NOW), not_started(NOW - 900)]),
        ),
        ("a pause", offered(&[ranked("a")]).status(|status| status.next_attempt_after = Some(at(NOW + 20)))),
        (
            "only the older batch stands against it",
            nothing(&[Exclusion::NotSold]).with(|one| one.says.alone = ranking(&[ranked("b")], &[])),
        ),
        (
            "without the older batch there would be only what it has tried",
            nothing(&[Exclusion::NotSold]).with(|one| one.says.alone = ranking(&[ranked("a")], &[])),
        ),
        ("what is known of reservations is old", offered(&[ranked("a")]).with(|one| one.says.stale = true)),
        (
            "reservations were read just now",
            offered(&[ranked("a")])
                .with(|one| one.says.stale = true)
                .saw(Look::Reservations(vec!["p0".to_owned()]), Sight::Read),
        ),
    ];
    compare("pending-waits", &rows);
}

#[test]
fn between_two_attempts_templates_go_and_finished_fleets_are_deleted() {
    let fleets = |result| {
        let mut scene = Scene::new(after(BatchPhase::Pending, AttemptOutcome::Retry));
        scene.batch.status.attempts[0].code = Some("MaxFleetCountExceeded".to_owned());
        scene.batch.status.next_attempt_after = Some(at(NOW + 5));
        scene.done(Change::DeleteFinishedFleets, result)
    };
    let templates = || Scene::new(lost()).status(|status| status.launch_templates = vec!["lt-1".to_owned()]);
    let rows = [
        ("templates are there", templates()),
        ("templates are deleted", templates().done(Change::DeleteTemplates(tags(1)), Ok(Made::Nothing))),
        (
            "templates cannot be deleted",
            templates()
                .done(Change::DeleteTemplates(tags(1)), Err(error("DeleteLaunchTemplate", Some("InternalError")))),
        ),
        ("two fleets were deleted", fleets(Ok(Made::Fleets(2)))),
        ("no fleet was there to be deleted", fleets(Ok(Made::Fleets(0)))),
        ("no fleet could be deleted", fleets(Err(error("DeleteFleets", Some("InternalError"))))),
    ];
    compare("pending-cleans", &rows);
}

#[test]
fn a_batch_that_is_held_goes_on_when_what_it_waits_for_has_changed() {
    let missed = || Scene::new(held(HoldReason::RequiredLevelNotMet));
    let blocked = || Scene::new(held(HoldReason::JoinBlocked));
    let rows = [
        ("the level was missed, and nothing changed", missed()),
        ("the level was missed, and the class changed", missed().with(|one| one.says.generations = "2")),
        ("the pool was blocked, and is open", blocked()),
        ("no pool can be used", fresh().with(|one| one.says.unready = Some("the class is not ready"))),
    ];
    compare("pending-held", &rows);
}

/// A batch whose only pool is blocked, when it is time to try one node.
fn probing(one: impl FnOnce(&mut Scene)) -> Scene {
    Scene::new(held(HoldReason::JoinBlocked))
        .status(|status| status.next_attempt_after = Some(at(NOW)))
        .with(|scene| {
            scene.says.unready = Some("the pool is blocked");
            scene.says.blocked_pools = &["p0"];
            scene.says.blocked = true;
            scene.says.one =
                ranking(&[other("a", |one| (one.count, one.total_micro_usd_per_hour) = (1, 100_000_000))], &[]);
        })
        .with(one)
}

fn pools(batch: &mut Batch, names: &[&str]) {
    let mut spec = BatchSpec::clone(&batch.spec);
    spec.node_pools = names.iter().map(|name| (*name).to_owned()).collect();
    batch.spec = std::sync::Arc::new(spec);
}

fn counted(batch: &str, number: u32, micro_usd: u64) -> Probes {
    Probes { count: 1, micro_usd, last: Some(Probe { batch: batch.to_owned(), attempt: number, micro_usd }) }
}

#[test]
fn one_batch_at_a_time_tries_one_node_of_a_blocked_pool_after_each_pause_and_no_more_than_are_allowed() {
    // 25 minutes at 100 $/h.
    let cost = 41_666_666;
    let clocks = |most, dollars| JoinClocks { max_probes: most, max_probe_micro_usd: dollars, ..JoinClocks::default() };
    let another = |name: &str, change: fn(&mut Batch)| {
        let mut other = batch(name, held(HoldReason::JoinBlocked));
        change(&mut other);
        probing(|scene| scene.others = vec![other])
    };
    let rows = [
        ("the block is news", probing(|scene| scene.batch.status = lost())),
        ("it is time to begin with the pause", probing(|scene| scene.batch.status.next_attempt_after = None)),
        ("the pause is not over", probing(|scene| scene.batch.status.next_attempt_after = Some(at(NOW + 60)))),
        ("the pause is over soon", probing(|scene| scene.batch.status.next_attempt_after = Some(at(NOW + 1)))),
        ("not even one node is offered", probing(|scene| scene.says.one = ranking(&[], &[]))),
        ("one node is offered: it is counted first", probing(|_| {})),
        ("it is counted: it is begun", probing(|scene| scene.says.probes = counted("a-1", 2, cost + 1))),
        ("it costs more than was counted", probing(|scene| scene.says.probes = counted("a-1", 2, cost - 1))),
        ("another batch was counted", probing(|scene| scene.says.probes = counted("b-1", 2, cost + 1))),
        (
            "as many as are allowed were tried",
            probing(|scene| {
                scene.says.probes = counted("b-1", 2, cost);
                scene.says.join = clocks(1, u64::MAX);
            }),
        ),
        (
            "one more is allowed",
            probing(|scene| {
                scene.says.probes = counted("b-1", 2, cost);
                scene.says.join = clocks(2, u64::MAX);
            }),
        ),
        (
            "they cost as much as is allowed",
            probing(|scene| {
                scene.says.probes = counted("b-1", 2, 3);
                scene.says.join = clocks(9, 3);
            }),
        ),
        (
            "that no more are allowed is reported once",
            probing(|scene| {
                scene.says.probes = counted("b-1", 2, 3);
                scene.says.join = clocks(9, 3);
                let reported = scene.decide().next.unwrap().message;
                scene.batch.status.message = reported;
            }),
        ),
        ("a dry run only tells", probing(|scene| scene.dry_run = true)),
        ("a batch before it waits for the same pool", another("Z-1", |_| {})),
        ("a batch after it waits for the same pool", another("b-1", |_| {})),
        (
            "not even one node was offered when it looked last, and one is",
            probing(|scene| scene.batch.status.candidates.clear()),
        ),
        (
            "not even one node was offered when it looked last, nor is one",
            probing(|scene| {
                scene.batch.status.candidates.clear();
                scene.says.one = ranking(&[], &[]);
            }),
        ),
        (
            "a batch before it found that not even one node is offered",
            another("Z-1", |other| {
                other.status.candidates.clear();
            }),
        ),
        (
            "a batch before it has not looked yet",
            another("Z-1", |other| {
                (other.status.candidates, other.status.failed_rounds) = (Vec::new(), 1);
            }),
        ),
        (
            "a batch before it tries a node of another pool first",
            another("Z-1", |other| pools(other, &["p1", "p0"])).with(|scene| scene.says.blocked_pools = &["p0", "p1"]),
        ),
        (
            "a batch before it tries a node of this pool, and would try another next",
            another("Z-1", |other| {
                pools(other, &["p1", "p0"]);
                other.status.phase = BatchPhase::Launching;
                other.status.attempts[0].probe = true;
            })
            .with(|scene| scene.says.blocked_pools = &["p0", "p1"]),
        ),
        ("a batch before it is being deleted", another("Z-1", |other| other.deleting = true)),
        ("a batch before it waits for something else", another("Z-1", |other| other.status.held = None)),
        ("a batch before it waits for another pool", another("Z-1", |other| pools(other, &["p1"]))),
    ];
    compare("pending-probes", &rows);
}

#[test]
fn a_batch_that_nobody_wants_any_more_ends() {
    use muster_core::batch::OwnerLook;
    use muster_core::model::gang::Phase;

    use crate::world::{self, key, place};
    let gone = || fresh().with(|one| one.gangs.clear());
    let look = || Look::Owner(OwnerLook::Gang { key: key("a"), uid: "a-uid".to_owned() });
    let request = || fresh().of_request().with(|one| one.says.requests = false);
    let request_look = || Look::Owner(OwnerLook::Request { key: key("r"), uid: "r-uid".to_owned() });
    let gang = |phase, change: fn(&mut muster_core::model::gang::Gang)| {
        fresh().with(|one| {
            let mut gang = world::gang("a", phase, vec![place(0, None, "n-i-9")]);
            change(&mut gang);
            one.gangs = vec![gang];
        })
    };
    let rows = [
        ("a person deleted it", fresh().with(|one| one.batch.deleting = true)),
        ("a newer version wrote it", fresh().with(|one| one.batch.newer = Some("phase Dozing".to_owned()))),
        ("its gang is not in the cache", gone()),
        ("its gang is gone", gone().saw(look(), Sight::Owner(false))),
        ("its gang lives all the same", gone().saw(look(), Sight::Owner(true))),
        ("the API server does not answer", gone().failed_to_see(look())),
        ("its request is not in the cache", request()),
        ("its request is gone", request().saw(request_look(), Sight::Owner(false))),
        ("its gang is another of the same name", gang(Phase::Provisioning, |gang| gang.uid = "other".into())),
        ("its gang is being deleted", gang(Phase::Provisioning, |gang| gang.deleting = true)),
        ("its gang has finished", gang(Phase::Finished, |_| {})),
        ("its gang is planned", gang(Phase::Waiting, |_| {})),
        ("its gang is committing on other nodes", gang(Phase::Committing, |_| {})),
        ("its gang is bound on other nodes", gang(Phase::Bound, |_| {})),
        ("its gang is degraded on other nodes", gang(Phase::Degraded, |_| {})),
        ("its gang goes on with a later batch", gang(Phase::Waiting, |gang| gang.batch = Some("a-2".into()))),
        ("its gang goes on with this batch", gang(Phase::Waiting, |gang| gang.batch = Some("a-1".into()))),
        (
            "its launch is still open",
            Scene::new(after(BatchPhase::Pending, AttemptOutcome::Launching)).with(|one| one.batch.deleting = true),
        ),
        (
            "a gang of its booking runs on nodes that its status does not know",
            fresh().of_request().with(|one| {
                let mut labelled = super::scene::node("i-1");
                labelled.labels.insert("muster.dev/batch".into(), "a-1-uid".into());
                labelled.labels.insert(muster_core::ec2::TAG_BATCH.into(), "a-1-uid".into());
                one.nodes.push(labelled);
                one.pods.push(member("a", 0, "i-1"));
            }),
        ),
    ];
    compare("pending-unwanted", &rows);
}

#[test]
fn nothing_is_launched_again_for_a_booking_whose_gang_has_gone() {
    let booked = |used: bool, since: i64| {
        offered(&[ranked("a")]).of_request().status(|status| {
            status.used = used;
            status.since = Some(at(NOW - since));
        })
    };
    let consumed = |phase| {
        booked(true, 900).with(|one| {
            one.booked = Some("r");
            one.gangs = vec![world::gang("a", phase, Vec::new())];
            // Its pods are there again, and wait.
            one.pods = vec![Pod { node: None, ..member("a", 0, "i-1") }];
        })
    };
    let rows = [
        ("nobody has used it yet", booked(false, 900)),
        ("its gang has gone a moment ago", booked(true, 0)),
        ("its gang has gone almost a quarter of an hour ago", booked(true, 899)),
        ("its gang has gone a quarter of an hour ago", booked(true, 900)),
        ("its gang has come again", consumed(Phase::Waiting)),
        ("its gang has ended", consumed(Phase::Finished)),
    ];
    compare("pending-booking", &rows);
}

#[test]
fn a_failed_step_is_tried_again_after_a_pause_that_grows_and_is_reported_once_it_keeps_failing() {
    use muster_core::batch::Failure;
    let failing = |failures: u32, denied: bool| {
        fresh().with(|one| {
            one.memory.failures = failures;
            one.memory.failed = Some(Failure { text: "EC2's words".to_owned(), denied });
        })
    };
    let reported = |denied: bool| {
        let mut scene = failing(2, denied);
        scene.batch.status = scene.decide().next.unwrap();
        scene.memory = muster_core::batch::Memory::default();
        scene.says.ranking = ranking(&[], &[]);
        scene.batch.status.next_attempt_after = Some(at(NOW + 20));
        scene
    };
    let rows = [
        ("the first failure", failing(0, false)),
        ("the second failure", failing(1, false)),
        ("the third failure", failing(2, false)),
        ("the fourth failure", failing(3, false)),
        ("the sixth failure", failing(5, false)),
        ("the thousandth failure", failing(999, false)),
        ("a permission is missing", failing(0, true)),
        (
            "a permission is missing that is known",
            failing(0, true).with(|one| one.says.lacks = Some("not permitted: RunInstances")),
        ),
        ("it goes on after it kept failing", reported(false)),
        ("it goes on once it is permitted", reported(true)),
        ("it goes on once it is permitted, and nobody had reported it", {
            let mut scene = reported(true);
            scene.batch.status.message = None;
            scene
        }),
    ];
    compare("failures", &rows);
}

#[test]
fn edits_prove_that_a_step_goes_on_once_they_have_been_made() {
    let mut scene = Scene::new(having(BatchPhase::Draining, MemberState::Ready, &["i-1"])).with_nodes();
    scene.memory.failures = 3;
    let decided = scene.decide();
    assert!(!decided.converge.is_empty() && !decided.succeeded, "what is to be made yet proves nothing: {decided:?}");
    scene.memory.carried_out();
    let decided = scene.decide();
    assert!(!decided.converge.is_empty() && decided.succeeded, "{decided:?}");
}

#[test]
fn nothing_is_launched_for_a_gang_that_could_not_use_it() {
    let gang = |phase, since: i64| {
        let mut gang = world::gang("a", phase, Vec::new());
        let waiting = Why::Collecting { seen: 2, needed: 3, size: 3, kept: false }.waiting(None);
        (gang.since, gang.waiting) = (Some(at(NOW - since)), Some(waiting));
        offered(&[ranked("a")]).with(|one| one.gangs = vec![gang])
    };
    let rows = [
        ("a member is missing", gang(Phase::Collecting, 60)),
        ("a member cannot be read", gang(Phase::Invalid, 60)),
        ("a member is missing for a quarter of an hour", gang(Phase::Collecting, 900)),
        ("a member is missing, and the pause after a round is not over", {
            gang(Phase::Collecting, 60).with(|one| {
                one.batch.status = BatchStatus { next_attempt_after: Some(at(NOW + 60)), ..lost() };
            })
        }),
        ("another gang of the name is not whole", {
            gang(Phase::Collecting, 60).with(|one| one.gangs[0].uid = "later-uid".into())
        }),
        ("it waits for a plan", gang(Phase::Waiting, 60)),
    ];
    compare("pending-members", &rows);
}
