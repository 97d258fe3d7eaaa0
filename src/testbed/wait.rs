//! Waiting for a condition with a deadline; the only place of the testbed that sleeps.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// First pause between two looks. Most conditions come true within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause between two looks, so that waiting costs the control plane little.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The condition did not come true in time.
#[derive(Debug, thiserror::Error)]
#[error("gave up after {} s waiting for {what}{}", waited.as_secs(), last.as_ref().map(|error| format!(", last error: {error}")).unwrap_or_default())]
pub struct WaitError {
    /// What was awaited.
    pub what: String,
    /// The whole deadline.
    pub waited: Duration,
    /// The error of the last look, if that failed; a condition that is merely not true yet has none.
    pub last: Option<String>,
}

/// Looks again and again until `check` answers `Some`, at most for `deadline`.
///
/// An error of `check` counts as "not yet": a control plane that starts or restarts refuses
/// connections for a while. The last one is part of the message when time runs out. A look that
/// hangs is cut off by the deadline.
///
/// # Errors
/// [`WaitError`] when the deadline passes.
pub async fn eventually<T, E, Check, Look>(
    deadline: Duration,
    what: impl Into<String>,
    mut check: Check,
) -> Result<T, WaitError>
where
    E: Display,
    Check: FnMut() -> Look,
    Look: Future<Output = Result<Option<T>, E>>,
{
    let end = Instant::now() + deadline;
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        match tokio::time::timeout_at(end, check()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => last = None,
            Ok(Err(error)) => last = Some(error.to_string()),
            Err(_cut_off) => {
                return Err(WaitError { what: what.into(), waited: deadline, last });
            }
        }
        if Instant::now() + pause >= end {
            return Err(WaitError { what: what.into(), waited: deadline, last });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_comes_true_is_returned_and_earlier_errors_are_forgiven() {
        let mut looks = 0;
        let value = eventually(Duration::from_secs(5), "the third look", || {
            looks += 1;
            let look = looks;
            async move {
                match look {
                    1 => Err("refused"),
                    2 => Ok(None),
                    later => Ok(Some(later)),
                }
            }
        })
        .await;
        assert_eq!(value.ok(), Some(3));
    }

    #[tokio::test]
    async fn a_condition_that_stays_false_names_what_was_awaited_and_the_last_error() {
        let outcome: Result<(), WaitError> =
            eventually(Duration::from_secs(2), "a node", || async { Err("connection refused") }).await;
        assert_eq!(
            outcome.expect_err("it never comes true").to_string(),
            "gave up after 2 s waiting for a node, last error: connection refused"
        );
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_cut_off_by_the_deadline() {
        let outcome: Result<(), WaitError> =
            eventually(Duration::from_secs(1), "an answer", std::future::pending::<Result<Option<()>, String>>).await;
        assert!(outcome.is_err());
    }
}
