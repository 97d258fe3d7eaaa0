//! Fleets that are finished, and deleted.

use aws_sdk_ec2::operation::delete_fleets::builders::DeleteFleetsInputBuilder;
use muster_core::ec2::CallError;

use crate::Client;
use crate::convert::text;

const DELETE: &str = "DeleteFleets";
/// Instant fleets of one call: the most EC2 takes.
pub const FLEETS_AT_ONCE: usize = 25;

impl Client {
    /// Deletes instant fleets, **with all instances they launched**: EC2 deletes one no other way. The answer is the ids
    /// that were deleted; one that cannot be is no error.
    pub async fn delete_fleets(&self, ids: &[String]) -> Result<Vec<String>, CallError> {
        if ids.is_empty() || ids.len() > FLEETS_AT_ONCE {
            return Err(CallError::refused_here(
                DELETE,
                format!("{} fleets: a call has 1 to {FLEETS_AT_ONCE}", ids.len()),
            ));
        }
        let call = DeleteFleetsInputBuilder::default().set_fleet_ids(Some(ids.to_vec())).terminate_instances(true);
        let output = Box::pin(call.send_with(&self.calls)).await.map_err(|error| self.failed(DELETE, error))?;
        let mut deleted: Vec<String> =
            output.successful_fleet_deletions().iter().map(|item| text(item.fleet_id())).collect();
        deleted.sort();
        Ok(deleted)
    }
}
