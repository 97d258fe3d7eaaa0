//! Arguments that cannot be used.

use clap::error::{ContextKind, ContextValue};

/// What is wrong, what was probably meant, and where to read on.
#[must_use]
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n");
    let first = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
    let mut line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    if let Some(meant) = suggested.into_iter().find_map(|kind| error.get(kind)) {
        let meant = match meant {
            // The likest comes last.
            ContextValue::Strings(all) => all.last().cloned().unwrap_or_default(),
            other => other.to_string(),
        };
        line = format!("{line}; did you mean {meant}?");
    } else {
        line.push_str("; --help has what there is");
    }
    line
}
