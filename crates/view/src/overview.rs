//! The model: a versioned document. All keys are always present, and what is absent is null.

use jiff::Timestamp;
use muster_replay::explain;
use schemars::JsonSchema;
use serde::Serialize;

/// The version this code writes.
pub const VERSION: u32 = 1;
/// The kind this code writes.
pub const KIND: &str = "Overview";

/// What there is to see of a cluster at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Version of this structure.
    #[schemars(extend("const" = 1))]
    pub version: u32,
    /// What this is.
    #[schemars(extend("const" = "Overview"))]
    pub kind: String,
    /// The moment it shows.
    pub now: Timestamp,
    /// The whole in a few numbers.
    pub summary: Summary,
    /// Topology levels, top to bottom; the last is the host.
    pub levels: Vec<LevelEntry>,
    /// The domains of every level above the host, depth first; each names its parent.
    pub domains: Vec<DomainEntry>,
    /// Nodes, depth first.
    pub nodes: Vec<NodeEntry>,
    /// Gangs: those that wait first, then by namespace and name.
    pub gangs: Vec<GangEntry>,
    /// NodeBatches, newest first.
    pub batches: Vec<BatchEntry>,
    /// NodePools and nodes of none, in order of name.
    pub pools: Vec<PoolEntry>,
    /// What was spent until now, NodeBatches that are gone included, in order of namespace, NodePool and capacity type.
    pub spent: Vec<SpentEntry>,
    /// What nodes of the types that are there cost.
    pub prices: Vec<PriceEntry>,
    /// What fits now, for each kind of accelerator and each level.
    pub fits: Vec<FitEntry>,
    /// Kinds that could not be listed, by their plural: nothing of them is shown, whatever there is.
    pub excluded: Vec<String>,
}

/// The whole in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Nodes.
    pub nodes: u32,
    /// Nodes that take pods: Ready, not cordoned, not being deleted.
    pub usable_nodes: u32,
    /// Accelerators.
    pub accelerators: Accelerators,
    /// Gangs.
    pub gangs: u32,
    /// Gangs that wait.
    pub waiting: u32,
    /// Pods of no gang that wait for a node.
    pub pending_pods: u32,
    /// Micro-dollars per hour of all instances that NodeBatches have now.
    pub usd_micro_per_hour: u64,
    /// Micro-dollars that the NodeBatches shown have cost until now.
    pub spent_usd_micro: u64,
    /// Micro-dollars of that which no gang used.
    pub stranded_usd_micro: u64,
}

/// Accelerators, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct Accelerators {
    /// All.
    pub total: u64,
    /// Held by pods or assigned by plans.
    pub used: u64,
    /// Free on nodes that take pods.
    pub free: u64,
}

/// A topology level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct LevelEntry {
    /// Name in topology requests.
    pub name: String,
    /// Label key.
    pub key: String,
}

/// One domain of a level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct DomainEntry {
    /// Index of its level in `levels`.
    pub level: usize,
    /// Index of its parent in `domains`; null at the top.
    pub parent: Option<usize>,
    /// Its label; null for nodes that lack it.
    pub name: Option<String>,
    /// Labels from the top, joined with `/`.
    pub path: String,
    /// Nodes in it.
    pub nodes: u32,
    /// Nodes that take pods and whose accelerators are all free.
    pub idle_nodes: u32,
    /// Its accelerators.
    pub accelerators: Accelerators,
}

/// What a node is to somebody who looks for capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// All accelerators are free.
    Idle,
    /// Some are.
    Partial,
    /// None is.
    Full,
    /// It has none.
    Plain,
    /// It takes no pods, or not those of everybody: `why` says so.
    Blocked,
}

impl NodeState {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Partial => "partly used",
            Self::Full => "in use",
            Self::Plain => "no accelerators",
            Self::Blocked => "blocked",
        }
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct NodeEntry {
    /// Name.
    pub name: String,
    /// Index in `domains` of the domain right above it; null if the host is the only level.
    pub domain: Option<usize>,
    /// Instance type; empty if the node does not say.
    pub instance_type: String,
    /// NodePool; null for a node of none.
    pub pool: Option<String>,
    /// Whether it has capacity.
    pub state: NodeState,
    /// Why it is blocked; null if it is not.
    pub why: Option<String>,
    /// Resource name of its accelerators; null if it has none.
    pub accelerator: Option<String>,
    /// Its accelerators.
    pub accelerators: Accelerators,
    /// Indices in `gangs` of the gangs that hold capacity here, the largest share first.
    pub gangs: Vec<usize>,
    /// Pods of no gang and of no DaemonSet.
    pub other_pods: u32,
}

/// One gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct GangEntry {
    /// Letters that stand for it on the map.
    pub letters: String,
    /// Namespace.
    pub namespace: String,
    /// Its name as pods or owner write it.
    pub name: String,
    /// Name of its object.
    pub object: String,
    /// Phase of its object; null if there is none yet.
    pub phase: Option<String>,
    /// Whether it waits for something.
    pub waiting: bool,
    /// Members that are bound.
    pub running: u32,
    /// Members expected.
    pub size: u32,
    /// Members needed to start.
    pub minimum: u32,
    /// When its object was created.
    pub created: Option<Timestamp>,
    /// Seconds since then.
    pub age_seconds: Option<i64>,
    /// One sentence, to be read behind the name.
    pub headline: String,
    /// Codes of what is in the way.
    pub codes: Vec<String>,
    /// What would help, each alone, cheapest first.
    pub remedies: Vec<RemedyEntry>,
    /// Domains used per level, as the status has it.
    pub placement: Option<String>,
    /// NodeBatch that is provisioned for it.
    pub batch: Option<String>,
    /// Nodes on which it holds capacity.
    pub nodes: Vec<String>,
    /// Micro-dollars per hour of the nodes provisioned for it.
    pub usd_micro_per_hour: u64,
    /// Micro-dollars they have cost until now.
    pub spent_usd_micro: u64,
    /// Micro-dollars of that while it did not run.
    pub stranded_usd_micro: u64,
}

/// One thing that would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct RemedyEntry {
    /// An instruction, with its price.
    pub text: String,
    /// Whether it is enough alone, as far as the state shows; otherwise whether the gang fits is planned after it.
    pub enough: bool,
    /// What it removes.
    pub codes: Vec<String>,
}

impl GangEntry {
    /// Remedies that are enough, then those that come first, each with what stands above them and the number of the first.
    #[must_use]
    pub fn remedy_groups(&self) -> Vec<(&'static str, usize, &[RemedyEntry])> {
        explain::groups(&self.remedies, |remedy| remedy.enough)
    }
}

/// One NodeBatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct BatchEntry {
    /// Name.
    pub name: String,
    /// Phase.
    pub phase: String,
    /// Gang or ProvisioningRequest it is for, as `namespace/name`; null for neither.
    pub owner: Option<String>,
    /// Nodes provisioned.
    pub count: u32,
    /// Nodes that are Ready.
    pub ready: u32,
    /// Type, once it is known.
    pub instance_type: Option<String>,
    /// Zone, once it is known.
    pub zone: Option<String>,
    /// Capacity type, once it is known.
    pub capacity_type: Option<String>,
    /// Micro-dollars per hour now.
    pub usd_micro_per_hour: u64,
    /// Micro-dollars it has cost until now; of an instance that is being ended, until its end began.
    pub spent_usd_micro: u64,
    /// Micro-dollars of that which no gang used.
    pub stranded_usd_micro: u64,
    /// What it says.
    pub message: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Seconds since then.
    pub age_seconds: Option<i64>,
    /// Every attempt, oldest first.
    pub attempts: Vec<AttemptEntry>,
}

/// One attempt of a NodeBatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct AttemptEntry {
    /// Number, from 1.
    pub number: u32,
    /// Type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: String,
    /// Nodes asked for.
    pub count: u32,
    /// What became of it.
    pub outcome: String,
    /// Error code of EC2.
    pub code: Option<String>,
    /// What EC2 reported.
    pub message: Option<String>,
    /// Start.
    pub started: Option<Timestamp>,
    /// End.
    pub ended: Option<Timestamp>,
}

/// One NodePool, or the nodes of none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct PoolEntry {
    /// Name; null for nodes of no pool.
    pub name: Option<String>,
    /// Condition `Ready`; null if nothing is known.
    pub ready: Option<bool>,
    /// What the condition says.
    pub message: Option<String>,
    /// Nodes.
    pub nodes: u32,
    /// Accelerators of its nodes.
    pub accelerators: Accelerators,
    /// Members of gangs on its nodes.
    pub gang_members: u32,
    /// Other pods on its nodes, those of DaemonSets excluded.
    pub other_pods: u32,
    /// Micro-dollars per hour, as its status has it.
    pub usd_micro_per_hour: u64,
    /// Limits.
    pub limits: Vec<LimitEntry>,
}

/// One limit of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct LimitEntry {
    /// Resource; `nodes` counts nodes.
    pub resource: String,
    /// What the pool's nodes have of it, as a quantity.
    pub used: String,
    /// The limit, as a quantity.
    pub limit: String,
}

/// What one namespace has spent on nodes of one NodePool and capacity type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct SpentEntry {
    /// Namespace; `-` for nodes of pods of no gang, which several namespaces share; `other` for those that a NodePool has no row for.
    pub namespace: String,
    /// NodePool.
    pub node_pool: String,
    /// Capacity type; `unknown` where it is not known.
    pub capacity_type: String,
    /// Micro-dollars.
    pub spent_usd_micro: u64,
    /// Micro-dollars of that which no gang used.
    pub stranded_usd_micro: u64,
}

/// What one node costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct PriceEntry {
    /// Type.
    pub instance_type: String,
    /// Capacity type.
    pub capacity_type: String,
    /// Zone; null: the price is the same in all.
    pub zone: Option<String>,
    /// Micro-dollars per hour.
    pub usd_micro_per_hour: u64,
    /// Where it comes from.
    pub source: String,
    /// The day of the source; null if it has none.
    pub as_of: Option<Timestamp>,
}

/// What fits now at one level, of members that ask for so many accelerators and stand one to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct FitEntry {
    /// Resource name.
    pub accelerator: String,
    /// Accelerators of one member: all that a node of the kind has.
    pub per_node: u64,
    /// Name of the level all members share; null: the whole cluster, which has no zones.
    pub level: Option<String>,
    /// Nodes of the largest gang.
    pub largest: u32,
    /// Where it fits; null if none does.
    pub at: Option<String>,
    /// How many gangs of a size fit at once.
    pub at_once: Vec<AtOnce>,
    /// Domains by how many nodes they have for such members: the fragments.
    pub fragments: Vec<Fragment>,
}

/// How many gangs of one size fit at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct AtOnce {
    /// Nodes of one gang.
    pub nodes: u32,
    /// Gangs.
    pub gangs: u32,
}

/// Domains with equally many nodes for such members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct Fragment {
    /// Nodes of one domain; at least 1.
    pub nodes: u32,
    /// Domains.
    pub domains: u32,
}

impl Overview {
    /// The document as JSON, two spaces deep, with a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("an overview has only strings as keys");
        text.push('\n');
        text
    }

    /// The same with the gangs of one namespace alone, and the NodeBatches that are for them. The numbers of the summary stay
    /// those of the cluster: its nodes are everybody's.
    #[must_use]
    pub fn of_namespace(mut self, namespace: &str) -> Self {
        let mut index = Vec::with_capacity(self.gangs.len());
        let mut next = 0;
        for gang in &self.gangs {
            let stays = gang.namespace == namespace;
            index.push(stays.then_some(next));
            next += usize::from(stays);
        }
        self.gangs.retain(|gang| gang.namespace == namespace);
        for node in &mut self.nodes {
            node.gangs = node.gangs.iter().filter_map(|old| index.get(*old).copied().flatten()).collect();
        }
        let is_for = |owner: &str| owner.split_once('/').is_some_and(|(of, _)| of == namespace);
        self.batches.retain(|batch| batch.owner.as_deref().is_some_and(is_for));
        self
    }

    /// Children of a domain, or those at the top.
    pub fn children(&self, parent: Option<usize>) -> impl Iterator<Item = (usize, &DomainEntry)> {
        self.domains.iter().enumerate().filter(move |(_, domain)| domain.parent == parent)
    }

    /// Nodes right below a domain, or all where the host is the only level.
    pub fn hosts(&self, domain: Option<usize>) -> impl Iterator<Item = &NodeEntry> {
        self.nodes.iter().filter(move |node| node.domain == domain)
    }
}

impl Accelerators {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            used: self.used.saturating_add(other.used),
            free: self.free.saturating_add(other.free),
        }
    }
}

/// Letters for the gang with this index: A to Z, then AA.
#[must_use]
pub fn letters(index: usize) -> String {
    let mut rest = index;
    let mut reversed = Vec::new();
    loop {
        reversed.push(char::from(b'A' + u8::try_from(rest % 26).unwrap_or_default()));
        match rest / 26 {
            0 => break,
            more => rest = more - 1,
        }
    }
    reversed.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::letters;

    #[test]
    fn every_gang_has_letters_of_its_own() {
        assert_eq!([0, 25, 26, 51, 52, 701, 702].map(letters), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }
}
