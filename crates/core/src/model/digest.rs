//! Digests over fields, independent of any serialisation format.

use sha2::{Digest, Sha256};

use super::tags::Tags;

/// Collects fields, each with its length, so that no two different lists of fields give the same bytes.
#[derive(Clone, Debug)]
pub(crate) struct Fields(Sha256);

impl Fields {
    /// Starts with the name and version of what is hashed.
    pub(crate) fn new(domain: &str) -> Self {
        Self(Sha256::new()).text(domain)
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self = self.number(text.len() as u64);
        self.0.update(text.as_bytes());
        self
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.0.update(number.to_be_bytes());
        self
    }

    pub(crate) fn optional(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.number(1).text(text),
            None => self.number(0),
        }
    }

    pub(crate) fn texts<'a>(self, texts: impl ExactSizeIterator<Item = &'a String>) -> Self {
        let count = self.number(texts.len() as u64);
        texts.fold(count, |fields, text| fields.text(text))
    }

    pub(crate) fn map(self, map: &Tags) -> Self {
        let count = self.number(map.len() as u64);
        map.iter().fold(count, |fields, (key, value)| fields.text(key).text(value))
    }

    /// SHA-256 in lower-case base32 without padding: 52 characters.
    pub(crate) fn finish(self) -> String {
        base32(&self.0.finalize())
    }
}

/// RFC 4648 base32 in lower case, without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: [u8; 32] = *b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut pending, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        pending = (pending << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[((pending >> bits) & 31) as usize]));
        }
        pending &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[((pending << (5 - bits)) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_agrees_with_the_vectors_of_rfc_4648() {
        let vectors =
            [("", ""), ("f", "my"), ("fo", "mzxq"), ("foo", "mzxw6"), ("foob", "mzxw6yq"), ("fooba", "mzxw6ytb")];
        for (plain, encoded) in vectors {
            assert_eq!(base32(plain.as_bytes()), encoded);
        }
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
    }

    #[test]
    fn a_digest_has_52_characters_and_keeps_fields_apart() {
        let one = Fields::new("t").text("ab").text("c").finish();
        let other = Fields::new("t").text("a").text("bc").finish();
        assert_eq!(one.len(), 52);
        assert_ne!(one, other);
        assert_ne!(Fields::new("t").optional(None).finish(), Fields::new("t").optional(Some("")).finish());
    }
}
