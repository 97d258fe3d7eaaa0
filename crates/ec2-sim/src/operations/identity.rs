//! STS GetCallerIdentity.

use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;

pub(super) fn caller(world: &mut World, _: &Call<'_>) -> Result<Reply, ApiError> {
    let mut xml = Xml::new();
    xml.text("UserId", "AROAMUSTERSIMULATED00:simulated");
    xml.text("Account", &world.scenario.account);
    xml.text("Arn", &world.creator());
    Ok(Reply::of(xml))
}
