//! Writing down that nodes of a batch are lost, or will be: whoever finds out says it here.
//!
//! One conditional write on the object as the API server has it. A loss that is known already changes nothing, so the
//! same message may come twice and two sources may tell the same.

use std::collections::BTreeMap;

use anyhow::Context as _;
use kube::Api;
use kube::api::PostParams;
use muster_api::crd::{BatchLoss, NodeBatch, NodeBatchStatus, set_condition};
use muster_core::gang::GangEvent;

use super::Context;
use super::store::STATUS_VERSION;
use crate::clock::now_real;
use crate::step::{Step, step};

/// Another writer is met this often at most; then the finding comes again with the next message or round.
const TRIES: u32 = 6;

/// Marks instances of a batch, by id. Whether anything was news.
pub(super) async fn mark(
    context: &Context,
    batch: &str,
    losses: &BTreeMap<String, BatchLoss>,
    reason: &'static str,
) -> anyhow::Result<bool> {
    let api: Api<NodeBatch> = Api::all(context.client.clone());
    for _ in 0..TRIES {
        let Some(mut object) = api.get_opt(batch).await.context("read the NodeBatch of a lost node")? else {
            return Ok(false);
        };
        let mut status = object.status.clone().unwrap_or_default();
        if status.version > STATUS_VERSION {
            return Ok(false);
        }
        let news = note(&mut status, losses, context.clock.now());
        let Some(first) = news.first() else { return Ok(false) };
        let message = format!("{} of {} nodes: {}", news.len(), status.count, first);
        set_condition(&mut status.conditions, "Interrupted", true, reason, &message, now_real());
        object.status = Some(status);
        match step(Step::WriteBatch, api.replace_status(batch, &PostParams::default(), &object)).await {
            Ok(written) => {
                context.events.publish(&written, &GangEvent { reason, message, warning: true }).await;
                context.wake.notify_one();
                return Ok(true);
            }
            Err(kube::Error::Api(answer)) if answer.code == 409 => {}
            Err(kube::Error::Api(answer)) if answer.code == 404 => return Ok(false),
            Err(error) => return Err(anyhow::Error::new(error).context("write down the loss of a node")),
        }
    }
    anyhow::bail!("NodeBatch {batch} changes too fast to write down the loss of a node")
}

/// Fills in what is news, and says it.
fn note(status: &mut NodeBatchStatus, losses: &BTreeMap<String, BatchLoss>, now: jiff::Timestamp) -> Vec<String> {
    let mut news = Vec::new();
    for instance in &mut status.instances {
        let Some(loss) = losses.get(&instance.id) else { continue };
        // What is to be acted on sooner replaces what is to be acted on later; nothing else is news.
        if instance.loss.as_ref().is_some_and(|known| known.act_at <= loss.act_at) || instance.state == "Terminating" {
            continue;
        }
        if loss.act_at <= now {
            "Lost".clone_into(&mut instance.state);
        }
        news.push(format!("{}: {}", instance.id, loss.message));
        instance.loss = Some(loss.clone());
    }
    news
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use muster_api::crd::BatchInstance;

    use super::*;

    fn loss(cause: &str, act_at: Timestamp) -> BTreeMap<String, BatchLoss> {
        let loss = BatchLoss { cause: cause.to_owned(), act_at, ..BatchLoss::default() };
        BTreeMap::from([("i-1".to_owned(), loss)])
    }

    #[test]
    fn the_same_loss_is_news_once_and_a_sooner_one_is_news_again() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let later = now + SignedDuration::from_mins(10);
        let instance = |id: &str| BatchInstance { id: id.to_owned(), state: "Ready".to_owned(), ..Default::default() };
        let mut status = NodeBatchStatus { instances: vec![instance("i-1"), instance("i-2")], ..Default::default() };
        assert_eq!(note(&mut status, &loss("maintenance", later), now).len(), 1);
        assert_eq!(status.instances[0].state, "Ready", "its time has not come");
        assert!(note(&mut status, &loss("maintenance", later), now).is_empty());
        assert_eq!(note(&mut status, &loss("spot", now), now).len(), 1);
        assert_eq!(status.instances[0].state, "Lost");
        assert!(
            note(&mut status, &loss("terminated", now), now).is_empty(),
            "duplicates and reordering change nothing"
        );
        assert_eq!(status.instances[1], instance("i-2"));
    }
}
