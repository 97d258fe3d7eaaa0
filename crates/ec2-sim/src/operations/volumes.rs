//! DescribeVolumes: the root volumes of the instances.

use crate::operations::filters::{Filters, page};
use crate::operations::{Call, Reply, instances};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::instances::{Instance, LifeState};

pub(super) fn describe(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let known = ["attachment.instance-id", "availability-zone", "status", "volume-id"];
    let filters = Filters::parse(call.form, &known)?;
    let ids = call.form.list("VolumeId");
    let now = call.read_at();
    // A root volume is deleted with its instance.
    let all = || {
        world
            .instances
            .values()
            .filter(|i| instances::described(world, i, now) && i.state(now) != LifeState::Terminated)
            .map(|i| (volume_id(i), i))
    };
    if let Some(id) = ids.iter().find(|id| !all().any(|(volume, _)| volume == **id)) {
        return Err(ApiError::client("InvalidVolume.NotFound", format!("The volume '{id}' does not exist.")));
    }
    let found: Vec<(String, &Instance)> = all()
        .filter(|(volume, _)| ids.is_empty() || ids.contains(volume))
        .filter(|(volume, i)| {
            filters.pass(&i.volume_tags, |filter| match filter {
                "attachment.instance-id" => Some(&i.id),
                "availability-zone" => Some(&i.zone),
                "status" => Some("in-use"),
                "volume-id" => Some(volume),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 5..=1000, None)?;
    let mut xml = Xml::new();
    xml.list("volumeSet", found, |xml, (volume, i)| {
        xml.text("volumeId", &volume);
        xml.text("status", "in-use");
        xml.text("availabilityZone", &i.zone);
        xml.time("createTime", i.launched_at);
        xml.list("attachmentSet", [i], |xml, i| {
            xml.text("volumeId", &volume);
            xml.text("instanceId", &i.id);
            xml.text("status", "attached");
            xml.flag("deleteOnTermination", true);
        });
        xml.tags(&i.volume_tags);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

/// The root volume's id follows from the instance's.
pub(super) fn volume_id(instance: &Instance) -> String {
    instance.id.replacen("i-", "vol-", 1)
}
