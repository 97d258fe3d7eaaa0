//! Every word that a person meets in a status, an event or a condition: what is seen, why it is so, and what to do. One
//! table: `muster explain reason` prints an entry, and the troubleshooting page is all of them.

mod alerts;
mod codes;
mod conditions;
mod events;
mod types;

use std::fmt::{self, Write as _};

use super::Code;

/// Where a word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// `status.waiting.reason` of a Gang, `muster explain`, `muster plan`.
    Reason,
    /// An event.
    Event,
    /// The reason of a condition.
    Condition,
    /// The type of a condition.
    Type,
    /// An alert of the shipped rules.
    Alert,
}

/// Word, where it stands, what is seen, why, what to do.
type Row = (&'static str, Of, &'static str, &'static str, &'static [&'static str]);

/// What a person is to know of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The word.
    pub word: &'static str,
    /// Where it stands.
    pub of: Of,
    /// What is seen.
    pub see: &'static str,
    /// Why it is so.
    pub why: &'static str,
    /// What to do, one step each.
    pub todo: &'static [&'static str],
}

/// The page that all entries make.
pub const PAGE: &str = "docs/reference/troubleshooting.md";

fn entry(word: &'static str, of: Of, see: &'static str, why: &'static str, todo: &'static [&'static str]) -> Entry {
    Entry { word, of, see, why, todo }
}

/// Every entry: codes, then events, reasons and types of conditions, and alerts.
pub fn entries() -> impl Iterator<Item = Entry> {
    let rows = events::EVENTS.into_iter().chain(conditions::CONDITIONS).chain(types::TYPES).chain(alerts::ALERTS);
    Code::ALL.into_iter().map(Code::guide).chain(rows.map(|(word, of, see, why, todo)| entry(word, of, see, why, todo)))
}

/// The entries of a word, in whatever case it is written: a reason may be an event's word too.
///
/// Errors: the words that are most like it.
pub fn find(word: &str) -> Result<Vec<Entry>, Vec<&'static str>> {
    let asked = word.to_ascii_lowercase();
    let found: Vec<Entry> = entries().filter(|entry| entry.word.to_ascii_lowercase() == asked).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let mut alike: Vec<(bool, usize, &'static str)> = entries()
        .map(|entry| {
            let word = entry.word.to_ascii_lowercase();
            // Who does not write a word to its end means it by its beginning.
            let beginning = word.get(..=asked.len()).unwrap_or(&word);
            let begins = !asked.is_empty() && word.starts_with(&asked);
            (!begins, distance(&asked, &word).min(distance(&asked, beginning)), entry.word)
        })
        .collect();
    alike.sort_unstable();
    alike.dedup();
    Err(alike.into_iter().map(|(.., word)| word).take(3).collect())
}

/// Letters to insert, remove or replace to make one word of the other; a word that contains the other counts as near.
fn distance(one: &str, other: &str) -> usize {
    if !one.is_empty() && other.contains(one) {
        return 1;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, against) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != against);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reason => "reason of a gang",
            Self::Event => "event",
            Self::Condition => "reason of a condition",
            Self::Type => "type of a condition",
            Self::Alert => "alert",
        })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.word, self.of)?;
        writeln!(f, "  what you see  {}", self.see)?;
        write!(f, "  why           {}", self.why)?;
        for (index, step) in self.todo.iter().enumerate() {
            let what = if index == 0 { "what to do" } else { "" };
            write!(f, "\n  {what:<12}  {step}")?;
        }
        Ok(())
    }
}

/// The troubleshooting page, as it is shipped.
#[must_use]
pub fn page() -> String {
    let mut page = "<!-- Generated from crates/core/src/reason/guide by `muster explain reason --all`; do not edit. -->\n\
                    # Troubleshooting\n\n\
                    Every word that Muster puts into a status, an event, a condition or an alert, with what you see, why it is so, and what to do. \
                    `muster explain reason WORD` prints the same.\n"
        .to_owned();
    for (of, title) in [
        (Of::Reason, "Reasons of gangs"),
        (Of::Event, "Events"),
        (Of::Condition, "Reasons of conditions"),
        (Of::Type, "Types of conditions"),
        (Of::Alert, "Alerts"),
    ] {
        let _ = write!(page, "\n## {title}\n");
        for entry in entries().filter(|entry| entry.of == of) {
            let _ = write!(page, "\n### {}\n\n**What you see.** {}\n", entry.word, entry.see);
            let _ = write!(page, "\n**Why.** {}\n\n**What to do.**\n\n", entry.why);
            for step in entry.todo {
                let _ = writeln!(page, "- {step}");
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_has_one_entry_and_no_entry_is_empty() {
        let mut words = BTreeSet::new();
        let mut places = BTreeSet::new();
        for entry in entries() {
            words.insert(entry.word);
            assert!(places.insert((entry.word, entry.of.to_string())), "{} twice", entry.word);
            assert!(!entry.see.is_empty() && !entry.why.is_empty() && !entry.todo.is_empty(), "{}", entry.word);
            for sentence in [entry.see, entry.why].iter().chain(entry.todo) {
                assert!(sentence.ends_with('.'), "{}: {sentence}", entry.word);
            }
        }
        for code in Code::ALL {
            assert!(words.contains(code.as_str()), "{code}");
        }
    }

    #[test]
    fn a_word_is_found_in_any_case_and_a_misspelt_one_names_the_one_that_is_meant() {
        assert_eq!(find("doesnotfit").map(|found| found[0].word), Ok("DoesNotFit"));
        assert_eq!(find("Terminating").map(|found| found.len()), Ok(2));
        assert_eq!(find("DoesNotFot").map_err(|alike| alike[0]), Err("DoesNotFit"));
        assert_eq!(find("price").map_err(|alike| alike[..2].to_vec()), Err(vec!["PriceUnknown", "MusterPricesStale"]));
        assert_eq!(find("Pice").map_err(|alike| alike[0]), Err("PriceUnknown"));
    }
}
