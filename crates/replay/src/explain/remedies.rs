//! The one headline of a gang and its numbered remedies, cheapest first. Nothing is stated twice.

use std::sync::Arc;

use muster_core::ec2::CapacityType;
use muster_core::model::money::usd;
use muster_core::model::names::NodeName;
use muster_core::model::resources::amount;
use muster_core::planner::plan::Refusal;
use muster_core::reason::{Help, PodHolds, Step, Why, instruction, keeps_the_type};
use serde::Serialize;

use crate::catalogue::Catalogue;
use crate::document::{Code, GangEntry, MemberState, Outcome, Reason};
use crate::study::{Detail, Holds};

/// One thing that would help alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remedy {
    /// What to do, as an instruction without a full stop.
    pub text: String,
    /// The same as data, all of it: the text is made of it.
    pub change: Vec<Step>,
    /// Whether it was shown that the gang fits then. Else the codes are gone, and whether the gang fits is planned then.
    pub enough: bool,
    /// What it removes.
    pub codes: Vec<Code>,
    /// Micro-dollars per hour of one node that would be provisioned then, on demand; null if none would be or no price
    /// is known.
    pub usd_micro_per_hour_per_node: Option<u64>,
    /// Nodes that would be provisioned then; null if none would be or their number is not known.
    pub nodes: Option<u32>,
}

impl Remedy {
    /// The sentence, with the price and without the codes.
    #[must_use]
    pub fn sentence(&self) -> String {
        match (self.usd_micro_per_hour_per_node, self.nodes) {
            (Some(price), Some(nodes)) => {
                let total = usd(price.saturating_mul(u64::from(nodes)));
                format!("{}: adds {}, about {total}/h", self.text, counted(nodes, "node"))
            }
            (Some(price), None) => format!("{}: about {}/h a node", self.text, usd(price)),
            (None, _) => self.text.clone(),
        }
    }
}

/// Remedies that are enough, then those that may be, each group with what stands above it and the number of its first.
#[must_use]
pub fn groups<T>(remedies: &[T], enough: impl Fn(&T) -> bool) -> Vec<(&'static str, usize, &[T])> {
    let mut first = 1;
    let groups = remedies.chunk_by(|one, next| enough(one) == enough(next)).map(|group| {
        let number = first;
        first += group.len();
        (heading(group.iter().all(&enough), group.len(), number), number, group)
    });
    groups.collect()
}

fn heading(enough: bool, count: usize, number: usize) -> &'static str {
    match (enough, count, number) {
        (true, 1, _) => "this is enough",
        (true, ..) => "any one of these is enough, easiest first",
        (false, _, 1) => "this comes first; whether the gang fits is planned after it",
        (false, ..) => "this may help; whether the gang fits is planned after it",
    }
}

/// What becomes of the gang, in a few words and one sentence.
pub(super) fn headline(entry: &GangEntry, why: Option<&Why>, refusal: Option<&Refusal>) -> String {
    let nodes: std::collections::BTreeSet<&str> = entry.members.iter().map(|member| member.node.as_str()).collect();
    let all = entry.members.len();
    let running = entry.members.iter().filter(|member| member.state == MemberState::Running).count();
    let on = format!("{} on {}", counted(all, "member"), counted(nodes.len(), "node"));
    let because = || why.map(Why::headline).or_else(|| refusal.map(Refusal::headline));
    match entry.outcome {
        Outcome::Placed if running == all => format!("runs: {on}"),
        Outcome::Placed if running == 0 => format!("fits now: {on}"),
        Outcome::Placed => format!("fits now: {on}, {running} of them running already"),
        Outcome::Provision => {
            let launched: u32 = entry.provision.iter().map(|one| one.count).sum();
            let micros = entry.provision.iter().map(|one| one.usd_micro_per_hour.saturating_mul(u64::from(one.count)));
            let price = usd(micros.fold(0, u64::saturating_add));
            let new = counted(launched, "new node");
            match because() {
                Some(why) => format!("gets {new} for {price}/h: {why}"),
                None => format!("gets {new} for {price}/h"),
            }
        }
        Outcome::Waiting | Outcome::Refused => match because() {
            Some(why) => format!("waits: {why}"),
            None => first(entry).map_or_else(|| "waits".to_owned(), |reason| reason.help.headline()),
        },
        Outcome::Invalid => {
            let change = || first(entry).and_then(|reason| reason.change.clone()).unwrap_or_default();
            format!("is invalid: {}", because().unwrap_or_else(change))
        }
    }
}

/// Everything that would help alone.
pub(super) fn remedies(entry: &GangEntry, detail: &Detail, catalogue: &Catalogue) -> Vec<Remedy> {
    let Detail { excluded, why, holders, .. } = detail;
    let why = why.as_ref();
    let may = match entry.outcome {
        Outcome::Waiting | Outcome::Refused | Outcome::Invalid => true,
        // What runs or is on its way needs no remedy.
        Outcome::Placed | Outcome::Provision => false,
    };
    let mut found: Vec<(u8, u64, Remedy)> = Vec::new();
    let reasons = entry.reasons.iter().chain(excluded).filter(|_| may);
    let headline = why.map(ToString::to_string);
    for reason in reasons {
        let change: Vec<Step> = match &*reason.help {
            Help::Describe(text) if headline.as_deref() == Some(&**text) => {
                why.and_then(Why::step).into_iter().collect()
            }
            help => help.steps().into_iter().map(|step| with_pods(step, holders)).collect(),
        };
        let Some(text) = instruction(&change) else { continue };
        if let Some((_, _, known)) = found.iter_mut().find(|(_, _, known)| known.text == text) {
            if !known.codes.contains(&reason.code) {
                known.codes.push(reason.code);
            }
            continue;
        }
        let (price, nodes) = match (&reason.provision, &*reason.help) {
            (Some(entry), _) => (Some(entry.usd_micro_per_hour), Some(entry.count)),
            (None, help) => priced(help, catalogue),
        };
        let enough = change.iter().all(Step::is_enough);
        let remedy =
            Remedy { text, change, enough, codes: vec![reason.code], usd_micro_per_hour_per_node: price, nodes };
        let all = price.unwrap_or(0).saturating_mul(nodes.map_or(1, u64::from));
        found.push((reason.help.effort(), all, remedy));
    }
    found.sort_by_key(|(effort, price, remedy)| (!remedy.enough, *effort, *price));
    let mut remedies: Vec<Remedy> = found.into_iter().map(|(_, _, remedy)| remedy).collect();
    // What is on its way anyway is waited for: nothing else is to be done, and least of all paid for.
    if remedies.iter().any(is_on_its_way) {
        remedies.retain(is_on_its_way);
    }
    // Capacity from wherever says no more than the headline.
    let anywhere = |remedy: &Remedy| remedy.change.iter().all(|step| matches!(step, Step::AddCapacity { .. }));
    if remedies.iter().any(|remedy| remedy.enough && !anywhere(remedy)) {
        remedies.retain(|remedy| !anywhere(remedy));
    }
    remedies
}

/// Micro-dollars per hour of a node that would be provisioned after a change, and how many.
fn priced(help: &Help, catalogue: &Catalogue) -> (Option<u64>, Option<u32>) {
    match help {
        Help::Pool { instance_type: Some(name), changes, count, .. } if keeps_the_type(changes) => {
            let price = catalogue.prices.price(name, "", CapacityType::OnDemand);
            (price, count.filter(|_| price.is_some()))
        }
        Help::NewPool { offer: Some(offer) } => {
            let zone = offer.zone.as_deref().unwrap_or_default();
            let price = catalogue.prices.price(&offer.instance_type, zone, CapacityType::OnDemand);
            (price, Some(offer.count).filter(|_| price.is_some()))
        }
        Help::Pool { .. }
        | Help::Nothing
        | Help::Change(_)
        | Help::NewPool { offer: None }
        | Help::Wait(_)
        | Help::Describe(_) => (None, None),
    }
}

/// A step with the pods that it is about, if there is one on each of its nodes.
fn with_pods(mut step: Step, holders: &[Holds]) -> Step {
    type What = Box<dyn Fn(&Holds) -> Option<String>>;
    let (nodes, pods, what): (_, _, What) = match &mut step {
        Step::EndPods { resource, nodes, pods } => {
            let name = resource.clone();
            let what = move |holds: &Holds| {
                let held = holds.held.requested.get(name.as_str());
                (held > 0).then(|| format!("{name} {}", amount(name.as_str(), held)))
            };
            (&*nodes, pods, Box::new(what))
        }
        Step::FreePorts { nodes, pods } => {
            let ports = |holds: &Holds| {
                let ports: Vec<String> = holds.held.ports.iter().map(|port| port.port.to_string()).collect();
                (!ports.is_empty()).then(|| format!("host port {}", ports.join(", ")))
            };
            (&*nodes, pods, Box::new(ports))
        }
        Step::MovePods { nodes, pods } => (&*nodes, pods, Box::new(|_: &Holds| Some(String::new()))),
        _ => return step,
    };
    let of = |node: &NodeName| {
        let mut found = holders.iter().filter(|holds| holds.node == *node && !holds.stays).collect::<Vec<_>>();
        found.retain(|holds| what(holds).is_some());
        found
    };
    let mut found = Vec::new();
    for node in &nodes.nodes {
        let here = of(node);
        found.extend(here.iter().filter_map(|holds| {
            Some(PodHolds { pod: Arc::clone(&holds.pod), holds: what(holds)?.into(), node: node.clone() })
        }));
        // Which of several keeps members away is not known.
        let unclear = found.last().is_some_and(|last| last.holds.is_empty()) && here.len() > 1;
        if here.is_empty() || unclear {
            return step;
        }
    }
    *pods = found;
    step
}

/// Whether the gang fits once what is joining or ending has done so. What was launched for it is for all of it, also where it is not
/// known yet what its nodes will be.
fn is_on_its_way(remedy: &Remedy) -> bool {
    let on_its_way = |step: &Step| matches!(step, Step::AwaitNodes { .. } | Step::AwaitTermination { .. });
    let launched = |step: &Step| matches!(step, Step::AwaitNodes { batches, .. } if !batches.is_empty());
    let does = remedy.enough || remedy.change.iter().any(launched);
    does && !remedy.change.is_empty() && remedy.change.iter().all(on_its_way)
}

/// The first reason that something helps against.
fn first(entry: &GangEntry) -> Option<&Reason> {
    entry.reasons.iter().find(|reason| reason.change.is_some())
}

fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_says_what_all_its_nodes_cost_together() {
        let remedy = |nodes| Remedy {
            text: "Raise spec.limits.nodes of NodePool \"h100\" from 64 to 72".to_owned(),
            change: Vec::new(),
            enough: true,
            codes: Vec::new(),
            usd_micro_per_hour_per_node: Some(55_040_000),
            nodes,
        };
        let sentence = remedy(Some(48)).sentence();
        assert!(sentence.ends_with("from 64 to 72: adds 48 nodes, about $2,641.92/h"), "{sentence}");
        assert!(remedy(None).sentence().ends_with(": about $55.04/h a node"));
    }
}
