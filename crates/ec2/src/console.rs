//! What an instance wrote on its console.

use aws_sdk_ec2::operation::get_console_output::builders::GetConsoleOutputInputBuilder;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_core::ec2::CallError;
use muster_core::model::names::InstanceId;

use crate::Client;

const OPERATION: &str = "GetConsoleOutput";
/// Only instances on Nitro show what is written just now.
const UNSUPPORTED: &str = "UnsupportedOperation";

impl Client {
    /// What an instance has written on its console, as text; empty if nothing yet. The newest where the type has that, else what
    /// EC2 kept of its last start.
    pub async fn console_output(&self, id: &InstanceId) -> Result<String, CallError> {
        let mut turns = self.turns(OPERATION);
        for latest in [true, false] {
            turns.next().await;
            let request = GetConsoleOutputInputBuilder::default().instance_id(id.as_str()).latest(latest);
            match Box::pin(request.send_with(&self.calls)).await.map_err(|error| self.failed(OPERATION, error)) {
                Ok(output) => return Ok(text(output.output().unwrap_or_default())),
                Err(error) if latest && error.code.as_deref() == Some(UNSUPPORTED) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(String::new())
    }
}

/// Base64 as text; what is neither is shown as far as it can be.
fn text(output: &str) -> String {
    let whole: String = output.split_whitespace().collect();
    STANDARD.decode(whole).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_read_from_base64_in_lines() {
        assert_eq!(text("bG9n\naW46\n"), "login:");
        assert_eq!(text("/w=="), "\u{fffd}");
        assert_eq!(text("no base64!"), "");
        assert_eq!(text(""), "");
    }
}
