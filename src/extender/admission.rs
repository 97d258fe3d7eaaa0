//! How much callers may ask at once: sizes, times and numbers.
//!
//! Overload is shed with an answer, never by queueing: kube-scheduler's loop waits for every pod's `filter`. A bind is
//! never shed, since the barrier needs every member; its body is small and its number is that of the members.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use futures::StreamExt;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of filter, prioritize and preempt: 5,000 names are about 150 KB, a pod 5–15 KB.
    pub body: usize,
    /// Largest body of bind: four names.
    pub bind_body: usize,
    /// A body must have arrived within this time. Half of stanza A's timeout: an answer is still read then.
    pub within: Duration,
    /// Bodies that arrive at once, bind's aside.
    pub reading: usize,
    /// Calls that are answered at once, bind's aside. One kube-scheduler asks for one pod at a time.
    pub answering: usize,
    /// Bytes of bodies held at once, bind's aside.
    pub bytes: usize,
    /// Members without a gate that are asked to wait at once, without a pause.
    pub waiting_burst: NonZeroU32,
    /// One more of them each.
    pub waiting_every: Duration,
}

/// How long the answer to a member that waits is held back while such calls come faster than the limits say.
///
/// kube-scheduler asks about a rejected pod again as soon as anything changes on any bound pod, and pays no heed to the
/// back-off while it has nothing else to do (`SchedulerPopFromBackoffQ`): it would spend a whole core on asking. The pause
/// is what a pod that comes meanwhile waits at most. Decision 0013.
const PAUSE: Duration = Duration::from_millis(10);

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 16 << 20,
            bind_body: 64 << 10,
            within: Duration::from_secs(1),
            reading: 4096,
            answering: 64,
            bytes: 256 << 20,
            waiting_burst: NonZeroU32::new(1_000).unwrap_or(NonZeroU32::MIN),
            waiting_every: Duration::from_millis(20),
        }
    }
}

/// Why a call is not answered on its merits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Shed {
    /// Too many calls.
    #[error("muster is overloaded, try again")]
    Overloaded,
    /// Too many bytes.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// Too slow.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// The connection broke.
    #[error("the body broke off")]
    BrokenOff,
}

/// A body that was let in; the place is free again when it is dropped.
#[derive(Debug)]
pub struct Admitted {
    /// The bytes.
    pub body: Vec<u8>,
    _answering: Option<OwnedSemaphorePermit>,
    _held: Held,
}

/// Counts what is under way.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    reading: Semaphore,
    answering: Arc<Semaphore>,
    bytes: Arc<AtomicUsize>,
    waiting: DefaultDirectRateLimiter,
}

/// Bytes of one body among those held at once.
#[derive(Debug)]
struct Held {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

impl Admission {
    /// Nothing under way.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let quota = Quota::with_period(limits.waiting_every).unwrap_or_else(|| Quota::per_second(NonZeroU32::MAX));
        Self {
            waiting: RateLimiter::direct(quota.allow_burst(limits.waiting_burst)),
            limits,
            reading: Semaphore::new(limits.reading),
            answering: Arc::new(Semaphore::new(limits.answering)),
            bytes: Arc::default(),
        }
    }

    /// Reads the body of filter, prioritize or preempt, and takes a place among the calls being answered.
    ///
    /// Errors: the limit that is reached.
    pub async fn enter(&self, body: Body) -> Result<Admitted, Shed> {
        let Ok(_reading) = self.reading.try_acquire() else { return Err(Shed::Overloaded) };
        let (body, held) = self.collect(body, self.limits.body, self.limits.bytes).await?;
        let Ok(answering) = Arc::clone(&self.answering).try_acquire_owned() else { return Err(Shed::Overloaded) };
        Ok(Admitted { body, _answering: Some(answering), _held: held })
    }

    /// Reads the body of bind. It waits for nobody and is never shed.
    ///
    /// Errors: the body is too large, too slow or broken off.
    pub async fn enter_bind(&self, body: Body) -> Result<Admitted, Shed> {
        let (body, held) = self.collect(body, self.limits.bind_body, usize::MAX).await?;
        Ok(Admitted { body, _answering: None, _held: held })
    }

    /// How long the answer to a member that only waits is to be held back.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        self.waiting.check().is_err().then_some(PAUSE)
    }

    async fn collect(&self, body: Body, limit: usize, held: usize) -> Result<(Vec<u8>, Held), Shed> {
        match tokio::time::timeout(self.limits.within, self.gather(body, limit, held)).await {
            Ok(result) => result,
            Err(_) => Err(Shed::TooSlow),
        }
    }

    async fn gather(&self, body: Body, limit: usize, most: usize) -> Result<(Vec<u8>, Held), Shed> {
        /// What is claimed ahead is not trusted beyond this.
        const AHEAD: u64 = 256 << 10;
        let claimed = body.size_hint().lower().min(AHEAD);
        let mut bytes = Vec::with_capacity(usize::try_from(claimed).unwrap_or(0));
        let mut held = Held { all: Arc::clone(&self.bytes), own: 0 };
        let mut shed = None;
        let mut seen = 0_usize;
        let mut stream = body.into_data_stream();
        while let Some(chunk) = stream.next().await {
            let Ok(chunk) = chunk else { return Err(Shed::BrokenOff) };
            seen = seen.saturating_add(chunk.len());
            if seen > limit {
                shed = Some(Shed::TooLarge { limit });
            }
            if shed.is_none() {
                let before = self.bytes.fetch_add(chunk.len(), Ordering::Relaxed);
                held.own += chunk.len();
                if before.saturating_add(chunk.len()) > most {
                    shed = Some(Shed::Overloaded);
                }
            }
            match &shed {
                None => bytes.extend_from_slice(&chunk),
                // The rest is thrown away, so that the caller is there for the answer; a caller that never ends is not.
                Some(_) => {
                    bytes = Vec::new();
                    held = Held { all: Arc::clone(&self.bytes), own: 0 };
                    if seen > limit.saturating_mul(8) {
                        break;
                    }
                }
            }
        }
        match shed {
            None => Ok((bytes, held)),
            Some(shed) => Err(shed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(limits: Limits) -> Admission {
        Admission::new(limits)
    }

    fn endless() -> Body {
        Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>())
    }

    #[tokio::test]
    async fn a_call_beyond_the_number_answered_at_once_is_shed_and_a_bind_is_not() {
        let admission = admission(Limits { answering: 1, ..Limits::default() });
        let first = admission.enter(Body::from("{}")).await.unwrap();
        assert_eq!(admission.enter(Body::from("{}")).await.unwrap_err(), Shed::Overloaded);
        assert_eq!(admission.enter_bind(Body::from("{}")).await.unwrap().body, b"{}");
        drop(first);
        assert_eq!(admission.enter(Body::from("{}")).await.unwrap().body, b"{}");
    }

    #[tokio::test]
    async fn a_body_that_never_arrives_ends_in_time_and_gives_its_place_back() {
        let admission = admission(Limits { reading: 1, within: Duration::from_millis(50), ..Limits::default() });
        let (slow, other) = tokio::join!(admission.enter(endless()), admission.enter(Body::from("{}")));
        assert_eq!(slow.unwrap_err(), Shed::TooSlow);
        assert_eq!(other.unwrap_err(), Shed::Overloaded);
        assert!(admission.enter(Body::from("{}")).await.is_ok());
    }

    #[test]
    fn members_that_wait_are_held_back_beyond_the_burst() {
        let burst = NonZeroU32::new(3).unwrap();
        let admission =
            admission(Limits { waiting_burst: burst, waiting_every: Duration::from_secs(3600), ..Limits::default() });
        let paused: Vec<bool> = (0..5).map(|_| admission.pause().is_some()).collect();
        assert_eq!(paused, [false, false, false, true, true]);
    }

    #[tokio::test]
    async fn bodies_of_the_usual_limits_never_hold_more_than_256_mebibytes_together() {
        let admission = admission(Limits { within: Duration::from_secs(60), ..Limits::default() });
        let largest = || Body::from(vec![b' '; 16 << 20]);
        let mut held = Vec::new();
        let shed = loop {
            match admission.enter(largest()).await {
                Ok(admitted) => held.push(admitted),
                Err(shed) => break shed,
            }
        };
        assert_eq!((shed, held.len()), (Shed::Overloaded, 16));
        assert_eq!(admission.bytes.load(Ordering::Relaxed), 256 << 20);
    }

    #[tokio::test]
    async fn bytes_beyond_the_limit_are_refused_and_bytes_of_all_together_too() {
        let admission = admission(Limits { body: 8, bytes: 12, ..Limits::default() });
        assert_eq!(admission.enter(Body::from("123456789")).await.unwrap_err(), Shed::TooLarge { limit: 8 });
        let first = admission.enter(Body::from("12345678")).await.unwrap();
        assert_eq!(admission.enter(Body::from("12345678")).await.unwrap_err(), Shed::Overloaded);
        drop(first);
        assert!(admission.enter(Body::from("12345678")).await.is_ok());
        assert_eq!(admission.bytes.load(Ordering::Relaxed), 0, "nothing is held any more");
    }
}
