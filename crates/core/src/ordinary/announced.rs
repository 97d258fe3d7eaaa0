//! Which refusals are worth an event: a crowd of pods that wait for the same needs no event each, and a text in which only an amount
//! has changed is no news.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::round::{Cause, Refusal};
use crate::model::names::PodUid;

/// Between two events that differ in nothing but amounts to pods of one maker, or to one pod that nobody made.
const EVERY: SignedDuration = SignedDuration::from_secs(60);
/// Events of one round.
const MOST: usize = 20;

/// What pods for which there is nothing have been notified of.
#[derive(Debug, Default)]
pub struct Announced {
    /// When there was last such an event.
    last: BTreeMap<Like, Timestamp>,
    /// The last text of each pod that still waits.
    texts: BTreeMap<PodUid, Arc<str>>,
}

/// Events that are alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Like {
    maker: Arc<str>,
    cause: Cause,
    /// The text without its amounts.
    text: String,
}

impl Announced {
    /// The refusals that get an event, of all that there are now. `maker`: UID of whoever made a pod, of which its like are many.
    pub fn choose<'a>(
        &mut self,
        refused: &'a [Refusal],
        maker: impl Fn(&PodUid) -> Option<Arc<str>>,
        now: Timestamp,
    ) -> Vec<&'a Refusal> {
        self.last.retain(|_, at| now.duration_since(*at) < EVERY);
        let mut before = std::mem::take(&mut self.texts);
        let mut chosen = Vec::new();
        for one in refused {
            let text = before.remove(&one.pod);
            if text.as_ref() != Some(&one.why) && chosen.len() < MOST {
                let maker = maker(&one.pod).unwrap_or_else(|| one.pod.as_str().into());
                let text = one.why.chars().filter(|one| !one.is_ascii_digit()).collect();
                if let std::collections::btree_map::Entry::Vacant(free) =
                    self.last.entry(Like { maker, cause: one.cause, text })
                {
                    free.insert(now);
                    self.texts.insert(one.pod.clone(), Arc::clone(&one.why));
                    chosen.push(one);
                    continue;
                }
            }
            self.texts.extend(text.map(|text| (one.pod.clone(), text)));
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn refusal(pod: usize, why: &str) -> Refusal {
        Refusal { pod: PodUid::from(format!("p-{pod:05}")), cause: Cause::NoOfferFits, why: why.into() }
    }

    fn of_one(_: &PodUid) -> Option<Arc<str>> {
        Some("deployment".into())
    }

    #[test]
    fn a_crowd_that_fits_nowhere_gets_one_event_a_minute_whatever_amounts_its_texts_contain() {
        let mut announced = Announced::default();
        let mut events = Vec::new();
        for second in 0..300 {
            let why = format!("needs {second} Gi more");
            let refused: Vec<Refusal> = (0..10_000).map(|pod| refusal(pod, &why)).collect();
            let chosen = announced.choose(&refused, of_one, at(second));
            events.extend(chosen.iter().map(|_| second));
        }
        assert_eq!(events, [0, 60, 120, 180, 240]);
    }

    #[test]
    fn a_pod_that_nobody_else_is_like_has_its_own_event_and_the_same_text_is_not_repeated() {
        let mut announced = Announced::default();
        let refused: Vec<Refusal> = (0..30).map(|pod| refusal(pod, "no pool")).collect();
        let count = |announced: &mut Announced, second| announced.choose(&refused, |_| None, at(second)).len();
        assert_eq!([0, 1, 2, 100].map(|second| count(&mut announced, second)), [20, 10, 0, 0]);
        let other = [refusal(3, "too dear")];
        assert_eq!(announced.choose(&other, |_| None, at(101)), [&other[0]]);
        // It had a place in between, and lost it.
        assert!(announced.choose(&[], |_| None, at(102)).is_empty());
        assert!(announced.choose(&other, |_| None, at(103)).is_empty(), "a moment ago");
        assert_eq!(announced.choose(&other, |_| None, at(200)).len(), 1);
    }

    #[test]
    fn another_text_is_news_at_once() {
        let mut announced = Announced::default();
        let of = |why: &str| Refusal { cause: Cause::SchedulerRefused, ..refusal(1, why) };
        let texts = [
            "1 launch was not used",
            "one node is tried alone",
            "2 launches were not used",
            "3 launches were not used",
        ];
        let counts = texts.map(|why| announced.choose(&[of(why)], of_one, at(0)).len());
        assert_eq!(counts, [1, 1, 1, 0]);
    }

    #[test]
    fn another_cause_is_news() {
        let mut announced = Announced::default();
        let refused = [refusal(1, "no pool"), Refusal { cause: Cause::SchedulerRefused, ..refusal(2, "not used") }];
        assert_eq!(announced.choose(&refused, of_one, at(0)).len(), 2);
    }
}
