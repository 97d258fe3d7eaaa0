//! MD5 (RFC 1321), which SQS puts beside every message's body.

/// The digest in lower-case hexadecimal digits.
pub(crate) fn hex(text: &[u8]) -> String {
    digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

fn digest(text: &[u8]) -> [u8; 16] {
    let mut padded = text.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    let bits = u64::try_from(text.len()).unwrap_or(u64::MAX).wrapping_mul(8);
    padded.extend(bits.to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for chunk in padded.chunks_exact(64) {
        let words: Vec<u32> = chunk
            .chunks_exact(4)
            .map(|b| u32::from(b[0]) | u32::from(b[1]) << 8 | u32::from(b[2]) << 16 | u32::from(b[3]) << 24)
            .collect();
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64usize {
            let (mixed, word) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), (7 * step) % 16),
            };
            let turned = a
                .wrapping_add(mixed)
                .wrapping_add(constant(step))
                .wrapping_add(words[word])
                .rotate_left(SHIFTS[step / 16][step % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

/// The whole part of 2³² times |sin(step + 1)|.
fn constant(step: usize) -> u32 {
    let angle = f64::from(u32::try_from(step + 1).unwrap_or(0));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2³², floor is meant")]
    let constant = (angle.sin().abs() * 4_294_967_296.0) as u32;
    constant
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn the_digests_are_those_of_the_standard() {
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(text.as_bytes()), digest);
        }
    }
}
