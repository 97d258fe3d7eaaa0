//! Standard output and standard error of commands.

use std::fmt::Display;
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

/// Writes a line for a person to standard error. Where nobody can read it the command goes on, and its exit code is what it was.
pub fn report(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "muster: {line}");
}
