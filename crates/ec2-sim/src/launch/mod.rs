//! Launch semantics: candidates in order, one bundle of them at a time, all or nothing where a
//! minimum asks for it.

mod fill;
pub(crate) mod order;
pub(crate) mod others;
pub(crate) mod power_off;
mod start;

use jiff::Timestamp;

use crate::faults::FaultKind;
use crate::state::World;
use crate::state::fleets::{FleetError, FleetLaunch};

use self::fill::{fill, shortfall};
use self::order::{Candidate, Order, Ranking};
use self::start::commit;

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
        Ranking::PriceCapacity => candidates.sort_by_key(|c| {
            let free = free(c).min(order.total);
            (std::cmp::Reverse(free), price(c))
        }),
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
