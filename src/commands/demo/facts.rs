//! What the evidence says, as numbers: who ran where, what was launched, what it cost. `hack/recompute-evidence.py`
//! computes the same from the same files.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use muster_api::keys;
use serde::Serialize;
use serde_json::Value;

use super::evidence::Evidence;
use super::json::{items, member, number, text};
use super::stage::MEMBERS;
use super::stories::Story;

/// One story.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoryFacts {
    /// Folder of its evidence.
    pub(super) story: &'static str,
    /// Name of the gang; empty where no job was submitted.
    pub(super) gang: String,
    /// UID of the NodeBatch, as EC2's tags have it.
    pub(super) batch: String,
    /// Nodes at the end of the story: of the gang, or all where no job was submitted.
    pub(super) nodes: Vec<String>,
    /// Members by rank.
    pub(super) ranks: Vec<RankFact>,
    /// Whether the ranks of each leaf follow each other.
    pub(super) ring_order: bool,
    /// Whether all members run, each on a node of its own that was provisioned for them.
    pub(super) runs_whole: bool,
    /// Launch calls for the gang, in order.
    pub(super) fleets: Vec<FleetFact>,
    /// Instances alive at the end of the story, of all jobs.
    pub(super) live_instances: usize,
    /// Placement groups at the end of the story.
    pub(super) placement_groups: usize,
}

/// Where a member runs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RankFact {
    pub(super) rank: u64,
    pub(super) pod: String,
    pub(super) node: String,
    /// The closest network node, from the node's label.
    pub(super) leaf: String,
}

/// One CreateFleet call.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FleetFact {
    pub(super) attempt: u64,
    #[serde(rename = "type")]
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) asked: u64,
    pub(super) minimum: u64,
    pub(super) launched: usize,
    /// Of those launched, how many were terminated before the story's end.
    pub(super) terminated: usize,
    /// EC2's error codes.
    pub(super) codes: Vec<String>,
    pub(super) outcome: Outcome,
}

/// What became of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Outcome {
    /// All instances, and they stayed.
    Won,
    /// None.
    Nothing,
    /// Some, all of them terminated.
    RolledBack,
    /// Some that stayed although the gang did not get all.
    Partial,
}

/// What one batch cost.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BatchBill {
    pub(super) batch: String,
    pub(super) gang: String,
    pub(super) billed_micro_usd: u64,
    /// Billed for instances of attempts by which no whole gang ran.
    pub(super) partial_micro_usd: u64,
    /// What those instances would have cost if EC2 charged from the launch to the end of the termination.
    pub(super) partial_held_micro_usd: u64,
    /// Instances of those attempts.
    pub(super) partial_instances: usize,
}

/// What the demo tells, to be compared with what anybody computes from the files.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub(super) stories: Vec<StoryFacts>,
    pub(super) invariants_held: usize,
    pub(super) invariants_broken: Vec<String>,
    pub(super) bills: Vec<BatchBill>,
    pub(super) billed_micro_usd: u64,
    pub(super) partial_micro_usd: u64,
    pub(super) partial_held_micro_usd: u64,
}

/// Reads a story.
pub(super) fn story(evidence: &Evidence, story: Story) -> anyhow::Result<StoryFacts> {
    let nodes = evidence.of(story, "nodes.json")?;
    let ec2 = evidence.of(story, "ec2.json")?;
    let live = |one: &&Value| matches!(text(one, "/state"), "pending" | "running") && one["foreign"] != true;
    let mut facts = StoryFacts {
        story: story.name(),
        gang: String::new(),
        batch: String::new(),
        nodes: items(&nodes, "/items").map(|node| text(node, "/metadata/name").to_owned()).collect(),
        ranks: Vec::new(),
        ring_order: true,
        runs_whole: false,
        fleets: Vec::new(),
        live_instances: items(&ec2, "/instances").filter(live).count(),
        placement_groups: items(&ec2, "/placementGroups").count(),
    };
    let Some(job) = story.job() else { return Ok(facts) };
    let gangs = evidence.of(story, "gangs.json")?;
    let gang = items(&gangs, "/items")
        .find(|gang| text(gang, "/spec/source/identity") == job)
        .with_context(|| format!("{}/gangs.json has no gang {job}", story.name()))?;
    text(gang, "/metadata/name").clone_into(&mut facts.gang);
    let batches = evidence.of(story, "nodebatches.json")?;
    let batch = items(&batches, "/items")
        .find(|batch| text(batch, "/spec/gangRef/uid") == text(gang, "/metadata/uid"))
        .with_context(|| format!("{}/nodebatches.json has no batch of {}", story.name(), facts.gang))?;
    text(batch, "/metadata/uid").clone_into(&mut facts.batch);
    let labels: BTreeMap<&str, &Value> =
        items(&nodes, "/items").map(|node| (text(node, "/metadata/name"), node)).collect();
    let pods = evidence.of(story, "pods.json")?;
    let members: Vec<&Value> = items(&pods, "/items")
        .filter(|pod| member(pod, "/metadata/labels", "batch.kubernetes.io/job-name") == job)
        .collect();
    let mut provisioned = 0;
    let leaf_key = format!("{}3", keys::NETWORK_LAYER_PREFIX);
    for pod in &members {
        let node = text(pod, "/spec/nodeName");
        let of_node = |key: &str| labels.get(node).map_or("", |labels| member(labels, "/metadata/labels", key));
        if text(pod, "/status/phase") == "Running" && of_node(keys::BATCH) == facts.batch {
            provisioned += 1;
        }
        let rank = member(pod, "/metadata/annotations", keys::JOB_COMPLETION_INDEX);
        facts.ranks.push(RankFact {
            rank: rank.parse().with_context(|| format!("pod {} has no rank", text(pod, "/metadata/name")))?,
            pod: text(pod, "/metadata/name").to_owned(),
            node: node.to_owned(),
            leaf: of_node(&leaf_key).to_owned(),
        });
    }
    facts.ranks.sort_by_key(|member| member.rank);
    facts.nodes = facts.ranks.iter().map(|member| member.node.clone()).collect::<BTreeSet<_>>().into_iter().collect();
    facts.ring_order =
        leaves(&facts.ranks).iter().map(|(leaf, _)| leaf).collect::<BTreeSet<_>>().len() == leaves(&facts.ranks).len();
    facts.runs_whole =
        [members.len(), provisioned, facts.nodes.len()].iter().all(|count| *count == usize::from(MEMBERS));
    facts.fleets = fleets(&evidence.lines_of(story, "journal.jsonl")?, &facts.batch);
    Ok(facts)
}

/// The leaves in rank order, each with its run of ranks; a leaf that is left and entered again is there twice.
pub(super) fn leaves(ranks: &[RankFact]) -> Vec<(&str, Vec<u64>)> {
    let mut runs: Vec<(&str, Vec<u64>)> = Vec::new();
    for member in ranks {
        match runs.last_mut() {
            Some((leaf, run)) if *leaf == member.leaf => run.push(member.rank),
            Some(_) | None => runs.push((&member.leaf, vec![member.rank])),
        }
    }
    runs
}

/// The value of a tag that a launch in the journal puts on instances.
pub(super) fn instance_tag<'a>(entry: &'a Value, key: &str) -> &'a str {
    let parameters = entry.pointer("/parameters").and_then(Value::as_object);
    parameters
        .into_iter()
        .flatten()
        .filter(|(_, value)| *value == key)
        .find_map(|(name, _)| {
            let tag = name.strip_suffix(".Key")?;
            let (specification, _) = tag.split_once(".Tag.")?;
            let kind = member(entry, "/parameters", &format!("{specification}.ResourceType"));
            (kind == "instance").then(|| member(entry, "/parameters", &format!("{tag}.Value")))
        })
        .unwrap_or_default()
}

/// Ids of instances among what a call made or ended.
pub(super) fn instances_of(entry: &Value) -> BTreeSet<&str> {
    items(entry, "/resources").filter_map(Value::as_str).filter(|id| id.starts_with("i-")).collect()
}

/// A call in the journal that launched, as a person reads it.
pub(super) fn fleet(entry: &Value, terminated: &BTreeSet<&str>) -> FleetFact {
    let parameter = |name: &str| member(entry, "/parameters", name);
    let count = |name: &str| parameter(name).parse().unwrap_or(0);
    let launched = instances_of(entry);
    let gone = launched.intersection(terminated).count();
    let asked = count("TargetCapacitySpecification.TotalTargetCapacity");
    let mut codes: Vec<String> = items(entry, "/itemCodes").filter_map(Value::as_str).map(str::to_owned).collect();
    codes.extend(Some(text(entry, "/code").to_owned()).filter(|code| !code.is_empty()));
    let outcome = match launched.len() {
        0 => Outcome::Nothing,
        all if gone == all => Outcome::RolledBack,
        all if gone == 0 && u64::try_from(all) == Ok(asked) => Outcome::Won,
        _ => Outcome::Partial,
    };
    FleetFact {
        attempt: instance_tag(entry, keys::ATTEMPT).parse().unwrap_or(0),
        instance_type: parameter("LaunchTemplateConfigs.1.Overrides.1.InstanceType").to_owned(),
        zone: parameter("LaunchTemplateConfigs.1.Overrides.1.AvailabilityZone").to_owned(),
        asked,
        minimum: count("OnDemandOptions.MinTargetCapacity"),
        launched: launched.len(),
        terminated: gone,
        codes,
        outcome,
    }
}

/// Instances that calls of a journal terminated.
pub(super) fn terminated(journal: &[Value]) -> BTreeSet<&str> {
    journal.iter().filter(|entry| text(entry, "/operation") == "TerminateInstances").flat_map(instances_of).collect()
}

fn fleets(journal: &[Value], batch: &str) -> Vec<FleetFact> {
    let terminated = terminated(journal);
    journal
        .iter()
        .filter(|entry| text(entry, "/operation") == "CreateFleet" && entry["replayed"] == false)
        .filter(|entry| instance_tag(entry, keys::BATCH) == batch)
        .map(|entry| fleet(entry, &terminated))
        .collect()
}

impl Summary {
    /// Adds what the whole run says to the stories.
    pub(super) fn read(evidence: &Evidence, stories: Vec<StoryFacts>) -> anyhow::Result<Self> {
        let invariants = evidence.read("invariants.json")?;
        let (held, broken): (Vec<&Value>, Vec<&Value>) =
            items(&invariants, "").partition(|invariant| invariant["holds"] == true);
        let broken = broken.iter().map(|one| {
            format!("invariant {}, {}: {}", number(one, "/number"), text(one, "/name"), text(one, "/detail"))
        });
        let bill = evidence.read("bill.json")?;
        let bills = bills(&bill, &evidence.read("ec2.json")?, &stories);
        Ok(Self {
            invariants_held: held.len(),
            invariants_broken: broken.collect(),
            billed_micro_usd: number(&bill, "/total/microUsd"),
            partial_micro_usd: bills.iter().map(|bill| bill.partial_micro_usd).sum(),
            partial_held_micro_usd: bills.iter().map(|bill| bill.partial_held_micro_usd).sum(),
            bills,
            stories,
        })
    }

    /// Everything that is not as the stories have it, in sentences; empty if all is well.
    pub(super) fn broken(&self) -> Vec<String> {
        let mut broken = self.invariants_broken.clone();
        for story in &self.stories {
            let mut check = |holds: bool, what: &str| {
                if !holds {
                    broken.push(format!("story {}: {what}", story.story));
                }
            };
            if story.gang.is_empty() {
                check(story.nodes.is_empty(), "nodes are left");
                check(story.live_instances == 0, "instances are left");
                check(story.placement_groups == 0, "placement groups are left");
                continue;
            }
            check(story.runs_whole, "not all members run on nodes provisioned for them");
            check(story.ring_order, "the ranks of a leaf do not follow each other");
            let outcomes: Vec<Outcome> = story.fleets.iter().map(|fleet| fleet.outcome).collect();
            let (last, before) = outcomes.split_last().map_or((None, &[][..]), |(last, before)| (Some(last), before));
            check(last == Some(&Outcome::Won), "the last launch did not give all instances");
            let expected: &[Outcome] = if story.story == Story::FiveOfEight.name() {
                &[Outcome::Nothing]
            } else if story.story == Story::SevenOfEight.name() {
                &[Outcome::RolledBack]
            } else {
                &[]
            };
            check(before == expected, &format!("launches before the last ended as {before:?}, not {expected:?}"));
        }
        if self.partial_micro_usd > 0 {
            broken.push(format!("{} micro-dollars were billed for instances of no whole gang", self.partial_micro_usd));
        }
        broken
    }
}

fn bills(bill: &Value, ec2: &Value, stories: &[StoryFacts]) -> Vec<BatchBill> {
    let tags: BTreeMap<&str, &Value> =
        items(ec2, "/instances").map(|instance| (text(instance, "/instanceId"), instance)).collect();
    let mut bills: BTreeMap<String, BatchBill> = BTreeMap::new();
    for instance in items(bill, "/instances") {
        let tag = |key: &str| {
            tags.get(text(instance, "/instanceId")).map_or("", |tags| member(tags, "/tags", key)).to_owned()
        };
        let batch = tag(keys::BATCH);
        let story = stories.iter().find(|story| story.batch == batch);
        let served = story.is_some_and(|story| {
            let won =
                |fleet: &FleetFact| fleet.outcome == Outcome::Won && fleet.attempt.to_string() == tag(keys::ATTEMPT);
            story.runs_whole && story.fleets.iter().any(won)
        });
        let entry = bills.entry(batch.clone()).or_insert_with(|| BatchBill {
            batch,
            gang: story.map(|story| story.gang.clone()).unwrap_or_default(),
            billed_micro_usd: 0,
            partial_micro_usd: 0,
            partial_held_micro_usd: 0,
            partial_instances: 0,
        });
        let billed = number(instance, "/amount/microUsd");
        entry.billed_micro_usd += billed;
        if !served {
            entry.partial_micro_usd += billed;
            entry.partial_held_micro_usd += number(instance, "/amount/heldMicroUsd");
            entry.partial_instances += 1;
        }
    }
    // In the order of the stories, so that people and scripts read them alike.
    let place = |bill: &BatchBill| stories.iter().position(|story| story.batch == bill.batch);
    let mut bills: Vec<BatchBill> = bills.into_values().collect();
    bills.sort_by_key(|bill| (place(bill).is_none(), place(bill)));
    bills
}
