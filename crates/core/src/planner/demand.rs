//! What a gang asks for: one shape, how many members at least and at most, and what is fixed already.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::shapes::{Pair, accelerators, may_mix};
use crate::model::names::NodeName;
use crate::model::pod::Shape;
use crate::planner::plan::{GangRequest, Problem, Refusal, Role, SliceFault, SliceTopologyRequest, TopologyRequests};
use crate::topology::Tree;

/// The demand of a gang whose roles share one shape, or of several shapes together.
#[derive(Debug)]
pub(super) struct Demand<'p> {
    /// The shape of every member; of several, the first.
    pub(super) shape: &'p Shape,
    /// Unbound members needed to reach every role's minimum.
    pub(super) must: u32,
    /// Unbound members in all.
    pub(super) may: u32,
    /// Bound members per host, in the order of `problem.hosts`.
    pub(super) bound: Vec<u32>,
    /// Hosts of the bound members, as indices into `problem.hosts`, in rank order.
    pub(super) bound_hosts: Vec<usize>,
    /// Every place in role order, then rank order: the depth-first position of its host, if it is bound.
    pub(super) sequence: Vec<Option<usize>>,
}

impl<'p> Demand<'p> {
    /// Reads the gang; `None` if it has no place at all. `index` gives a node's index in `problem.hosts`.
    ///
    /// Errors: the first of unknown level, unsupported constraint, mixed shapes, impossible minimum, slices that do
    /// not cut the gang, bound to a node that is gone. A constraint that is not supported refuses the gang before anything
    /// is released.
    pub(super) fn new(
        problem: &'p Problem,
        index: &FxHashMap<NodeName, usize>,
        positions: &[usize],
    ) -> Result<Option<Self>, Refusal> {
        let GangRequest { key: _, roles, topology_requests } = &problem.gang;
        let TopologyRequests { required, preferred, slices, exclusive, balance, apart } = topology_requests;
        let levels = [required, preferred, exclusive, balance, apart].into_iter().copied().flatten();
        for level in levels.chain(slices.iter().map(|slice| slice.level)) {
            if level >= problem.levels.len() {
                return Err(Refusal::UnknownLevel { level, changes: Vec::new() });
            }
        }
        for role in roles {
            if let Some(constraint) = role.shape.unsupported.first() {
                let (role, constraint) = (role.name.clone(), constraint.clone());
                return Err(Refusal::Unsupported { role, constraint, changes: Vec::new() });
            }
        }
        let several = shapes(&problem.gang);
        if several > 1 && Pair::of(&problem.gang).is_none() && !may_mix(&problem.gang, several) {
            return Err(Refusal::MixedShapes { shapes: several, changes: Vec::new() });
        }
        for role in roles {
            if role.min as usize > role.places.len() {
                let count = count(role.places.len());
                let (role, min) = (role.name.clone(), role.min);
                return Err(Refusal::MinimumAboveCount { role, min, count, changes: Vec::new() });
            }
        }
        let alone = slices.is_empty() && exclusive.is_none() && balance.is_none();
        if apart.is_some() && (several > 1 || !alone) {
            let constraint = Arc::from(Shape::POD_ANTI_AFFINITY);
            return Err(Refusal::Unsupported { role: Arc::from(""), constraint, changes: Vec::new() });
        }
        let Some(shape) = roles.iter().find(|role| !role.places.is_empty()).map(|role| &role.shape) else {
            return Ok(None);
        };
        check_slices(roles, slices)?;
        if exclusive.is_some() && accelerators(shape).next().is_none() {
            let constraint = Arc::from("an exclusive domain for members that request no accelerator");
            return Err(Refusal::Unsupported { role: Arc::from(""), constraint, changes: Vec::new() });
        }

        let mut demand = Self {
            shape,
            must: 0,
            may: 0,
            bound: vec![0; problem.hosts.len()],
            bound_hosts: Vec::new(),
            sequence: Vec::new(),
        };
        for role in roles {
            let mut bound = 0;
            for place in &role.places {
                let Some(node) = &place.bound else {
                    demand.sequence.push(None);
                    continue;
                };
                let host = *index.get(node).ok_or_else(|| Refusal::BoundOutside {
                    node: node.clone(),
                    inside: None,
                    changes: Vec::new(),
                })?;
                demand.bound[host] += 1;
                demand.bound_hosts.push(host);
                demand.sequence.push(Some(positions[host]));
                bound += 1;
            }
            demand.must += role.min.saturating_sub(bound);
            demand.may += count(role.places.len()) - bound;
        }
        Ok(Some(demand))
    }

    /// A bound member stands where it must not.
    pub(super) fn outside(&self, problem: &Problem, tree: &Tree, position: usize) -> Refusal {
        let node = problem.hosts[tree.hosts()[position]].node.name.clone();
        Refusal::BoundOutside { node, inside: None, changes: Vec::new() }
    }
}

/// Different shapes among the members.
pub(super) fn shapes(gang: &GangRequest) -> usize {
    let used = gang.roles.iter().filter(|role| !role.places.is_empty());
    used.map(|role| &role.shape).collect::<FxHashSet<&Shape>>().len()
}

/// Whether the slices cut the gang.
fn check_slices(roles: &[Role], slices: &[SliceTopologyRequest]) -> Result<(), Refusal> {
    let mut of = count(roles.iter().map(|role| role.places.len()).sum());
    let mut above = 0;
    for SliceTopologyRequest { size, level } in slices {
        let fault = if *size == 0 || !of.is_multiple_of(*size) {
            SliceFault::DoesNotDivide { of }
        } else if *level < above {
            SliceFault::AboveEnclosing
        } else if roles.len() > 1 && roles.iter().any(|role| (role.min as usize) < role.places.len()) {
            SliceFault::ElasticRoles
        } else {
            (of, above) = (*size, *level);
            continue;
        };
        return Err(Refusal::Slices { size: *size, fault, changes: Vec::new() });
    }
    Ok(())
}

/// Saturates: no gang has more members than `u32` can count.
fn count(places: usize) -> u32 {
    u32::try_from(places).unwrap_or(u32::MAX)
}
