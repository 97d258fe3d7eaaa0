//! Standard output of commands.

use std::io::{self, Write as _};

/// Writes a text. A reader that has seen enough, such as `head`, is no failure.
///
/// # Errors
/// All others, such as a full disk.
pub fn write(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
