//! The instances of others that run from the start.

use jiff::Timestamp;

use super::launch;
use super::order::{Candidate, Order, Ranking, Source};
use crate::faults::Drawn;
use crate::fixtures::InstanceType;
use crate::interfaces::InterfaceSpec;
use crate::scenario::ScenarioError;
use crate::state::World;
use crate::state::fleets::Origin;

/// Starts the instances of others that the scenario declares; they run at once.
///
/// # Errors
/// [`ScenarioError::NoCapacityForOthers`].
pub(crate) fn place_others(world: &mut World, now: Timestamp) -> Result<(), ScenarioError> {
    for other in world.scenario.others.clone() {
        let no_capacity = || ScenarioError::NoCapacityForOthers {
            instance_type: other.instance_type.clone(),
            zone: other.zone.clone(),
        };
        let Some(instance_type) = InstanceType::find(&other.instance_type) else {
            return Err(ScenarioError::UnknownType(other.instance_type.clone()));
        };
        let subnet = world.subnets.values().find(|s| s.zone == other.zone);
        let subnet = subnet.ok_or_else(no_capacity)?;
        let candidate = Candidate {
            origin: Origin {
                template: String::new(),
                version: String::new(),
                instance_type: other.instance_type.clone(),
                subnet: subnet.id.clone(),
                zone: subnet.zone.clone(),
                zone_id: subnet.zone_id.clone(),
                priority: None,
                group: None,
                image: None,
            },
            instance_type,
            priority: None,
            group: None,
            image: "ami-00000000000000000".to_owned(),
            interfaces: vec![InterfaceSpec::plain()],
            security_groups: vec![],
            user_data: None,
            ends_itself_after: None,
            source: Source::Pool,
            tags: other.tags.clone(),
            volume_tags: other.tags.clone(),
            interface_tags: other.tags.clone(),
        };
        let reservation = world.ids.resource("r");
        let outcome = launch(
            world,
            &Order {
                operation: "others",
                token: None,
                fleet: None,
                reservation: &reservation,
                total: other.count,
                minimum: Some(other.count),
                single_type: true,
                single_zone: true,
                capacity_type: other.capacity_type,
                ranking: Ranking::Given,
                candidates: vec![candidate],
                drawn: &Drawn::default(),
            },
            now,
        );
        let placed = outcome.instances();
        if placed.len() < other.count as usize {
            return Err(no_capacity());
        }
        for id in placed {
            if let Some(instance) = world.instances.get_mut(&id) {
                instance.foreign = true;
                instance.running_at = Some(now);
            }
        }
    }
    Ok(())
}
