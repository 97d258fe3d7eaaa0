//! Launch semantics: candidates in order, one bundle of them at a time, all or nothing where a
//! minimum asks for it.

mod fill;
mod others;
mod start;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::faults::{Drawn, FaultKind};
use crate::fixtures::InstanceType;
use crate::interfaces::InterfaceSpec;
use crate::scenario::MarketType;
use crate::state::World;
use crate::state::fleets::{FleetError, FleetLaunch, Origin};

pub(crate) use self::fill::is_capacity;
use self::fill::{fill, shortfall};
pub(crate) use self::others::place_others;
use self::start::commit;

/// A launch whose parameters are known to be good.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) operation: &'a str,
    pub(crate) token: Option<&'a str>,
    pub(crate) fleet: Option<&'a str>,
    pub(crate) reservation: &'a str,
    pub(crate) total: u32,
    /// Fewer than this many: nothing.
    pub(crate) minimum: Option<u32>,
    pub(crate) single_type: bool,
    pub(crate) single_zone: bool,
    pub(crate) capacity_type: MarketType,
    pub(crate) ranking: Ranking,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) drawn: &'a Drawn,
}

/// How candidates are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranking {
    /// As they are.
    Given,
    Priority,
    Price,
    /// Most free hosts first, as an approximation of what EC2 knows about spot capacity.
    Capacity,
}

/// One type in one subnet with everything its instances get.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) origin: Origin,
    pub(crate) instance_type: &'static InstanceType,
    pub(crate) priority: Option<f64>,
    /// The placement group's name.
    pub(crate) group: Option<String>,
    pub(crate) image: String,
    pub(crate) interfaces: Vec<InterfaceSpec>,
    pub(crate) security_groups: Vec<String>,
    pub(crate) user_data: Option<String>,
    /// Where its hosts may come from.
    pub(crate) source: Source,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) volume_tags: BTreeMap<String, String>,
    pub(crate) interface_tags: BTreeMap<String, String>,
}

/// Where the hosts of a candidate may come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// Reservations that match and are open, then the pool.
    #[default]
    Open,
    /// The same, and EC2 is asked to use the reservations first: then those outside the placement group stand in
    /// the way of the launch.
    ReservationsFirst,
    /// The pool alone.
    Pool,
    /// Open reservations that match, and nothing else.
    ReservationsOnly,
    /// These reservations in turn, and nothing else but, if allowed, the pool.
    Targets { ids: Vec<String>, fallback: bool },
}

impl Source {
    /// `CapacityReservationPreference` of an instance launched so.
    fn preference(&self) -> Option<&'static str> {
        match self {
            Self::Open | Self::ReservationsFirst => Some("open"),
            Self::Pool => Some("none"),
            Self::ReservationsOnly => Some("capacity-reservations-only"),
            Self::Targets { .. } => None,
        }
    }

    /// The reservation that the launch names.
    fn target(&self) -> Option<String> {
        if let Self::Targets { ids, .. } = self { ids.first().cloned() } else { None }
    }
}

/// A host taken, and the reservation it is of.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) host: crate::capacity::Host,
    pub(crate) reservation: Option<String>,
}

impl Candidate {
    /// Addresses which one instance takes from the subnet.
    pub(crate) fn addresses(&self) -> u32 {
        self.interfaces.iter().map(InterfaceSpec::addresses).sum()
    }
}

/// What a launch came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) launches: Vec<FleetLaunch>,
    pub(crate) errors: Vec<FleetError>,
}

impl Outcome {
    pub(crate) fn instances(&self) -> Vec<String> {
        self.launches.iter().flat_map(|l| l.instances.clone()).collect()
    }
}

/// Launches what can be launched.
pub(crate) fn launch(world: &mut World, order: &Order<'_>, now: Timestamp) -> Outcome {
    let violating = order.drawn.kinds().find_map(FaultKind::violation);
    let target = violating.unwrap_or(order.total);
    let minimum = match violating {
        Some(_) => 1,
        None => order.minimum.unwrap_or(1).max(1),
    };
    let bundles = bundles(world, order);
    let mut failures = Vec::new();
    let mut best: Option<(usize, u32)> = None;
    for (index, bundle) in bundles.iter().enumerate() {
        let fill = fill(world, order, bundle, target, now);
        if fill.got >= target {
            failures.extend(fill.failures);
            return Outcome {
                launches: commit(world, order, fill.parts, now),
                // With everything launched EC2 reports no failed candidates of a minimum.
                errors: if order.minimum.is_some() { vec![] } else { failures },
            };
        }
        for taken in fill.parts.iter().flat_map(|(_, taken)| taken) {
            world.release(taken);
        }
        failures.extend(fill.failures);
        if fill.got >= minimum && best.is_none_or(|(_, got)| fill.got > got) {
            best = Some((index, fill.got));
        }
    }
    if let Some((index, _)) = best {
        let fill = fill(world, order, &bundles[index], target, now);
        return Outcome { launches: commit(world, order, fill.parts, now), errors: failures };
    }
    Outcome { launches: vec![], errors: shortfall(world.scenario.choices.shortfall, failures) }
}

/// Orders the candidates and groups those that may be launched together.
fn bundles(world: &World, order: &Order<'_>) -> Vec<Vec<Candidate>> {
    let mut candidates = order.candidates.clone();
    let price = |c: &Candidate| world.scenario.price(&c.instance_type.name, order.capacity_type);
    let free = |c: &Candidate| {
        let zone = &c.origin.zone;
        world.capacity.free(&c.instance_type.name, zone, order.capacity_type)
    };
    match order.ranking {
        Ranking::Given => {}
        Ranking::Priority => candidates.sort_by(|a, b| {
            let of = |c: &Candidate| c.priority.unwrap_or(f64::MAX);
            of(a).total_cmp(&of(b))
        }),
        Ranking::Price => candidates.sort_by_key(price),
        Ranking::Capacity => candidates.sort_by_key(|c| std::cmp::Reverse(free(c))),
    }
    let mut bundles: Vec<((String, String), Vec<Candidate>)> = Vec::new();
    for candidate in candidates {
        let part = |single: bool, name: &str| {
            if single { name.to_owned() } else { String::new() }
        };
        let key =
            (part(order.single_type, &candidate.instance_type.name), part(order.single_zone, &candidate.origin.zone));
        match bundles.iter_mut().find(|(k, _)| *k == key) {
            Some((_, bundle)) => bundle.push(candidate),
            None => bundles.push((key, vec![candidate])),
        }
    }
    bundles.into_iter().map(|(_, bundle)| bundle).collect()
}
