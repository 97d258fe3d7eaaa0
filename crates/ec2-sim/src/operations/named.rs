//! What parameters of several calls name.

use crate::fixtures::InstanceType;
use crate::protocol::error::ApiError;
use crate::state::World;
use crate::state::subnets::SubnetState;

/// # Errors
/// `InvalidParameterValue` for a token that is too long or not ASCII.
pub(super) fn check_token(token: &str) -> Result<(), ApiError> {
    if token.len() > 64 || !token.is_ascii() {
        return Err(ApiError::value("ClientToken", token));
    }
    Ok(())
}

/// # Errors
/// `InvalidInstanceType`.
pub(super) fn find_type(name: &str) -> Result<&'static InstanceType, ApiError> {
    InstanceType::find(name).ok_or_else(|| {
        ApiError::client("InvalidInstanceType", format!("The following supplied instance types do not exist: [{name}]"))
    })
}

/// # Errors
/// `InvalidSubnetID.NotFound`.
pub(super) fn find_subnet<'a>(world: &'a World, id: &str) -> Result<&'a SubnetState, ApiError> {
    world
        .subnets
        .get(id)
        .ok_or_else(|| ApiError::client("InvalidSubnetID.NotFound", format!("The subnet ID '{id}' does not exist")))
}
