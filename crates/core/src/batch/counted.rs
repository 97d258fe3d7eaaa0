//! Numbers with their nouns, as people read them.

/// `1 node`, `2 nodes`.
pub(super) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    // What does not fit cannot be counted here; no plan is as large.
    let count = count.try_into().unwrap_or(u64::MAX);
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_singular_and_everything_else_is_not() {
        let shown: Vec<String> = [0_usize, 1, 2].into_iter().map(|count| super::counted(count, "node")).collect();
        assert_eq!(shown, ["0 nodes", "1 node", "2 nodes"]);
    }
}
