//! A batch while a watch of the cluster is too old: nothing may follow from pods and Nodes that nobody sees any more.

use std::collections::BTreeMap;

use muster_core::batch::{Failure, Made, Report};
use muster_core::ec2::{InstanceState, LaunchAnswer, NoticeKind};
use muster_core::model::batch::{AttemptOutcome, BatchPhase, BatchStatus, Loss, LossCause, MemberState};
use muster_core::model::names::InstanceId;

use super::compare;
use super::scene::{NOW, Scene, after, having, launched, loss};
use crate::world::at;

fn unseen(scene: Scene) -> Scene {
    scene.with(|one| one.stale = true)
}

fn notice(id: &str) -> Report {
    let loss = Loss { act_at: at(NOW), ..loss(LossCause::Notice(NoticeKind::SpotInterruption), "taken back") };
    Report { losses: BTreeMap::from([(InstanceId::from(id), loss)]), reason: "SpotInterruption", ..Report::default() }
}

#[test]
fn while_the_cluster_is_not_seen_losses_are_written_down_and_answers_of_ec2_judged_and_nothing_else_is_done() {
    let of = |phase| having(phase, MemberState::Ready, &["i-1", "i-2"]);
    let idle = || Scene::new(of(BatchPhase::Idle)).with_nodes().status(|status| status.idle_since = Some(at(0)));
    let joining = || {
        let ended = |status: &mut BatchStatus| status.attempts[0].ended = Some(at(-100_000));
        Scene::new(having(BatchPhase::Joining, MemberState::Launched, &["i-1", "i-2"])).status(ended)
    };
    let under_way = || Scene::new(after(BatchPhase::Launching, AttemptOutcome::Launching));
    let rows = [
        ("idle nodes whose time has come", unseen(idle())),
        (
            "a batch that drains, on whose nodes no pod is seen",
            unseen(Scene::new(of(BatchPhase::Draining)).with_nodes()),
        ),
        ("instances whose Nodes are not seen in time", unseen(joining())),
        ("a batch that was not begun", unseen(Scene::new(BatchStatus::default()))),
        ("a launch that was not sent, or whose answer is open", unseen(under_way())),
        (
            "a launch that was answered",
            unseen(under_way().answered(true, Ok(Made::Launched(launched(&["i-1", "i-2", "i-3"]))))),
        ),
        (
            "a launch that was answered with nothing",
            unseen(under_way().answered(true, Ok(Made::Launched(LaunchAnswer::default())))),
        ),
        ("a loss is reported", unseen(idle().with(|one| one.memory.reports = vec![notice("i-2")]))),
        (
            "a loss is reported that is known",
            unseen(idle().with(|one| {
                one.batch.status.instances[1].loss = notice("i-2").losses.into_values().next();
                one.batch.status.instances[1].state = MemberState::Lost;
                one.memory.reports = vec![notice("i-2")];
            })),
        ),
        (
            "a step failed a moment ago",
            unseen(idle().with(|one| one.memory.failed = Some(Failure { text: "no".to_owned(), denied: false }))),
        ),
        (
            "what EC2 shows is kept",
            unseen(Scene::new(of(BatchPhase::Terminating)).instances(&[("i-1", InstanceState::Terminated)])),
        ),
    ];
    compare("unseen", &rows);
}
