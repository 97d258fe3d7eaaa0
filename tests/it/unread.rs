//! Commands whose standard error nobody reads.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

#[test]
fn a_command_ends_with_its_exit_code_where_standard_error_cannot_be_written() {
    for (arguments, code) in [
        (["plan", "--filename", "/nowhere"], 2),
        (["replay", "--from", "/nowhere"], 2),
        (["serve", "--config", "/nowhere"], 2),
        (["plan", "--no-such-flag", "x"], 2),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        let status = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
