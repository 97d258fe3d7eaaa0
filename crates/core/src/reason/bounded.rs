//! Text for a place that takes only so much.

use std::borrow::Cow;

/// Where one statement of a list ends and the next begins, from the best place to cut to the worst.
const ENDS: [&str; 4] = [". ", "; ", ", ", " "];
/// What says that there is more.
const MORE: &str = " …";

/// The text, or as many whole statements of its beginning as `most` bytes hold, with a sign that there is more. Text of one
/// statement is cut between two words.
#[must_use]
pub fn bounded(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let mut end = most.saturating_sub(MORE.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = &text[..end];
    // A cut that leaves less than half is no better than one in the middle of a statement.
    let whole = ENDS.iter().filter_map(|between| Some(kept.rfind(between)? + between.trim_end().len()));
    let end = whole.into_iter().find(|end| *end * 2 >= kept.len()).unwrap_or(kept.len());
    Cow::Owned(format!("{}{MORE}", &kept[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_short_enough_stays_as_it_is() {
        assert_eq!(bounded("one; two", 8), "one; two");
        assert_eq!(bounded("", 0), "");
    }

    #[test]
    fn whole_statements_are_kept_and_it_is_seen_that_there_are_more() {
        assert_eq!(bounded("p4d: too small; p5: too dear; p6: no price", 36), "p4d: too small; p5: too dear; …");
        assert_eq!(bounded("It is full. Nothing else fits; nowhere", 24), "It is full. …");
        assert_eq!(bounded("one statement without an end", 20), "one statement …");
        assert_eq!(bounded("ääääääääää", 11), "äää …");
    }

    #[test]
    fn what_is_cut_never_passes_the_bound() {
        let long: String =
            (0..900).map(|number| format!("NodePool p{number}: m{number}.metal is too small; ")).collect();
        for most in [10, 100, 1_024, 32_768] {
            assert!(bounded(&long, most).len() <= most, "{most}");
        }
        assert!(bounded(&long, 32_768).ends_with("; …"));
    }
}
