//! What the shapes of a gang are: accelerators they ask for, two of which one leads, or a mix of more.

use rustc_hash::FxHashSet;

use crate::model::pod::Shape;
use crate::model::resources::DEVICE_CLASS;
use crate::planner::plan::GangRequest;

/// Shapes of one gang at most: weights and counts grow with them.
pub(super) const MOST_SHAPES: usize = 16;

/// Leaders that are planned exactly; with more the tables grow by their square.
pub(super) const MOST_LEADERS: usize = 2;

/// The two shapes of a gang.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'p> {
    pub(super) leader: &'p Shape,
    pub(super) worker: &'p Shape,
}

impl<'p> Pair<'p> {
    /// The gang's two shapes, if it is one of workers beside one or two leaders that must all start, with no topology request but
    /// levels.
    pub(super) fn of(gang: &'p GangRequest) -> Option<Self> {
        let shapes: FxHashSet<&Shape> =
            gang.roles.iter().filter(|role| !role.places.is_empty()).map(|r| &r.shape).collect();
        let topology_requests = &gang.topology_requests;
        let plain = topology_requests.slices.is_empty()
            && topology_requests.exclusive.is_none()
            && topology_requests.balance.is_none();
        // The count of pods that stand in a shape's way is kept for one shape only.
        if shapes.len() != 2 || !plain || shapes.iter().any(|shape| shape.one_per_node) {
            return None;
        }
        let members = |shape: &Shape| -> usize {
            gang.roles.iter().filter(|role| role.shape == *shape).map(|role| role.places.len()).sum()
        };
        let fixed = |shape: &Shape| {
            let mut roles = gang.roles.iter().filter(|role| role.shape == *shape);
            roles.all(|role| role.min as usize == role.places.len())
        };
        // In role order, so that the choice depends on nothing else.
        let leader = gang.roles.iter().filter(|role| !role.places.is_empty()).map(|role| &role.shape);
        let mut leader = leader.filter(|shape| members(shape) <= MOST_LEADERS && fixed(shape));
        let leader = leader.next()?;
        let worker = shapes.into_iter().find(|shape| *shape != leader)?;
        Some(Self { leader, worker })
    }
}

/// Whether the gang is one to place as a mix of shapes, given that it has several shapes and is no pair.
pub(super) fn may_mix(gang: &GangRequest, shapes: usize) -> bool {
    let topology_requests = &gang.topology_requests;
    shapes <= MOST_SHAPES
        && topology_requests.slices.is_empty()
        && topology_requests.exclusive.is_none()
        && topology_requests.balance.is_none()
}

/// The extended resources a shape requests, by Kubernetes' rule: a qualified name outside `kubernetes.io`; and devices by
/// their DeviceClass.
pub(super) fn accelerators(shape: &Shape) -> impl Iterator<Item = &str> {
    let names = shape.requests.iter().filter(|(_, amount)| *amount > 0).map(|(name, _)| name.as_str());
    names.filter(|name| is_accelerator(name))
}

/// Whether a resource counts as one.
pub(super) fn is_accelerator(name: &str) -> bool {
    let extended = name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.");
    extended || name.starts_with(DEVICE_CLASS)
}
