//! Who may call the API server at once: so many calls, and of one gang no more than that, however long each takes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_core::model::names::ObjectKey;
use tokio::sync::Semaphore;

/// A call that takes longer than this no longer keeps others from theirs: with a webhook that hangs for one namespace nearly all
/// calls there take as long as they may, and those of other gangs take milliseconds. Its gang waits for it all the same, so that
/// the calls that hang stay few.
const SLOW: Duration = Duration::from_secs(1);

/// Permits for calls.
#[derive(Debug)]
pub(super) struct Share {
    parallel: usize,
    all: Semaphore,
    /// Of gangs with calls under way, or that wait for their turn.
    gangs: Mutex<BTreeMap<ObjectKey, Arc<Semaphore>>>,
}

impl Share {
    /// So many calls at once.
    pub(super) fn new(parallel: usize) -> Self {
        let parallel = parallel.max(1);
        Self { parallel, all: Semaphore::new(parallel), gangs: Mutex::default() }
    }

    /// Makes a call of a gang once it is its turn. Before, there is nothing of it but what it is made of: a call takes kilobytes while it
    /// is made, and in a large cluster tens of thousands wait.
    pub(super) async fn call<T, F: Future<Output = T>>(&self, gang: &ObjectKey, call: impl FnOnce() -> F) -> T {
        // First its own, so that those of a gang that hang are not in the queue of all.
        let own = self.of_gang(gang);
        let _own = own.acquire().await;
        let permit = self.all.acquire().await;
        let mut call = Box::pin(call());
        match tokio::time::timeout(SLOW, call.as_mut()).await {
            Ok(done) => done,
            Err(_slow) => {
                drop(permit);
                call.await
            }
        }
    }

    fn of_gang(&self, gang: &ObjectKey) -> Arc<Semaphore> {
        // A panic while the lock was held cannot leave the map half changed: every change is one call.
        let mut gangs = self.gangs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = gangs.get(gang) {
            return Arc::clone(own);
        }
        gangs.retain(|_, own| Arc::strong_count(own) > 1);
        let own = Arc::new(Semaphore::new(self.parallel));
        gangs.insert(gang.clone(), Arc::clone(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn a_call_that_waits_for_its_turn_takes_less_than_a_kilobyte_however_much_it_takes_once_it_is_made() {
        let (share, gang) = (Share::new(1), ObjectKey::new("ns", "g"));
        let large = async || {
            let buffer = [1_u8; 16 << 10];
            pending::<()>().await;
            buffer.len()
        };
        assert!(size_of_val(&large()) > 16 << 10, "it is large");
        let waits = share.call(&gang, large);
        assert!(size_of_val(&waits) < 1 << 10, "{} bytes", size_of_val(&waits));
    }

    #[tokio::test]
    async fn calls_of_one_gang_that_never_end_keep_no_other_gang_from_its_calls_and_stay_few() {
        let share = Arc::new(Share::new(2));
        let begun = Arc::new(Mutex::new(0));
        for _ in 0..8 {
            let (share, begun) = (Arc::clone(&share), Arc::clone(&begun));
            tokio::spawn(async move {
                let hangs = async {
                    *begun.lock().unwrap() += 1;
                    pending::<()>().await
                };
                share.call(&ObjectKey::new("ns", "stuck"), || hangs).await
            });
        }
        while *begun.lock().unwrap() < 2 {
            tokio::task::yield_now().await;
        }
        for name in ["one", "other"] {
            assert_eq!(share.call(&ObjectKey::new("ns", name), async || name).await, name);
        }
        assert_eq!(*begun.lock().unwrap(), 2, "as many as may be made at once");
        assert_eq!(share.gangs.lock().unwrap().len(), 2, "gangs without calls are forgotten");
    }
}
