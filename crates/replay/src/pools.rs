//! NodePools of a dump: what each may provision, in which zones and on which capacity types, and what is left of its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::crd::{EC2NodeClass, NodePool, NodeRequirementOperator, condition};
use muster_api::supply::{self, Supplied};
use muster_api::{convert, keys, new_node, node_class, pool as rules, pool_check};
use muster_core::devices::Daemon;
use muster_core::ec2::{CapacityType, Subnet, Tags};
use muster_core::gang::PoolView;
use muster_core::model::node::Node;
use muster_core::model::pod::Shape;
use muster_core::offering::{
    Amounts, Candidate, Ceiling, InstanceTypeInfo, Ledger, LedgerInputs, Need, NewNode, PoolLimits, PoolOffer,
    PoolType, PriceBook, counted,
};

use crate::catalogue::Catalogue;
use crate::dump::Dump;

/// Kind of the classes that pools refer to.
const CLASS: &str = "EC2NodeClass";

/// A pool that may provision.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Name.
    pub(crate) name: String,
    object: NodePool,
    class: Option<EC2NodeClass>,
    /// Empty: not known.
    zones: BTreeSet<String>,
    /// Types that it allows and the class can launch.
    types: Vec<InstanceTypeInfo>,
    daemons: Arc<[Shape]>,
}

impl Pool {
    fn supplied(&self) -> Supplied<'_> {
        Supplied { pool: &self.object, class: self.class.as_ref(), zones: &self.zones }
    }

    /// As the gang pass sees it.
    pub(crate) fn view(&self, prices: &PriceBook, ledger: &Ledger) -> PoolView {
        self.supplied().view(self.types.iter(), prices, &self.daemons, ledger, false)
    }

    /// As the ranking sees it in these zones; in all of its own if none is named. A dump tells nothing of free hosts of
    /// reservations, so none is known to have any; a zone that is not known has no name.
    pub(crate) fn offer(&self, zones: &[Arc<str>], ledger: &Ledger) -> PoolOffer {
        let mut offer = self.supplied().offer(self.types.iter(), Vec::new(), Vec::new(), ledger);
        if offer.zones.is_empty() {
            offer.zones = zones.iter().map(ToString::to_string).collect();
        }
        if offer.zones.is_empty() {
            offer.zones.insert(String::new());
        }
        offer.zones.retain(|zone| zones.is_empty() || zones.iter().any(|one| **one == **zone));
        let listed = self.class.as_ref().map(supply::subnets).unwrap_or_default();
        // A class that was written by hand says nothing of subnets, or nothing of their addresses.
        let unlimited = listed.iter().all(|subnet| subnet.free_addresses == 0);
        offer.subnets =
            if unlimited { offer.zones.iter().map(|zone| unlimited_subnet(zone)).collect() } else { listed };
        offer
    }

    /// Whether it may provision nothing but what is reserved.
    pub(crate) fn is_only_reserved(&self) -> bool {
        self.only() == Some(CapacityType::Reserved)
    }

    /// The only capacity type that it may provision, if there is but one.
    pub(crate) fn only(&self) -> Option<CapacityType> {
        match *rules::capacity_types(&self.object) {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The same with on-demand capacity allowed; `None` if it is, or if a value is not all that it takes.
    pub(crate) fn with_on_demand(&self) -> Option<Self> {
        if rules::capacity_types(&self.object).contains(&CapacityType::OnDemand) {
            return None;
        }
        let mut changed = self.clone();
        let all = changed.object.spec.template.spec.requirements.iter_mut();
        let mut stated = all.filter(|requirement| requirement.key == keys::CAPACITY_TYPE);
        let values = stated.next().filter(|one| one.operator == NodeRequirementOperator::In)?;
        values.values.push(CapacityType::OnDemand.as_str().to_owned());
        if stated.next().is_some() {
            return None;
        }
        Some(changed)
    }

    /// The same with further labels of its nodes.
    pub(crate) fn with_labels(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> Self {
        let mut changed = self.clone();
        let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        changed.object.spec.template.metadata.labels.extend(labels);
        changed
    }

    /// Whether neither a label nor a requirement of it names the key.
    pub(crate) fn leaves_open(&self, key: &str) -> bool {
        let template = &self.object.spec.template;
        !template.metadata.labels.contains_key(key) && rules::of_key(&self.object, key).next().is_none()
    }

    /// What so many nodes of a type need of the ranking.
    pub(crate) fn need(&self, instance_type: &str, nodes: u32) -> Option<(PoolType, Need)> {
        self.supplied().need(self.info(instance_type)?, nodes)
    }

    /// A node of a type as it registers.
    pub(crate) fn node(&self, candidate: &Candidate) -> Option<NewNode> {
        let zone = Some(candidate.zone.as_str()).filter(|zone| !zone.is_empty());
        let place =
            new_node::Place { zone, capacity_type: Some(candidate.capacity_type), ..new_node::Place::default() };
        let info = self.info(&candidate.instance_type)?;
        new_node::of_pool(&self.object, self.class.as_ref(), info, place, &self.daemons).ok()
    }

    fn info(&self, instance_type: &str) -> Option<&InstanceTypeInfo> {
        self.types.iter().find(|info| info.name == instance_type)
    }
}

/// A subnet of which nobody says how many addresses it has free.
fn unlimited_subnet(zone: &str) -> Subnet {
    let (zone, tags) = (zone.to_owned(), Tags::new());
    Subnet {
        id: String::new(),
        zone,
        zone_id: String::new(),
        free_addresses: u32::MAX,
        vpc_id: String::new(),
        ipv6: true,
        tags,
    }
}

/// What the pools have left beside the nodes of the dump that carry their labels, at the catalogue's prices. Of a type that
/// the catalogue does not know, what its node offers is all that is known. The ceiling of the cluster is that which its server wrote on the
/// pools; nothing is known of one in a dump without them.
pub(crate) fn ledger<'n>(pools: &[Pool], nodes: impl Iterator<Item = &'n Node>, catalogue: &Catalogue) -> Ledger {
    let limits = |pool: &Pool| {
        // A pool of which these cannot be read is not kept.
        let limits = PoolLimits {
            limits: rules::limits(&pool.object).unwrap_or_default(),
            max_micro_usd_per_hour: rules::max_usd_per_hour(&pool.object).unwrap_or_default(),
        };
        (pool.name.clone(), limits)
    };
    let pools_of = pools.iter().map(limits).collect();
    let cluster = pools.iter().find_map(|pool| rules::cluster_ceiling(&pool.object));
    let inputs = LedgerInputs { pools: pools_of, cluster: cluster.unwrap_or(Ceiling::Unlimited), claims: Vec::new() };
    let mut ledger = Ledger::new(&inputs, None);
    for (pool, amounts) in nodes.filter_map(|node| takes(pools, node, catalogue)) {
        ledger.take(pool, &amounts);
    }
    ledger
}

/// What a node takes of its pool, if it is of one.
pub(crate) fn takes<'p>(pools: &'p [Pool], node: &Node, catalogue: &Catalogue) -> Option<(&'p str, Amounts)> {
    let label = |key: &str| node.labels.get(key).map(|value| &**value).unwrap_or_default();
    let pool = pools.iter().find(|pool| pool.name == label(keys::NODEPOOL))?;
    let instance_type = label(keys::INSTANCE_TYPE);
    let capacity = match (catalogue.types.get(instance_type), catalogue.described.get(instance_type)) {
        (Some(info), _) => new_node::of_class(pool.class.as_ref(), info).capacity,
        (None, Some(described)) => described.capacity.clone(),
        (None, None) => node.allocatable.clone(),
    };
    let capacity_type = CapacityType::parse(label(keys::CAPACITY_TYPE)).unwrap_or(CapacityType::OnDemand);
    let price = catalogue.price(instance_type, label(keys::ZONE), capacity_type).unwrap_or(0);
    Some((pool.name.as_str(), Amounts::of_nodes(&counted(&capacity), price, 1)))
}

/// Why a pool is passed over.
enum Unusable {
    /// It, or its class, is not Ready: why.
    NotReady(String),
    /// What it asks for is not understood, or nothing meets it.
    Wrong(String),
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

/// The pools of a dump in order of name, and those that are not Ready with the reason. Every one that cannot be used is reported and
/// passed over.
pub(crate) fn read(dump: &mut Dump, catalogue: &Catalogue, nodes: &[Node]) -> (Vec<Pool>, Vec<(String, String)>) {
    let (mut pools, mut not_ready) = (Vec::new(), Vec::new());
    let mut unusable = Vec::new();
    let daemons: Vec<Daemon> = dump.daemon_sets.iter().filter_map(convert::daemon).collect();
    let shapes: Arc<[Shape]> = daemons.iter().map(|daemon| daemon.shape.clone()).collect();
    if daemons.iter().any(|daemon| daemon.prefixes) {
        // The server writes it into the status of classes, of which those in files alone have none.
        for class in &mut dump.classes {
            class.status.get_or_insert_default().prefix_delegation = true;
        }
    }
    let known_zones: BTreeSet<&str> =
        nodes.iter().filter_map(|node| node.labels.get(keys::ZONE).map(|zone| &**zone)).collect();
    let unread = dump.ignored.iter().filter(|one| one.kind == CLASS).map(|one| (one.name.as_str(), one.why.as_str()));
    // Of one that is there twice the first was read.
    let is_known = |name: &str| dump.classes.iter().any(|class| class.metadata.name.as_deref() == Some(name));
    let unread: BTreeMap<&str, &str> = unread.filter(|(name, _)| !is_known(name)).collect();
    let mut sorted: Vec<&NodePool> = dump.pools.iter().collect();
    sorted.sort_by_key(|pool| name(pool));
    for pool in sorted {
        match one(pool, &dump.classes, catalogue, &known_zones, (&daemons, &shapes), &unread) {
            Ok(pool) => pools.push(pool),
            Err(Unusable::NotReady(why)) => {
                not_ready.push((name(pool).to_owned(), why.clone()));
                unusable.push((name(pool).to_owned(), format!("is not Ready: {why}")));
            }
            Err(Unusable::Wrong(why)) => unusable.push((name(pool).to_owned(), why)),
        }
    }
    for (name, why) in unusable {
        dump.ignore("NodePool".to_owned(), name, why);
    }
    (pools, not_ready)
}

/// Muster's key for one of Karpenter's that no type of the catalogue carries; a key that types carry is a fact of theirs.
fn in_our_words(key: &str, catalogue: &Catalogue) -> Option<String> {
    let ours = match key.strip_prefix(keys::KARPENTER_INSTANCE) {
        Some(fact) => format!("{}instance-{fact}", keys::PREFIX),
        None if key == keys::KARPENTER_CAPACITY_TYPE => keys::CAPACITY_TYPE.to_owned(),
        None => return None,
    };
    (!catalogue.described.values().any(|known| known.labels.contains_key(key))).then_some(ours)
}

/// What pools require in Karpenter's words, in Muster's: nodes that carry both are what both say.
pub(crate) fn translate(pools: &mut [NodePool], catalogue: &Catalogue) {
    for requirement in pools.iter_mut().flat_map(|pool| &mut pool.spec.template.spec.requirements) {
        if let Some(ours) = in_our_words(&requirement.key, catalogue) {
            requirement.key = ours;
        }
    }
}

/// The first requirement in Karpenter's words that asks for a label: no node would carry it, and as a key of the pool's own it would
/// say of the machine what is not so.
fn in_others_words(pool: &NodePool, catalogue: &Catalogue) -> Option<String> {
    let asks = |operator: NodeRequirementOperator| {
        !matches!(operator, NodeRequirementOperator::NotIn | NodeRequirementOperator::DoesNotExist)
    };
    let requirements = pool.spec.template.spec.requirements.iter().enumerate();
    let theirs = requirements.filter(|(_, one)| asks(one.operator));
    theirs.filter_map(|(index, one)| Some((index, &one.key, in_our_words(&one.key, catalogue)?))).next().map(
        |(index, key, ours)| {
            format!(
                "spec.template.spec.requirements[{index}].key: \"{key}\" is on no node; require {ours}, or plan with --karpenter-labels"
            )
        },
    )
}

/// A pool that nobody has made yet: every type of the catalogue, without taints, labels and limits.
pub(crate) fn hypothetical(catalogue: &Catalogue, zones: &[Arc<str>]) -> Option<Pool> {
    let reference = serde_json::json!({"group": "muster.dev", "kind": "EC2NodeClass", "name": "new"});
    let spec = serde_json::json!({"template": {"spec": {"nodeClassRef": reference}}});
    Some(Pool {
        name: "new".to_owned(),
        object: NodePool::new("new", serde_json::from_value(spec).ok()?),
        class: None,
        zones: zones.iter().map(ToString::to_string).collect(),
        types: catalogue.types.values().cloned().collect(),
        daemons: Arc::default(),
    })
}

pub(crate) fn name(pool: &NodePool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

fn one(
    pool: &NodePool,
    classes: &[EC2NodeClass],
    catalogue: &Catalogue,
    known_zones: &BTreeSet<&str>,
    (daemons, shapes): (&[Daemon], &Arc<[Shape]>),
    unread: &BTreeMap<&str, &str>,
) -> Result<Pool, Unusable> {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if let Some(why) = why_not_ready(conditions) {
        return Err(Unusable::NotReady(why.to_owned()));
    }
    if pool.metadata.deletion_timestamp.is_some() {
        return Err("is being deleted".to_owned().into());
    }
    let reference = &pool.spec.template.spec.node_class_ref;
    let class = classes.iter().find(|class| class.metadata.name.as_deref() == Some(reference.name.as_str()));
    let of_class = class.and_then(|class| class.status.as_ref()).map(|status| status.conditions.as_slice());
    if let Some(why) = why_not_ready(of_class.unwrap_or_default()) {
        return Err(Unusable::NotReady(format!("EC2NodeClass {}: {why}", reference.name)));
    }
    pool_check::read(pool)?;
    if let Some(why) = in_others_words(pool, catalogue) {
        return Err(why.into());
    }
    let known = [(&reference.group, keys::GROUP, "group"), (&reference.kind, CLASS, "kind")];
    for (stated, known, field) in known {
        if !stated.is_empty() && stated != known {
            let why = format!("spec.template.spec.nodeClassRef.{field}: \"{stated}\" is not {known}");
            return Err(why.into());
        }
    }
    if let Some(why) = unread.get(reference.name.as_str()) {
        return Err(format!("spec.template.spec.nodeClassRef: {CLASS} {} cannot be read: {why}", reference.name).into());
    }
    if let Some(class) = class {
        node_class::kubelet(class).map_err(|why| format!("{CLASS} {}: {why}", reference.name))?;
    }
    let types: Vec<InstanceTypeInfo> =
        catalogue.types.values().filter(|info| rules::allows_type(pool, info)).cloned().collect();
    // Types that are described by labels alone are for ordinary pods; whether any is allowed is found there.
    let described = !catalogue.described.is_empty();
    if types.is_empty() && !described {
        return Err(catalogue.no_type_meets(pool).into());
    }
    let others = catalogue.described.values().map(|known| &known.capacity);
    if let Some(why) = rules::unknown_limit_of(pool, types.iter(), others) {
        return Err(why.into());
    }
    let (first, mut launched) = (types.first().cloned(), types);
    launched.retain(|info| launches(class, info));
    if let (Some(class), Some(first), true) = (class, &first, launched.is_empty() && !described) {
        return Err(supply::why_not_launched(class, first).into());
    }
    if let Some(class) = class {
        let blocked = supply::blocked_devices(pool, class, daemons);
        let first = launched.iter().find_map(|info| supply::blocks(&blocked, class, info));
        launched.retain(|info| supply::blocks(&blocked, class, info).is_none());
        if let (Some(why), true) = (first, launched.is_empty() && !described) {
            return Err(why.to_string().into());
        }
    }
    let zones = zones(pool, class, &catalogue.zones, known_zones);
    if zones.is_empty() {
        launched.clear();
    }
    Ok(Pool {
        name: name(pool).to_owned(),
        object: pool.clone(),
        class: class.cloned(),
        zones: zones.into_iter().flatten().collect(),
        types: launched,
        daemons: Arc::clone(shapes),
    })
}

/// Why something is not Ready, if its status says so: who has no such condition was written by hand, and is.
fn why_not_ready(conditions: &[Condition]) -> Option<&str> {
    condition(conditions, "Ready").filter(|one| one.status != "True").map(|one| one.message.as_str())
}

/// Whether the class can launch a type, as far as the dump says: one that was written by hand has resolved no images.
fn launches(class: Option<&EC2NodeClass>, info: &InstanceTypeInfo) -> bool {
    let Some(class) = class else { return true };
    let resolved = class.status.as_ref().is_some_and(|status| !status.amis.is_empty());
    if resolved { supply::launches(class, info) } else { node_class::interfaces_fit(class, info).is_ok() }
}

/// Zones of the class's subnets, else those of the catalogue, else those the requirements name, else those of the nodes, else one
/// unknown. A class of which no subnets are known has one in every zone of the catalogue.
pub(crate) fn zones(
    pool: &NodePool,
    class: Option<&EC2NodeClass>,
    of_catalogue: &BTreeSet<String>,
    known: &BTreeSet<&str>,
) -> Vec<Option<String>> {
    let subnets = class.and_then(|class| class.status.as_ref()).map(|status| status.subnets.as_slice());
    let mut zones: BTreeSet<&str> = subnets.unwrap_or_default().iter().map(|subnet| subnet.zone.as_str()).collect();
    if zones.is_empty() {
        zones = of_catalogue.iter().map(String::as_str).collect();
    }
    if zones.is_empty() {
        let named = rules::of_key(pool, keys::ZONE)
            .filter(|topology_request| topology_request.operator == NodeRequirementOperator::In);
        zones = named.flat_map(|topology_request| topology_request.values.iter().map(String::as_str)).collect();
    }
    if zones.is_empty() {
        zones.clone_from(known);
    }
    if zones.is_empty() && rules::of_key(pool, keys::ZONE).next().is_none() {
        return vec![None];
    }
    zones.into_iter().filter(|zone| rules::allows_zone(pool, zone)).map(|zone| Some(zone.to_owned())).collect()
}
