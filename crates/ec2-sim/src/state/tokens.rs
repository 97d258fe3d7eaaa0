//! Client tokens and what was answered to them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::clock::{later, seconds};

/// What a token was used for first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenUse {
    pub(crate) parameters: BTreeMap<String, String>,
    /// The id of what the call made: a fleet, a reservation or a launch template.
    pub(crate) made: String,
    pub(crate) at: Timestamp,
}

/// The store, by operation, scope (a zone, or empty for the Region) and token.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<(String, String, String), TokenUse>);

impl Tokens {
    /// The first use of a token which is not forgotten yet.
    pub(crate) fn find(
        &self,
        operation: &str,
        scope: &str,
        token: &str,
        life_seconds: Option<u32>,
        now: Timestamp,
    ) -> Option<&TokenUse> {
        self.0
            .get(&(operation.to_owned(), scope.to_owned(), token.to_owned()))
            .filter(|used| life_seconds.is_none_or(|life| now < later(used.at, seconds(f64::from(life)))))
    }

    pub(crate) fn store(&mut self, operation: &str, scope: &str, token: &str, used: TokenUse) {
        self.0.insert((operation.to_owned(), scope.to_owned(), token.to_owned()), used);
    }
}
