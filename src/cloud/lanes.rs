//! Whose turn it is where calls queue: one lane per NodePool, served in turn, so that a hundred batches that try for one
//! pool do not hold up a batch of another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

tokio::task_local! {
    static LANE: Arc<str>;
    static CLASS: Arc<str>;
}

/// Runs `work`, whose calls are made for this EC2NodeClass: what they are denied says nothing of others.
pub async fn for_class<T>(class: Arc<str>, work: impl Future<Output = T>) -> T {
    CLASS.scope(class, work).await
}

/// The class that calls of this task are made for, if there is one.
pub(super) fn class() -> Option<Arc<str>> {
    CLASS.try_with(Arc::clone).ok()
}

/// Runs `work`, whose calls queue in the lane of this name.
pub async fn in_lane<T>(lane: Arc<str>, work: impl Future<Output = T>) -> T {
    LANE.scope(lane, work).await
}

/// The queue of one bucket.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    busy: bool,
    /// Turns that were given.
    given: u64,
    /// By lane, first come first.
    waiting: BTreeMap<Arc<str>, VecDeque<oneshot::Sender<()>>>,
    /// Lanes with somebody waiting, in the order of their next turn.
    order: VecDeque<Arc<str>>,
}

/// One's turn; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    lanes: &'a Lanes,
    /// In which lane.
    pub(super) lane: Arc<str>,
    /// How many others had theirs while it waited.
    pub(super) ahead: u64,
}

impl Lanes {
    /// Waits for a turn in the lane of the task.
    pub(super) async fn enter(&self) -> Turn<'_> {
        let lane = LANE.try_with(Arc::clone).unwrap_or_else(|_| Arc::from(""));
        let mut came = None;
        loop {
            let called = {
                let mut queue = self.queue();
                let came = *came.get_or_insert(queue.given);
                if !queue.busy {
                    queue.busy = true;
                    queue.given += 1;
                    let ahead = queue.given - came - 1;
                    return Turn { lanes: self, lane, ahead };
                }
                let (call, called) = oneshot::channel();
                let of_lane = queue.waiting.entry(Arc::clone(&lane)).or_default();
                of_lane.push_back(call);
                if of_lane.len() == 1 {
                    queue.order.push_back(Arc::clone(&lane));
                }
                called
            };
            // Whoever waited and was given up leaves a closed end behind, which the next call skips.
            let handover = Handover { lanes: self, called };
            if handover.wait().await {
                // This turn was counted when it was handed over.
                let ahead = self.queue().given - came.unwrap_or_default() - 1;
                return Turn { lanes: self, lane, ahead };
            }
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the first of the lane whose turn it is.
    fn next(&self) {
        let mut queue = self.queue();
        while let Some(lane) = queue.order.pop_front() {
            let Some(of_lane) = queue.waiting.get_mut(&lane) else { continue };
            let called = of_lane.pop_front();
            if of_lane.is_empty() {
                queue.waiting.remove(&lane);
            } else {
                queue.order.push_back(lane);
            }
            if called.is_some_and(|call| call.send(()).is_ok()) {
                queue.given += 1;
                return;
            }
        }
        queue.busy = false;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lanes.next();
    }
}

/// Somebody who waits. One who is given up just when called passes the turn on.
struct Handover<'a> {
    lanes: &'a Lanes,
    called: oneshot::Receiver<()>,
}

impl Handover<'_> {
    async fn wait(mut self) -> bool {
        (&mut self.called).await.is_ok()
    }
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        // A turn that was handed over and not taken up. After `wait` the message is consumed.
        self.called.close();
        if self.called.try_recv().is_ok() {
            self.lanes.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues `waiting` in order while somebody has the turn; the names in the order in which they had theirs.
    async fn served(waiting: &[&str]) -> Vec<String> {
        let (lanes, order) = (Lanes::default(), Mutex::new(Vec::new()));
        let first = lanes.enter().await;
        let one = |name: &str| {
            let (lane, name) = (Arc::from(name.split('-').next().unwrap()), name.to_owned());
            in_lane(lane, async {
                let _turn = lanes.enter().await;
                order.lock().unwrap().push(name);
            })
        };
        let mut all: Vec<_> = waiting.iter().map(|name| Box::pin(one(name))).collect();
        for waits in &mut all {
            assert!(futures::poll!(waits).is_pending());
        }
        drop(first);
        futures::future::join_all(all).await;
        assert!(!lanes.queue().busy, "nobody is left");
        order.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_hundred_of_one_lane_are_no_hundred_ahead_of_another() {
        let mut waiting: Vec<String> = (0..100).map(|number| format!("dry-{number}")).collect();
        waiting.push("train-0".to_owned());
        let names: Vec<&str> = waiting.iter().map(String::as_str).collect();
        let served = served(&names).await;
        assert_eq!(served.len(), 101);
        assert_eq!(served[..3], ["dry-0", "train-0", "dry-1"]);
    }

    #[tokio::test]
    async fn a_turn_knows_how_many_went_before_it() {
        let lanes = Lanes::default();
        let first = lanes.enter().await;
        assert_eq!(first.ahead, 0);
        let (mut second, mut third) = (Box::pin(lanes.enter()), Box::pin(lanes.enter()));
        assert!(futures::poll!(&mut second).is_pending() && futures::poll!(&mut third).is_pending());
        drop(first);
        assert_eq!(second.await.ahead, 0);
        assert_eq!(third.await.ahead, 1);
    }

    #[tokio::test]
    async fn within_a_lane_first_come_is_first_served() {
        assert_eq!(served(&["a-1", "a-2", "b-1", "a-3", "b-2"]).await, ["a-1", "b-1", "a-2", "b-2", "a-3"]);
    }

    #[tokio::test]
    async fn who_is_given_up_while_waiting_or_just_called_holds_nobody_up() {
        let lanes = Lanes::default();
        let first = lanes.enter().await;
        let mut given_up = Box::pin(lanes.enter());
        let mut called = Box::pin(lanes.enter());
        let mut last = Box::pin(lanes.enter());
        for waits in [&mut given_up, &mut called, &mut last] {
            assert!(futures::poll!(waits).is_pending());
        }
        drop(given_up);
        drop(first);
        drop(called);
        drop(last.await);
        assert!(!lanes.queue().busy);
    }
}
