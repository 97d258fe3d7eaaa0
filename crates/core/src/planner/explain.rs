//! Text of refusals, made in one place from typed reasons: CLI, events, status and dashboard say the same.

use std::fmt::{self, Write};

use super::shapes::MOST_SHAPES;
use crate::fit::Misfit;
use crate::model::names::NodeName;
use crate::model::resources::amount;
use crate::planner::plan::{BestDomain, Capacity, Change, Refusal, Shortfall, SliceFault, Undecided};

/// Reasons named one by one; the nodes of all others are counted together, so that an event stays readable.
const REASONS_SHOWN: usize = 5;
/// Changes named in a text; the others are in the data.
const CHANGES_SHOWN: usize = 4;
/// Nodes of a change named one by one.
const NODES_SHOWN: usize = 8;
/// Before the first change.
const WOULD_FIT: &str = "; would fit with ";

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        change(self, f)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Headline(self), self.details())
    }
}

impl Refusal {
    /// What is missing, in one sentence without blocked nodes and changes: everything that is written about the refusal begins
    /// with it.
    #[must_use]
    pub fn headline(&self) -> String {
        Headline(self).to_string()
    }

    /// What follows the headline where there is space for it: blocked nodes, and with what the gang would fit.
    #[must_use]
    pub fn details(&self) -> impl fmt::Display + '_ {
        Details(self)
    }
}

/// A refusal as a lower-case fragment without the character `%`, which kube-scheduler and event sinks would read as a
/// formatting verb.
struct Headline<'a>(&'a Refusal);

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = &mut Plain(f);
        match self.0 {
            Refusal::Unsupported { role, constraint, changes: _ } => {
                match role.is_empty() {
                    true => out.write_str("the members carry")?,
                    false => write!(out, "role {role} carries")?,
                }
                write!(out, " a constraint that is not supported: {constraint}")
            }
            Refusal::MixedShapes { shapes, changes: _ } => {
                write!(out, "the members have {shapes} different shapes")?;
                match *shapes > MOST_SHAPES {
                    true => write!(out, ", more than {MOST_SHAPES}"),
                    false => out.write_str(": slices, an exclusive domain and balance need members of one shape"),
                }
            }
            Refusal::MinimumAboveCount { role, min, count, changes: _ } => {
                if !role.is_empty() {
                    write!(out, "role {role} ")?;
                }
                write!(out, "needs at least {min} members but has {count}")
            }
            Refusal::Slices { size, fault, changes: _ } => match fault {
                SliceFault::DoesNotDivide { of } => write!(out, "slices of {size} do not divide {of} members"),
                SliceFault::AboveEnclosing => {
                    write!(out, "slices of {size} are asked for at a level above that of the slices they are part of")
                }
                SliceFault::ElasticRoles => {
                    write!(out, "slices of {size} cannot cut several roles while one of them is elastic")
                }
            },
            Refusal::UnknownLevel { level: _, changes: _ } => {
                out.write_str("the topology request names a level that topology.levels does not have")
            }
            Refusal::BoundOutside { node, inside: None, changes: _ } => {
                write!(out, "a member is bound to node {node}, outside the domain the gang requires")
            }
            Refusal::BoundOutside { node, inside: Some(inside), changes: _ } => {
                write!(out, "a member is bound to node {node}, outside {inside}, where the others are")
            }
            Refusal::DoesNotFit(shortfall) => lacks(shortfall, out),
            Refusal::Undecided(Undecided { needed, missing, bound: _, required, iterations: _ }) => {
                write!(out, "needs capacity for {needed} members of several shapes")?;
                if let Some(level) = required {
                    write!(out, " in one {level}")?;
                }
                write!(out, "; the search stopped without an answer, the best attempt places all but {missing}")
            }
        }
    }
}

/// How much capacity is needed where, and how much of it there is.
fn lacks(shortfall: &Shortfall, out: &mut Plain<'_, '_>) -> fmt::Result {
    let Shortfall { needed, bound, required, total, best, step, .. } = shortfall;
    let whole = step.map_or_else(String::new, |step| format!(" in whole slices of {step}"));
    let more = if *bound > 0 { " more" } else { "" };
    let (members, any) = if *needed == 1 { ("member", "it") } else { ("members", "any of them") };
    write!(out, "needs capacity for {needed}{more} {members}")?;
    if *bound > 0 {
        write!(out, " beside {bound} bound")?;
    }
    match required.and_then(|level| best.get(level)) {
        None if *total == 0 => write!(out, "; no node has capacity for {any}"),
        None => write!(out, "; all nodes together have capacity for {total}{whole}"),
        Some(BestDomain { level, domain, .. }) if domain.is_empty() => {
            write!(out, " in one {level}; no node has a label for that level")
        }
        Some(BestDomain { level, holds: 0, .. }) => write!(out, " in one {level}; no {level} has capacity for {any}"),
        Some(BestDomain { level, domain, holds, .. }) => {
            write!(out, " in one {level}; the best, {domain}, has capacity for {holds}{whole}")
        }
    }
}

struct Details<'a>(&'a Refusal);

impl fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = &mut Plain(f);
        match self.0 {
            Refusal::DoesNotFit(shortfall) => blocked(shortfall, out),
            Refusal::Undecided(_) => Ok(()),
            Refusal::Unsupported { .. }
            | Refusal::MixedShapes { .. }
            | Refusal::MinimumAboveCount { .. }
            | Refusal::Slices { .. }
            | Refusal::UnknownLevel { .. }
            | Refusal::BoundOutside { .. } => would_fit(self.0.changes(), WOULD_FIT, out),
        }
    }
}

fn blocked(shortfall: &Shortfall, out: &mut Plain<'_, '_>) -> fmt::Result {
    let Shortfall { required, best, wider, unlabelled, blocked, changes, .. } = shortfall;
    let mut separator = ": ";
    for reason in blocked.iter().take(REASONS_SHOWN) {
        write!(out, "{separator}{} {}", nodes(reason.nodes), reason.reason)?;
        separator = ", ";
    }
    let others = blocked.iter().skip(REASONS_SHOWN).fold(0_u32, |sum, reason| sum.saturating_add(reason.nodes));
    if others > 0 {
        write!(out, "{separator}{} blocked by other reasons", nodes(others))?;
        separator = ", ";
    }
    if let Some(BestDomain { level, .. }) = required.and_then(|level| best.get(level)).filter(|_| *unlabelled > 0) {
        write!(out, "{separator}{} without a label for {level}", nodes(*unlabelled))?;
    }
    if let Some(BestDomain { level, domain, holds, .. }) = wider.and_then(|level| best.get(level)) {
        write!(out, "; would fit if only one {level} were required: {domain} has capacity for {holds}")?;
    }
    // A wider level is named above, with what the domain holds.
    let changes = changes.iter().filter(|change| wider.is_none() || !matches!(change, Change::Widen { .. }));
    would_fit(changes, if wider.is_some() { ", or with " } else { WOULD_FIT }, out)
}

fn would_fit<'c>(
    changes: impl IntoIterator<Item = &'c Change>,
    mut lead: &str,
    out: &mut Plain<'_, '_>,
) -> fmt::Result {
    for change in changes.into_iter().take(CHANGES_SHOWN) {
        out.write_str(lead)?;
        one_change(change, out)?;
        lead = ", or with ";
    }
    Ok(())
}

/// Writes a change so that it ends "would fit with …".
///
/// Errors: those of the formatter.
fn change(change: &Change, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    one_change(change, &mut Plain(f))
}

fn one_change(change: &Change, out: &mut Plain<'_, '_>) -> fmt::Result {
    match change {
        Change::Capacity { capacities } => more_capacity(capacities, out),
        Change::Widen { to: _, level: None } => out.write_str("no required level"),
        Change::Widen { to: _, level: Some(level) } => write!(out, "only one {level} required"),
        Change::Share => out.write_str("others in its domain"),
        Change::Unslice => out.write_str("no slices"),
        Change::Unbalance => out.write_str("no balance"),
        Change::WidenSlices { to: _, level } => write!(out, "slices inside one {level} each"),
        Change::Tolerate { taints } => {
            let (word, list) = (if taints.len() == 1 { "taint" } else { "taints" }, listed(taints));
            write!(out, "{word} {list} tolerated")
        }
        Change::Unselect => out.write_str("no node selector or affinity"),
        Change::Nodes { reason: Misfit::Unschedulable, nodes: count } => write!(out, "{} uncordoned", nodes(*count)),
        Change::Nodes { reason: Misfit::NotReady, nodes: 1 } => out.write_str("1 more node ready"),
        Change::Nodes { reason: Misfit::NotReady, nodes } => write!(out, "{nodes} more nodes ready"),
        Change::Nodes { reason: Misfit::Port, nodes: count } => write!(out, "the host port free on {}", nodes(*count)),
        Change::Nodes { reason: Misfit::Occupied, nodes: count } => {
            write!(out, "{} free of pods that keep the members away", nodes(*count))
        }
        Change::Nodes {
            reason:
                reason @ (Misfit::Taint { .. }
                | Misfit::Held
                | Misfit::Selector
                | Misfit::Volume
                | Misfit::Insufficient { .. }
                | Misfit::Shared),
            nodes: count,
        } => write!(out, "{} without: {reason}", nodes(*count)),
        Change::Free { reason, nodes } => free(reason, nodes, out),
        Change::Minimum { role, members } if role.is_empty() => write!(out, "a minimum of {members}"),
        Change::Minimum { role, members } => write!(out, "a minimum of {members} of role {role}"),
        Change::Remove { constraints } => write!(out, "pods without {}", listed(constraints)),
        Change::SameTemplate { role, like, indices: _ } if role == like && role.is_empty() => {
            out.write_str("one template for all members")
        }
        Change::SameTemplate { role, like, indices: _ } if role == like => {
            write!(out, "one template for all members of role {role}")
        }
        Change::SameTemplate { role, like, indices: _ } => write!(out, "the template of role {like} for role {role}"),
        Change::SliceSize { from, to } => write!(out, "slices of {to} instead of {from}"),
        Change::NarrowSlices { size, to: _, level } => write!(out, "slices of {size} inside one {level} each"),
        Change::Label { nodes: names, keys } => {
            let names: Vec<&str> = names.iter().map(NodeName::as_str).collect();
            write!(out, "label {} on {}", listed(keys), names.join(", "))
        }
        Change::OwnVolumes { claims } => write!(out, "claims of their own in place of {}", listed(claims)),
        Change::Lower { resource, from, to } => {
            let name = resource.as_str();
            write!(out, "{} {name} in place of {} in each member", amount(name, *to), amount(name, *from))
        }
    }
}

/// Named nodes without what blocks them.
fn free(reason: &Misfit, names: &[NodeName], out: &mut Plain<'_, '_>) -> fmt::Result {
    let kind = if names.len() == 1 { "node" } else { "nodes" };
    let shown: Vec<&str> = names.iter().take(NODES_SHOWN).map(NodeName::as_str).collect();
    let rest = names.len().saturating_sub(NODES_SHOWN);
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let nodes = format!("{kind} {}{rest}", shown.join(", "));
    match reason {
        Misfit::Unschedulable => write!(out, "{nodes} uncordoned"),
        Misfit::NotReady => write!(out, "{nodes} Ready"),
        Misfit::Taint { taint } => write!(out, "taint {taint} tolerated, or taken from {nodes}"),
        Misfit::Port => write!(out, "the host ports free of {nodes}"),
        Misfit::Insufficient { resource } => write!(out, "all {resource} free of {nodes}"),
        Misfit::Occupied => write!(out, "no pod that keeps members away on {nodes}"),
        Misfit::Volume => write!(out, "its volumes within reach of {nodes}"),
        Misfit::Held => write!(out, "{nodes} no longer held"),
        Misfit::Selector | Misfit::Shared => write!(out, "{nodes} allowed"),
    }
}

fn listed<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn more_capacity(capacities: &[Capacity], out: &mut Plain<'_, '_>) -> fmt::Result {
    let mut separator = "capacity for ";
    for Capacity { level, domain, members, role } in capacities {
        write!(out, "{separator}{members} more")?;
        if let Some(role) = role {
            write!(out, " of role {role}")?;
        }
        match level {
            None => {}
            Some(level) if domain.is_empty() => write!(out, " in a new {level}")?,
            Some(level) => write!(out, " in {level} {domain}")?,
        }
        separator = " and ";
    }
    Ok(())
}

fn nodes(count: u32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// Replaces the one character that must not appear, whatever names and labels contain.
struct Plain<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Plain<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (index, part) in text.split('%').enumerate() {
            if index > 0 {
                self.0.write_char('_')?;
            }
            self.0.write_str(part)?;
        }
        Ok(())
    }
}
