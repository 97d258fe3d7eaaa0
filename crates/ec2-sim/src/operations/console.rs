//! GetConsoleOutput: what a machine writes while it starts, and whether its node registers.

use base64::Engine as _;

use crate::operations::{Call, Reply, instances};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::instances::Instance;

pub(super) fn output(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let id = call.form.required("InstanceId")?.to_owned();
    call.form.flag("Latest")?;
    instances::check_ids(world, std::slice::from_ref(&id), call.now)?;
    let mut xml = Xml::new();
    xml.text("instanceId", &id);
    xml.time("timestamp", call.now);
    if let Some(text) = world.instances.get(&id).and_then(|instance| text(instance, call)) {
        xml.text("output", &base64::engine::general_purpose::STANDARD.encode(text));
    }
    Ok(Reply::of(xml))
}

/// Nothing before it runs.
fn text(instance: &Instance, call: &Call<'_>) -> Option<String> {
    instance.running_at.filter(|at| *at <= call.now)?;
    let name = &instance.private_dns;
    let node = if instance.registers_at.is_some_and(|at| at <= call.now) {
        format!("kubelet: Successfully registered node {name}")
    } else {
        format!("kubelet: Unable to register node {name} with API server")
    };
    Some(format!(
        "[    0.000000] Linux version 6.12 (simulated)\r\n\u{1b}[0;32mcloud-init\u{1b}[0m: finished\r\n{node}\r\n{name} login: "
    ))
}
