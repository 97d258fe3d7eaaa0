//! A batch with an attempt under way: its group, its template, its call, and what every answer to it means.

use muster_core::batch::{Change, LastLooks, Look, Made, Sight};
use muster_core::ec2::{
    CallError, CapacityType, FleetError, GroupState, InstanceState, LaunchAnswer, LaunchWay, PlacementGroup,
    ResourceKind, Tags, Target,
};
use muster_core::model::batch::{Attempt, AttemptOutcome, BatchPhase, BatchStatus, MemberState};

use super::compare;
use super::scene::{NOW, Scene, after, attempt, error, launched, tags};
use crate::world::at;

const RUNNING: InstanceState = InstanceState::Running;

/// An attempt that has just been written down.
fn begun(change: impl FnOnce(&mut Attempt)) -> Scene {
    let mut status = after(BatchPhase::Launching, AttemptOutcome::Launching);
    let attempt = &mut status.attempts[0];
    (attempt.parameters, attempt.token) = (None, None);
    change(attempt);
    Scene::new(status)
}

/// What was seen before the change is not known any more.
fn forget(mut scene: Scene) -> Scene {
    scene.memory.seen.clear();
    scene
}

fn grouped() -> Scene {
    begun(|attempt| attempt.group = true).status(|status| status.placement_group = Some("mine".to_owned()))
}

fn create_group() -> Change {
    let mut all = Tags::from([("team".to_owned(), "vision".to_owned())]);
    all.extend(tags(1).of(ResourceKind::PlacementGroup));
    Change::CreateGroup { name: "mine".to_owned(), tags: all }
}

fn group(state: GroupState, tags: Tags) -> Sight {
    let (name, id, strategy) = ("mine".to_owned(), "pg-1".to_owned(), "cluster".to_owned());
    Sight::Group(Some(PlacementGroup { name, id, state, strategy, tags }))
}

#[test]
fn a_launch_begins_once_its_placement_group_can_be_used() {
    let look = || Look::Group("mine".to_owned());
    let ours = || tags(1).of(ResourceKind::PlacementGroup);
    let created = |code: &str| grouped().done(create_group(), Err(error("CreatePlacementGroup", Some(code))));
    let waited = |looks: u32| {
        grouped().saw(look(), group(GroupState::Pending, ours())).with(|one| one.memory.scratch.group_looks = looks)
    };
    let rows = [
        ("the group is looked for", grouped()),
        ("there is none: it is made", grouped().saw(look(), Sight::Group(None))),
        ("it is made", grouped().done(create_group(), Ok(Made::Nothing))),
        ("it was made before", created("InvalidPlacementGroup.Duplicate")),
        ("there are too many groups", created("PlacementGroupLimitExceeded")),
        ("it must not be made", created("UnauthorizedOperation")),
        ("it cannot be made so", created("InvalidParameterValue")),
        ("EC2 has trouble", created("InternalError")),
        ("it is not available yet", waited(0)),
        ("it is not available at the third look", waited(2)),
        ("it is not available at the hundredth look", waited(99)),
        ("it is available: a template is next", grouped().saw(look(), group(GroupState::Available, ours()))),
        ("it is somebody else's: another name", grouped().saw(look(), group(GroupState::Available, Tags::new()))),
        ("the attempt has no group", begun(|_| {})),
    ];
    compare("launching-group", &rows);
}

#[test]
fn the_parameters_of_a_launch_are_written_down_before_it_is_sent() {
    // The change of the template, as it is asked for.
    let template = |scene: Scene, result: Result<Made, CallError>| {
        let change = scene.decide().change.unwrap();
        scene.done(change, result)
    };
    let made = || Ok(Made::Template { id: "lt-9".to_owned(), version: 2 });
    let refused = |code: &str| template(begun(|_| {}), Err(error("CreateLaunchTemplate", Some(code))));
    let available = || {
        let ours = tags(1).of(ResourceKind::PlacementGroup);
        grouped().saw(Look::Group("mine".to_owned()), group(GroupState::Available, ours))
    };
    let known = || {
        let scene = begun(|_| {});
        let next = scene.decide().next.unwrap();
        scene.status(|status| status.launch_templates = next.launch_templates)
    };
    let rows = [
        ("the template is made", begun(|_| {})),
        ("a template that was intended is made, and nothing more is written", known()),
        ("the template is there", template(begun(|_| {}), made())),
        ("the template is there, and the group was looked at before it", forget(template(available(), made()))),
        (
            "into a reservation in somebody else's group",
            template(
                begun(|attempt| {
                    attempt.group = true;
                    attempt.reservation_group = Some("theirs".to_owned());
                    attempt.reservation = Some(Target { id: "cr-1".to_owned(), block: false });
                    attempt.way = LaunchWay::Run;
                }),
                made(),
            ),
        ),
        ("a group that the attempt does not ask for is not used", template(begun(|_| {}), made())),
        (
            "a group that is left from before is not looked at",
            begun(|_| {}).status(|status| status.placement_group = Some("mine".to_owned())),
        ),
        (
            "looks at the group are counted from the start again",
            template(begun(|_| {}).with(|one| one.memory.scratch.group_looks = 3), made()),
        ),
        ("the class cannot be used", begun(|_| {}).with(|one| one.says.template = Err("no such AMI"))),
        ("the template is refused", refused("InvalidParameterValue")),
        ("a permission is missing", refused("UnauthorizedOperation")),
        ("EC2 has trouble", refused("InternalError")),
        ("the answer is of something else", template(begun(|_| {}), Ok(Made::Nothing))),
        ("there is no attempt", begun(|_| {}).status(|status| status.attempts.clear())),
    ];
    compare("launching-template", &rows);
}

/// An attempt whose call may have been sent.
pub(super) fn open(change: impl FnOnce(&mut Attempt)) -> Scene {
    let mut status = after(BatchPhase::Launching, AttemptOutcome::Launching);
    change(&mut status.attempts[0]);
    Scene::new(status)
}

pub(super) fn code(code: &str) -> Result<Made, CallError> {
    Err(error("CreateFleet", Some(code)))
}

fn empty(codes: &[&str]) -> Result<Made, CallError> {
    let item = |code: &&str| FleetError {
        code: (*code).to_owned(),
        message: "EC2's words".to_owned(),
        instance_type: None,
        zone: None,
    };
    Ok(Made::Launched(LaunchAnswer { errors: codes.iter().map(item).collect(), ..launched(&[]) }))
}

fn made(ids: &[&str]) -> Result<Made, CallError> {
    Ok(Made::Launched(launched(ids)))
}

const ALL: [(&str, InstanceState); 3] = [("i-1", RUNNING), ("i-2", RUNNING), ("i-3", InstanceState::Pending)];

#[test]
fn a_launch_is_won_whole_or_rolled_back() {
    let partial = |scene: Scene| {
        scene.with(|one| {
            let mut spec = muster_core::model::batch::BatchSpec::clone(&one.batch.spec);
            spec.partial = true;
            one.batch.spec = std::sync::Arc::new(spec);
            let parameters = one.batch.status.attempts[0].parameters.as_mut().unwrap();
            std::sync::Arc::make_mut(&mut parameters.value).partial = true;
        })
    };
    let long_ago = || open(|attempt| attempt.started = Some(at(NOW - 600)));
    let rows = [
        ("it is sent for the first time", open(|_| {}).with(|one| one.memory.scratch.first = Some(1))),
        ("it may have been sent before", open(|_| {})),
        ("it may have been sent long ago", long_ago()),
        ("it was sent long ago, and nothing is found", long_ago().swept(&[])),
        ("it was sent long ago, and is found", long_ago().swept(&ALL)),
        ("it was sent long ago, and a part is found", long_ago().swept(&ALL[..2])),
        (
            "another attempt was written down by this process",
            open(|_| {}).with(|one| one.memory.scratch.first = Some(9)),
        ),
        ("all were launched", open(|_| {}).answered(true, made(&["i-1", "i-2", "i-3"]))),
        ("all were launched, by an earlier call", open(|_| {}).answered(false, made(&["i-1", "i-2", "i-3"]))),
        (
            "all were launched after some failed rounds",
            open(|_| {}).status(|status| status.failed_rounds = 4).answered(true, made(&["i-1", "i-2", "i-3"])),
        ),
        (
            "a node that was tried alone was launched: the pauses stay",
            open(|attempt| attempt.probe = true)
                .status(|status| status.failed_rounds = 4)
                .answered(true, made(&["i-1", "i-2", "i-3"])),
        ),
        ("some were launched", open(|_| {}).answered(true, made(&["i-1", "i-2"]))),
        ("some were launched, where part will do", partial(open(|_| {})).answered(true, made(&["i-1", "i-2"]))),
        (
            "some were launched for no known price, where part will do",
            partial(open(|_| {})).status(|status| status.price = None).answered(true, made(&["i-1", "i-2"])),
        ),
        ("more were launched", open(|_| {}).answered(true, made(&["i-1", "i-2", "i-3", "i-4"]))),
        ("what was answered is no launch", open(|_| {}).answered(true, Ok(Made::Nothing))),
        ("the outcome was seen, and the attempt closed", open(|attempt| attempt.outcome = AttemptOutcome::Lost)),
    ];
    compare("launching-won", &rows);
}

#[test]
fn a_launch_that_ec2_refused_says_what_is_tried_next() {
    let first = |what: &str| open(|_| {}).answered(true, code(what));
    let ours = || {
        let (key, value) = (muster_core::ec2::TAG_CLUSTER_UID, super::super::ec2::CLUSTER_UID);
        Look::Tagged(Tags::from([(key.to_owned(), value.to_owned())]))
    };
    let shown = |state: &[(&str, InstanceState)]| Sight::Instances(super::scene::instances(state));
    let reserved = |what: &str| {
        open(|attempt| {
            attempt.reservation = Some(Target { id: "cr-1".to_owned(), block: false });
            attempt.capacity_type = CapacityType::Reserved;
            attempt.way = LaunchWay::Run;
        })
        .answered(true, code(what))
    };
    let in_group = |replayed: bool| {
        open(|attempt| (attempt.group, attempt.replayed) = (true, replayed))
            .status(|status| status.placement_group = Some("mine".to_owned()))
            .status(|status| status.placement_group_id = Some("pg-1".to_owned()))
            .answered(true, code("InsufficientInstanceCapacity"))
    };
    let ending = [("i-7", InstanceState::ShuttingDown), ("i-8", RUNNING), ("i-9", InstanceState::ShuttingDown)];
    let other_family = || {
        let mut other = super::scene::instances(&ending);
        other.iter_mut().for_each(|instance| instance.instance_type = "m5.large".to_owned());
        Sight::Instances(other)
    };
    let after_retries = |count: u32, scene: Scene| {
        let again = |status: &mut BatchStatus| {
            let last = status.attempts[0].clone();
            let before = |number| Attempt { number, outcome: AttemptOutcome::Retry, ..last.clone() };
            status.attempts = (1..=count).map(before).collect();
            status.attempt = count + 1;
            status.attempts.push(Attempt { number: count + 1, ..last });
        };
        scene.status(again)
    };
    let rows = [
        ("no capacity", first("InsufficientInstanceCapacity")),
        (
            "no capacity without a placement group, after a call without an answer",
            open(|attempt| attempt.replayed = true)
                .status(|status| status.placement_group_id = Some("pg-1".to_owned()))
                .answered(true, code("InsufficientInstanceCapacity")),
        ),
        ("a quota, before it is known whether instances of ours are ending", first("VcpuLimitExceeded")),
        ("a quota", first("VcpuLimitExceeded").saw(ours(), shown(&[("i-8", RUNNING)]))),
        ("a quota, while instances of ours are ending", first("VcpuLimitExceeded").saw(ours(), shown(&ending))),
        (
            "a quota, while instances of another family are ending",
            first("VcpuLimitExceeded").saw(ours(), other_family()),
        ),
        (
            "a quota of interfaces, while instances of another family are ending",
            first("NetworkInterfaceLimitExceeded").saw(ours(), other_family()),
        ),
        (
            "a quota for the ninth time, while instances of ours are ending",
            after_retries(8, first("VcpuLimitExceeded")).saw(ours(), shown(&ending)),
        ),
        ("the spot quota", first("MaxSpotInstanceCountExceeded").saw(ours(), shown(&[]))),
        ("too many fleets", first("MaxFleetCountExceeded")),
        ("too many placement groups", first("PlacementGroupLimitExceeded")),
        ("the reservation is full", reserved("ReservationCapacityExceeded")),
        ("the reservation is gone", reserved("InvalidCapacityReservationId.NotFound")),
        ("a permission is missing", first("UnauthorizedOperation")),
        (
            "a permission is missing for RunInstances",
            open(|attempt| attempt.way = LaunchWay::Run).answered(true, code("UnauthorizedOperation")),
        ),
        (
            "the class is to blame",
            first("InvalidParameterValue").with(|one| one.says.blame = Some("the class has a wrong subnet")),
        ),
        ("nobody is to blame", first("InvalidParameterValue")),
        ("slow down", first("RequestLimitExceeded")),
        ("slow down, nobody waits any more, and it was not looked for", first("RequestLimitExceeded").unwanted()),
        ("slow down, and nobody waits any more", first("RequestLimitExceeded").unwanted().swept(&[])),
        ("slow down, nobody waits any more, and it is found", first("RequestLimitExceeded").unwanted().swept(&ALL)),
        (
            "slow down to the last, and nobody waits any more",
            open(|attempt| attempt.sweeps = 4).answered(true, code("RequestLimitExceeded")).unwanted().swept(&[]),
        ),
        ("no capacity in a placement group that nobody else uses", in_group(false)),
        ("no capacity in a placement group that calls without an answer may have used", in_group(true)),
        ("the token is another call's, and nothing was launched", first("IdempotentParameterMismatch").swept(&[])),
        (
            "the token is another call's, and what it launched is found",
            first("IdempotentParameterMismatch").swept(&ALL),
        ),
        ("the template is not seen yet", first("InvalidLaunchTemplateId.NotFound").swept(&[])),
        (
            "the template is not seen five minutes after the attempt began",
            open(|attempt| attempt.started = Some(at(NOW - 300)))
                .answered(true, code("InvalidLaunchTemplateId.NotFound"))
                .swept(&[]),
        ),
        ("the token is refused for the third time", after_retries(2, first("IdempotentParameterMismatch").swept(&[]))),
        ("the token is refused for the eighth time", after_retries(7, first("IdempotentParameterMismatch").swept(&[]))),
        ("the token is refused for the ninth time", after_retries(8, first("IdempotentParameterMismatch").swept(&[]))),
        ("the template is not seen, and the launch is found", first("InvalidLaunchTemplateId.NotFound").swept(&ALL)),
    ];
    compare("launching-refused", &rows);
}

#[test]
fn a_launch_whose_outcome_is_open_is_looked_for_and_sent_again_until_it_counts_as_lost() {
    let fleet = |answer| (Look::Fleet("fleet-1".to_owned()), Sight::Fleet(answer));
    let timed_out = || Err(error("CreateFleet", None));
    let unknown = |sweeps: u32| open(|attempt| attempt.sweeps = sweeps).answered(false, timed_out());
    let nothing = |codes: &[&str]| {
        let (look, sight) = fleet(Some(launched(&[])));
        open(|_| {}).answered(true, empty(codes)).saw(look, sight)
    };
    let known_fleet = |answer| {
        let (look, sight) = fleet(answer);
        open(|attempt| attempt.fleet = Some("fleet-1".to_owned())).answered(false, timed_out()).saw(look, sight)
    };
    let looked = |number, looks| {
        open(|attempt| attempt.sweeps = 4)
            .with(|one| one.memory.scratch.last_looks = Some(LastLooks { attempt: number, looks }))
    };
    let few: [(&str, InstanceState); 2] = [("i-1", RUNNING), ("i-2", RUNNING)];
    let ended = [("i-1", InstanceState::Terminated), ("i-2", InstanceState::ShuttingDown)];
    let rows = [
        ("no answer: it is looked for", unknown(0)),
        ("no answer, and nothing is found", unknown(0).swept(&[])),
        ("no answer for the third time", unknown(2).swept(&[])),
        ("no answer for the fourth time", unknown(3).swept(&[])),
        ("no answer for the fifth time", unknown(4).swept(&[])),
        ("no answer, and all are found", unknown(0).swept(&ALL)),
        ("no answer, and some are found", unknown(0).swept(&few)),
        ("no answer, and no more than some are found", unknown(4).swept(&few)),
        ("no answer, and some more than all are found", unknown(0).swept(&[ALL[0], ALL[1], ALL[2], ("i-4", RUNNING)])),
        ("no answer, and what is found has ended", unknown(0).swept(&ended)),
        ("no answer, and the tags cannot be looked for", {
            let sweep = Look::Tagged(tags(1).sweep());
            unknown(0).failed_to_see(sweep)
        }),
        ("no answer, and the fleet knows all", known_fleet(Some(launched(&["i-1", "i-2", "i-3"]))).swept(&[])),
        (
            "no answer, and fleet and tags know a part each",
            known_fleet(Some(launched(&["i-1"]))).swept(&[ALL[1], ALL[2]]),
        ),
        ("no answer, and no such fleet", known_fleet(None).swept(&[])),
        (
            "no capacity at a replay says nothing",
            open(|_| {}).answered(false, code("InsufficientInstanceCapacity")).swept(&[]),
        ),
        (
            "no capacity at a replay, at last",
            open(|attempt| attempt.sweeps = 4).answered(false, code("InsufficientInstanceCapacity")).swept(&[]),
        ),
        ("an empty answer without capacity: nothing is there", nothing(&["InsufficientInstanceCapacity"]).swept(&[])),
        ("an empty answer without capacity: all are there", nothing(&["InsufficientInstanceCapacity"]).swept(&ALL)),
        ("an empty answer that throttles: nothing is there", nothing(&["RequestLimitExceeded"]).swept(&[])),
        ("an empty answer that throttles: all are there", nothing(&["RequestLimitExceeded"]).swept(&ALL)),
        ("an empty answer that says nothing", nothing(&[]).swept(&[])),
        ("EC2 is in trouble", open(|_| {}).answered(true, code("InternalError"))),
        ("the last call is over, and nothing is found yet", looked(1, 2).swept(&[])),
        ("the last call is over, and nothing is found at the last look", looked(1, 3).swept(&[])),
        ("the last call is over, and all are found at the last look", looked(1, 3).swept(&ALL)),
        ("what was looked for belongs to another attempt", looked(0, 3)),
    ];
    compare("launching-open", &rows);
}

/// All of the attempt has to go.
fn rolling_back(change: impl FnOnce(&mut BatchStatus)) -> Scene {
    let mut status = super::scene::having(
        BatchPhase::Launching,
        muster_core::model::batch::MemberState::Terminating,
        &["i-1", "i-2"],
    );
    status.attempts = vec![attempt(1, AttemptOutcome::Violated)];
    status.attempts[0].ended = Some(at(NOW - 200));
    change(&mut status);
    Scene::new(status)
}

#[test]
fn a_rollback_ends_every_instance_then_the_group_and_then_goes_on() {
    use muster_core::model::batch::{Hold, HoldReason};
    use muster_core::model::names::InstanceId;
    const GONE: InstanceState = InstanceState::Terminated;
    let gone = [("i-1", GONE), ("i-2", GONE)];
    let over = |status: &mut BatchStatus| status.instances.iter_mut().for_each(|one| one.state = MemberState::Gone);
    let ended = || rolling_back(over).instances(&gone).swept(&gone);
    let grouped = || {
        rolling_back(|status| {
            over(status);
            status.placement_group = Some("mine".to_owned());
        })
        .instances(&gone)
        .swept(&[])
    };
    let ours = tags(1).of(ResourceKind::PlacementGroup);
    let look = || Look::Group("mine".to_owned());
    let delete = || Change::DeleteGroup("mine".to_owned());
    let terminate = |ids: &[&str]| Change::Terminate(ids.iter().map(|id| InstanceId::from(*id)).collect());
    let held = |reason| {
        rolling_back(|status| {
            over(status);
            status.held = Some(Hold { reason, seen: "1".to_owned() });
            status.misses = 2;
        })
        .instances(&gone)
        .swept(&[])
    };
    let live = |state| rolling_back(|_| {}).instances(&[("i-1", state), ("i-2", GONE)]).swept(&[]);
    let young = |seconds| {
        rolling_back(|status| status.attempts[0].ended = Some(at(NOW - seconds))).instances(&gone[..1]).swept(&[])
    };
    let rows = [
        ("the instances are looked at", rolling_back(|_| {})),
        ("then what the tags find", rolling_back(|_| {}).instances(&gone)),
        ("all have ended, which is written down", rolling_back(|_| {}).instances(&gone).swept(&gone)),
        ("all have ended", ended()),
        ("one is pending", live(InstanceState::Pending)),
        ("one runs", live(RUNNING)),
        ("one stops", live(InstanceState::Stopping)),
        ("one is stopped", live(InstanceState::Stopped)),
        ("one is in a state nobody knows", live(InstanceState::Unknown)),
        ("one is ending", live(InstanceState::ShuttingDown)),
        ("the tags find one more", rolling_back(|_| {}).instances(&gone).swept(&[("i-9", RUNNING)])),
        ("they were just ended", ended().done(terminate(&["i-1", "i-2"]), Ok(Made::Nothing))),
        (
            "none could be ended",
            ended().done(terminate(&["i-1"]), Err(error("TerminateInstances", Some("InternalError")))),
        ),
        ("one that was just launched is not shown", young(60)),
        ("one that was launched two minutes ago is not shown", young(120)),
        ("there is a group", grouped()),
        ("the group is ours", grouped().saw(look(), group(GroupState::Available, ours))),
        ("the group is somebody else's", grouped().saw(look(), group(GroupState::Available, Tags::new()))),
        ("the group is gone", grouped().saw(look(), Sight::Group(None))),
        ("the group is deleted", forget(grouped().done(delete(), Ok(Made::Nothing)))),
        (
            "the group is in use",
            grouped().done(delete(), Err(error("DeletePlacementGroup", Some("InvalidPlacementGroup.InUse")))),
        ),
        (
            "the group cannot be deleted",
            grouped().done(delete(), Err(error("DeletePlacementGroup", Some("InternalError")))),
        ),
        ("the level was missed too often", held(HoldReason::RequiredLevelNotMet)),
        ("the node was tried alone", held(HoldReason::JoinBlocked)),
    ];
    compare("launching-rollback", &rows);
}
