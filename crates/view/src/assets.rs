//! Files of the page that no state changes. A script's address has a digest of its content, so a browser keeps it for good
//! and never runs an older one.

use sha2::{Digest as _, Sha256};

/// htmx, as its authors published it: the page polls itself with it.
pub const HTMX: &str = include_str!("../vendor/htmx-4.0.1/htmx.min.js");

/// The digest of that file; a test holds the two together.
pub const HTMX_SHA256: &str = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130";

/// How htmx behaves: it adds no style of its own and keeps no history, takes no extension, leaves alone what a person
/// opened, and shows an answer only if the server had one.
pub const HTMX_CONFIG: &str = concat!(
    r#"{"includeIndicatorCSS":false,"history":false,"extensions":"none","#,
    r#""morphIgnore":["data-htmx-powered","open"],"noSwap":[204,304,"4xx","5xx"]}"#
);

/// The script of ours: what attributes cannot state.
pub const SCRIPT: &str = include_str!("../assets/page.js");

/// The icon, which a browser asks for unprompted if the page names none.
pub const ICON: &str = include_str!("../assets/icon.svg");

/// Where [`HTMX`] is served.
#[must_use]
pub fn htmx_path() -> String {
    format!("/htmx-{}.js", digest(HTMX))
}

/// Where [`SCRIPT`] is served.
#[must_use]
pub fn script_path() -> String {
    format!("/page-{}.js", digest(SCRIPT))
}

/// Half of the SHA-256 of a text, in hexadecimal digits: what names a version of it.
#[must_use]
pub fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
