//! The stories in words, read from the evidence and from nothing else.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::evidence::{Clock, Evidence};
use super::facts::{self, Outcome, Summary};
use super::json::{items, member, text, time};
use super::stories::Story;

/// One thing that happened.
#[derive(Debug)]
struct Moment {
    /// When, in real time.
    at: Timestamp,
    /// When, on EC2's clock, for what happened there.
    ec2: Option<Timestamp>,
    stated: String,
}

/// That everything has been started.
pub(super) fn ready(evidence: &Evidence) -> anyhow::Result<String> {
    let clock = evidence.clock()?;
    Ok(format!(
        "{:7.2} s             everything runs; EC2's time is {} times as fast as ours",
        clock.seconds(clock.ready),
        clock.factor
    ))
}

/// The lines of a story.
pub(super) fn story(evidence: &Evidence, story: Story) -> anyhow::Result<Vec<String>> {
    let clock = evidence.clock()?;
    let audit = evidence.lines_of(story, "audit.jsonl")?;
    let mut moments = from_audit(&audit);
    // Events of earlier stories are still there; they are reported once.
    let since = audit.iter().filter_map(|entry| time(entry, "/requestReceivedTimestamp")).min();
    moments.extend(from_journal(&evidence.lines_of(story, "journal.jsonl")?, clock));
    let events = evidence.of(story, "events.json")?;
    moments.extend(from_events(&events).into_iter().filter(|moment| since.is_some_and(|since| moment.at >= since)));
    moments.sort_by_key(|moment| moment.at);
    let mut lines: Vec<String> = moments.iter().map(|moment| reported(moment, clock)).collect();
    lines.extend(outcome(evidence, story)?);
    Ok(lines)
}

fn reported(moment: &Moment, clock: Clock) -> String {
    let ec2 = moment.ec2.map_or_else(String::new, |at| {
        let seconds = clock.ec2(at).as_secs();
        format!("EC2 {:02}:{:02}", seconds / 60, seconds % 60)
    });
    format!("{:7.2} s  {ec2:9}  {}", clock.seconds(moment.at), moment.stated)
}

/// Creations at the API server: of pods, nodes and Bindings together, of our objects each.
fn from_audit(audit: &[Value]) -> Vec<Moment> {
    let mut together: BTreeMap<&str, (usize, Timestamp, Timestamp)> = BTreeMap::new();
    for entry in audit {
        let refused = entry.pointer("/responseStatus/code").and_then(Value::as_u64).is_none_or(|code| code >= 300);
        let Some(at) = time(entry, "/requestReceivedTimestamp") else { continue };
        if refused {
            continue;
        }
        let what = (text(entry, "/verb"), text(entry, "/objectRef/resource"), text(entry, "/objectRef/subresource"));
        let kind = match what {
            ("create", "pods", "") => "pods created, each behind the gang's gate",
            ("create", "pods", "binding") => "Bindings",
            ("create", "nodes", "") => "nodes registered",
            ("delete", "nodes", "") => "nodes removed",
            _ => continue,
        };
        let seen = together.entry(kind).or_insert((0, at, at));
        *seen = (seen.0 + 1, seen.1.min(at), seen.2.max(at));
    }
    together
        .into_iter()
        .map(|(kind, (count, first, last))| {
            let within = last.duration_since(first).as_millis();
            Moment { at: last, ec2: None, stated: format!("{count} {kind}, within {within} ms") }
        })
        .collect()
}

/// Calls that changed something in EC2.
fn from_journal(journal: &[Value], clock: Clock) -> Vec<Moment> {
    let terminated = facts::terminated(journal);
    let mut moments = Vec::new();
    for entry in journal {
        let Some(at) = time(entry, "/at") else { continue };
        let made = facts::instances_of(entry).len();
        let stated = match text(entry, "/operation") {
            "CreateFleet" if text(entry, "/code") != "DryRunOperation" => {
                let fleet = facts::fleet(entry, &terminated);
                let answer = match fleet.outcome {
                    Outcome::Nothing => format!("no instance, {}", fleet.codes.join(", ")),
                    Outcome::Won | Outcome::RolledBack | Outcome::Partial => format!("{} instances", fleet.launched),
                };
                format!(
                    "CreateFleet {} × {} in {}, no fewer than {} → {answer}",
                    fleet.asked, fleet.instance_type, fleet.zone, fleet.minimum
                )
            }
            "TerminateInstances" if made > 0 => format!("TerminateInstances: {made} in one call"),
            operation @ ("CreatePlacementGroup" | "DeletePlacementGroup") if text(entry, "/code").is_empty() => {
                format!("{operation} {}", member(entry, "/parameters", "GroupName"))
            }
            _ => continue,
        };
        moments.push(Moment { at: clock.real(at), ec2: Some(at), stated });
    }
    moments
}

/// What Muster reported about gangs and batches.
fn from_events(events: &Value) -> Vec<Moment> {
    items(events, "/items")
        .filter(|event| matches!(text(event, "/regarding/kind"), "Gang" | "NodeBatch"))
        .filter_map(|event| {
            let kind = if text(event, "/regarding/kind") == "Gang" { "gang" } else { "batch" };
            Some(Moment {
                at: time(event, "/eventTime")?,
                ec2: None,
                stated: format!(
                    "{kind} {}: {} – {}",
                    text(event, "/regarding/name"),
                    text(event, "/reason"),
                    text(event, "/note")
                ),
            })
        })
        .collect()
}

/// How the story ended.
fn outcome(evidence: &Evidence, story: Story) -> anyhow::Result<Vec<String>> {
    let facts = facts::story(evidence, story)?;
    let indent = " ".repeat(22);
    if facts.gang.is_empty() {
        return Ok(vec![format!(
            "{indent}⇒ {} nodes, {} instances, {} placement groups are left",
            facts.nodes.len(),
            facts.live_instances,
            facts.placement_groups
        )]);
    }
    let mut lines = vec![format!(
        "{indent}⇒ {} of {} members run on {} nodes of their own",
        if facts.runs_whole { facts.ranks.len() } else { 0 },
        facts.ranks.len(),
        facts.nodes.len()
    )];
    for (leaf, ranks) in facts::leaves(&facts.ranks) {
        let range = match ranks.as_slice() {
            [first, .., last] => format!("ranks {first}–{last}"),
            [only] => format!("rank {only}"),
            [] => continue,
        };
        let nodes: Vec<&str> = ranks
            .iter()
            .filter_map(|rank| facts.ranks.iter().find(|member| member.rank == *rank))
            .map(|member| member.node.split('.').next().unwrap_or(&member.node))
            .collect();
        lines.push(format!("{indent}  leaf {leaf}: {range} on {}", nodes.join(", ")));
    }
    Ok(lines)
}

/// The books.
pub(super) fn end(evidence: &Evidence, summary: &Summary) -> anyhow::Result<Vec<String>> {
    let mut lines = vec![String::new(), "The books".to_owned()];
    let invariants = evidence.read("invariants.json")?;
    lines.push(format!(
        "  invariants of EC2's side: {} hold, {} broken",
        summary.invariants_held,
        summary.invariants_broken.len()
    ));
    for invariant in items(&invariants, "") {
        let verdict = if invariant["holds"] == true { "holds " } else { "BROKEN" };
        lines.push(format!("    {verdict}  {}", text(invariant, "/name")));
    }
    for bill in &summary.bills {
        let gang = if bill.gang.is_empty() { "of no story" } else { &bill.gang };
        lines.push(format!("  {gang}: billed {}", dollars(bill.billed_micro_usd)));
        if bill.partial_instances > 0 {
            lines.push(format!(
                "    of which {} for {} instances that were rolled back: EC2 bills from `running` on; \
                 from the launch on it would be {}",
                dollars(bill.partial_micro_usd),
                bill.partial_instances,
                dollars(bill.partial_held_micro_usd)
            ));
        }
    }
    lines.push(format!("  total: billed {}", dollars(summary.billed_micro_usd)));
    lines.push(format!(
        "  partial launches {}: billed for instances that waited for the rest of a gang, or were provisioned for none",
        dollars(summary.partial_micro_usd)
    ));
    Ok(lines)
}

fn dollars(micro: u64) -> String {
    let cents = micro.saturating_add(5_000) / 10_000;
    format!("${}.{:02}", cents / 100, cents % 100)
}
