//! How Kubernetes spells label keys, label values and names; see
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set> and
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>.

/// Bytes of a label value, of a label key behind its prefix, and of a namespace's name.
const LABEL: usize = 63;
/// Bytes of a name, and of the prefix of a label key.
const SUBDOMAIN: usize = 253;

/// Empty, or at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return true };
    bytes.len() <= LABEL
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// What a label value may be, not empty, behind the name of a domain and `/` or alone. Resources and taints are named so too.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_name)
}

/// The name of an object: at most 253 lowercase letters, digits, `-` and `.`, with a letter or digit at both ends of what is between dots.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= SUBDOMAIN && text.split('.').all(is_part)
}

/// The name of a namespace: the same without dots, at most 63.
#[must_use]
pub fn is_namespace(text: &str) -> bool {
    text.len() <= LABEL && is_part(text)
}

fn is_part(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()].iter().all(|end| end.is_some_and(|byte| is_inner(*byte)));
    ends && bytes.iter().all(|byte| is_inner(*byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_short_and_begin_and_end_with_a_letter_or_digit() {
        let longest = "a".repeat(63);
        for good in ["", "a", "A.b_c-9", &longest] {
            assert!(is_label_value(good), "{good}");
        }
        let longer = "a".repeat(64);
        for bad in ["-a", "a-", ".a", "a b", "a/b", "ä", &longer] {
            assert!(!is_label_value(bad), "{bad}");
        }
    }

    #[test]
    fn label_keys_have_a_name_and_perhaps_a_domain_before_it() {
        let longest = format!("{}/{}", "a".repeat(253), "B".repeat(63));
        for good in ["a", "Team", "nvidia.com/gpu", "x-y.io/A_b", &longest] {
            assert!(is_label_key(good), "{good}");
        }
        let longer = format!("{}/a", "a".repeat(254));
        for bad in ["", "/a", "a/", "a/b/c", "UP/a", "a..b/c", "-a.b/c", "a b", "-a", &longer] {
            assert!(!is_label_key(bad), "{bad}");
        }
    }

    #[test]
    fn names_are_domains_and_namespaces_are_parts_of_one() {
        for (text, name, namespace) in
            [("a", true, true), ("a.b-9", true, false), ("", false, false), ("A", false, false), ("a-", false, false)]
        {
            assert_eq!((is_name(text), is_namespace(text)), (name, namespace), "{text}");
        }
        let (longest, long) = ("a".repeat(63), "a".repeat(64));
        assert!(is_namespace(&longest) && !is_namespace(&long) && is_name(&long));
        assert!(is_name(&"a".repeat(253)) && !is_name(&"a".repeat(254)));
    }
}
