//! What a machine that never became a node wrote on its console, cut to what fits into a message.

/// So many lines are shown, and so many characters of each: cloud-init and nodeadm end with what failed, and the note of an
/// event has 1024 characters for everything.
const LINES: usize = 5;
const CHARACTERS: usize = 100;

/// The last lines with something on them, one after the other; `None` if there is none.
#[must_use]
pub fn last_lines(console: &str) -> Option<String> {
    let plain: Vec<String> = console.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let last = plain.get(plain.len().saturating_sub(LINES)..).unwrap_or_default();
    (!last.is_empty()).then(|| last.join(" | "))
}

/// A line without what steers a terminal, and no longer than fits.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut characters = line.chars().peekable();
    while let Some(one) = characters.next() {
        if one == '\u{1b}' && characters.next_if_eq(&'[').is_some() {
            // A sequence ends with its first letter.
            for inner in characters.by_ref() {
                if inner.is_ascii_alphabetic() {
                    break;
                }
            }
        } else if one == '\t' {
            text.push(' ');
        } else if !one.is_control() {
            text.push(one);
        }
    }
    let text = text.trim();
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_that_say_something_are_shown_in_one() {
        let console = "one\r\ntwo\n\n three \nfour\n\u{1b}[0;31mfive\u{1b}[0m\tred\nsix\n\n";
        assert_eq!(last_lines(console).as_deref(), Some("two | three | four | five red | six"));
        assert_eq!(last_lines("only").as_deref(), Some("only"));
        for nothing in ["", "\n \r\n", "\u{1b}[2J\u{7}"] {
            assert_eq!(last_lines(nothing), None);
        }
    }

    #[test]
    fn a_line_that_is_too_long_ends_with_an_ellipsis_and_all_of_them_fit_a_note() {
        let exact = "é".repeat(CHARACTERS);
        assert_eq!(last_lines(&exact), Some(exact.clone()));
        assert_eq!(last_lines(&format!("{exact}x")), Some(format!("{exact}…")));
        let most = last_lines(&format!("{}\n", "y".repeat(300)).repeat(50));
        assert_eq!(most.map(|text| text.chars().count()), Some(LINES * (CHARACTERS + 1) + (LINES - 1) * 3));
    }
}
