//! Colours of the page: Okabe and Ito's for gangs, and those of text and background in light and dark. A test holds their
//! contrasts.

/// A colour, red, green and blue.
pub type Rgb = (u8, u8, u8);

/// Fill of a gang's cells, and of the letters on it.
pub const GANGS: [(Rgb, Rgb); 7] = [
    ((0xe6, 0x9f, 0x00), BLACK),
    ((0x56, 0xb4, 0xe9), BLACK),
    ((0x00, 0x9e, 0x73), BLACK),
    ((0xf0, 0xe4, 0x42), BLACK),
    ((0x00, 0x72, 0xb2), WHITE),
    ((0xd5, 0x5e, 0x00), BLACK),
    ((0xcc, 0x79, 0xa7), BLACK),
];

const BLACK: Rgb = (0, 0, 0);
const WHITE: Rgb = (0xff, 0xff, 0xff);

/// Colours of one scheme.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// Behind everything.
    pub background: Rgb,
    /// Text.
    pub text: Rgb,
    /// Text that matters less.
    pub muted: Rgb,
    /// Links.
    pub link: Rgb,
    /// Borders of cells and tables.
    pub line: Rgb,
    /// Cells of no gang.
    pub cell: Rgb,
}

/// On paper.
pub const LIGHT: Scheme = Scheme {
    background: WHITE,
    text: (0x1a, 0x1a, 0x1a),
    muted: (0x55, 0x55, 0x55),
    link: (0x0b, 0x54, 0x9e),
    line: (0x6a, 0x6a, 0x6a),
    cell: (0xf4, 0xf4, 0xf4),
};

/// At night.
pub const DARK: Scheme = Scheme {
    background: (0x16, 0x18, 0x1c),
    text: (0xec, 0xec, 0xec),
    muted: (0xb4, 0xb4, 0xb4),
    link: (0x8c, 0xc4, 0xff),
    line: (0x9a, 0x9a, 0x9a),
    cell: (0x26, 0x29, 0x2f),
};

/// As CSS writes it.
#[must_use]
pub fn css((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2's contrast.
    fn contrast(one: Rgb, other: Rgb) -> f64 {
        let part = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        let light = |(red, green, blue): Rgb| 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
        let (one, other) = (light(one) + 0.05, light(other) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn text_has_a_contrast_of_four_and_a_half_and_shapes_one_of_three() {
        for scheme in [LIGHT, DARK] {
            for text in [scheme.text, scheme.muted, scheme.link] {
                assert!(contrast(text, scheme.background) >= 4.5, "{text:?}");
            }
            assert!(contrast(scheme.text, scheme.cell) >= 4.5);
            assert!(contrast(scheme.line, scheme.background) >= 3.0);
        }
        for (fill, letters) in GANGS {
            assert!(contrast(fill, letters) >= 4.5, "{fill:?}: {}", contrast(fill, letters));
        }
    }
}
