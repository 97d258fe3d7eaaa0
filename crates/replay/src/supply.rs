//! What NodePools of a dump offer to ordinary pods: every type of the catalogue, in every zone, of every capacity type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::crd::{EC2NodeClass, NodePool};
use muster_api::{convert, keys, node_class, pool as rules};
use muster_core::ec2::CapacityType;
use muster_core::fit;
use muster_core::model::names::{NodeName, ResourceName};
use muster_core::model::node::{Node, Taint, Usage};
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::offering::{ClassTemplate, NODES, Requirements, UsageClass};
use muster_core::packing;
use muster_core::topology::{beside_zone, region_of};

use crate::catalogue::{Catalogue, Described, Offering};
use crate::dump::Dump;
use crate::options::Options;
use crate::pools;

/// Most combinations of custom labels of one pool.
const VARIANTS: usize = 64;

/// Labels of a node.
type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Why an offer that a pool allows is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Withheld {
    /// Nobody knows its price.
    Unpriced,
    /// EC2 had no capacity for it lately.
    Unavailable,
    /// No reservation of it is known.
    Unreserved,
    /// Its reservation has no free host.
    Full,
}

/// Pools and offers, with what each pool's limits are.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    /// Pools in order of name.
    pub(crate) pools: Vec<packing::Pool>,
    /// Per pool: limits, and what nodes of the dump count.
    pub(crate) limits: Vec<BTreeMap<ResourceName, (i64, i64)>>,
    /// Offers.
    pub(crate) offers: Vec<packing::Offer>,
    /// What the pools allow and is not to be had.
    pub(crate) withheld: Vec<(packing::Offer, Withheld)>,
    /// Pools that are not Ready, with the reason.
    pub(crate) not_ready: Vec<(String, String)>,
    /// Per pool: taints that its nodes register with and that somebody else removes.
    pub(crate) startup_taints: Vec<Vec<Taint>>,
    /// Hardware of the catalogue's types.
    capacity: BTreeMap<String, Resources>,
    /// Nodes of the catalogue's types as of no pool.
    bare: BTreeMap<String, Node>,
    /// What nodes of each pool of the dump register with, of those that cannot be used too.
    templates: BTreeMap<String, (Labels, Vec<Taint>)>,
    daemons: Vec<Shape>,
}

impl Supply {
    /// The pools that can be used, `usable` by name. A pool of which no type, or nothing at all, can be understood is
    /// reported.
    pub(crate) fn read(dump: &mut Dump, options: &Options, nodes: &[Node], usable: &BTreeSet<String>) -> Self {
        let catalogue = &options.catalogue;
        let mut supply = Self::default();
        let daemons = dump.daemon_sets.iter().filter_map(convert::daemon);
        let daemons: Vec<Shape> = daemons.map(|daemon| daemon.shape).collect();
        let known_zones: BTreeSet<&str> =
            nodes.iter().filter_map(|node| node.labels.get(keys::ZONE).map(|zone| &**zone)).collect();
        for (name, known) in catalogue.all(&ClassTemplate::default()) {
            supply.bare.insert(name.to_owned(), bare(name, &known));
            supply.capacity.insert(name.to_owned(), known.capacity);
        }
        for pool in &dump.pools {
            let template = (rules::labels(pool), rules::taints(pool).unwrap_or_default());
            supply.templates.insert(pools::name(pool).to_owned(), template);
        }
        let mut unusable = Vec::new();
        let mut sorted: Vec<&NodePool> = dump.pools.iter().filter(|pool| usable.contains(pools::name(pool))).collect();
        sorted.sort_by_key(|pool| pools::name(pool));
        for pool in sorted {
            let reference = &pool.spec.template.spec.node_class_ref.name;
            let class = dump.classes.iter().find(|class| class.metadata.name.as_ref() == Some(reference));
            if let Err(why) = supply.pool(pool, class, catalogue, nodes, &known_zones, &daemons) {
                unusable.push((pools::name(pool).to_owned(), why));
            }
        }
        if options.karpenter_labels {
            let withheld = supply.withheld.iter_mut().map(|(offer, _)| offer);
            supply.offers.iter_mut().chain(withheld).for_each(karpenter_labels);
        }
        for (name, why) in unusable {
            dump.ignore("NodePool".to_owned(), name, why);
        }
        supply.daemons = daemons;
        supply
    }

    /// Adds a pool.
    ///
    /// Errors: field and value of what cannot be used.
    fn pool(
        &mut self,
        pool: &NodePool,
        class: Option<&EC2NodeClass>,
        catalogue: &Catalogue,
        nodes: &[Node],
        known_zones: &BTreeSet<&str>,
        daemons: &[Shape],
    ) -> Result<(), String> {
        let requirements = rules::requirements(pool)?;
        let template = rules::labels(pool);
        let types = catalogue.all(&class.map(node_class::template).unwrap_or_default());
        let keys: BTreeSet<&str> = types.values().flat_map(|known| known.labels.keys().map(String::as_str)).collect();
        let variants = variants(&requirements, &template, &keys)?;
        let mut limits: BTreeMap<ResourceName, (i64, i64)> =
            rules::limits(pool)?.into_iter().map(|(name, limit)| (name, (limit, 0))).collect();
        let own =
            nodes.iter().filter(|node| node.labels.get(keys::NODEPOOL).is_some_and(|of| **of == *pools::name(pool)));
        for node in own {
            for (name, (_, used)) in &mut limits {
                *used = used.saturating_add(self.counts(node, name));
            }
        }
        let subnets: BTreeSet<&str> = class
            .and_then(|class| class.status.as_ref())
            .map(|status| status.subnets.iter().map(|subnet| subnet.zone.as_str()).collect())
            .unwrap_or_default();
        let zones = pools::zones(pool, class, &catalogue.zones, known_zones);
        let index = self.pools.len();
        let allowed = |supply: &Self| supply.offers.len() + supply.withheld.len();
        let before = allowed(self);
        let taints = rules::taints(pool)?;
        let startup_taints = rules::startup_taints(pool)?;
        for (name, known) in &types {
            if !allows(&requirements, &template, known, &keys) {
                continue;
            }
            for offering in offered(name, known, catalogue, &zones) {
                let in_subnets =
                    subnets.is_empty() || offering.zone.as_deref().is_some_and(|zone| subnets.contains(zone));
                let zone_allowed = match &offering.zone {
                    Some(zone) => allows_zone(&requirements, &template, known, zone),
                    None => true,
                };
                let sold = requirements.allows(keys::CAPACITY_TYPE, Some(offering.capacity_type.as_str()));
                if !(in_subnets && zone_allowed && sold) {
                    continue;
                }
                for (variant, custom) in (0..).zip(&variants) {
                    let of = (&template, custom, &taints[..]);
                    let offer = offer((index, variant), name, known, &offering, of, daemons);
                    match offering.withheld {
                        None => self.offers.push(offer),
                        Some(why) => self.withheld.push((offer, why)),
                    }
                }
            }
        }
        if allowed(self) == before {
            return Err(catalogue.no_type_meets(pool));
        }
        self.pools.push(packing::Pool {
            name: pools::name(pool).into(),
            weight: pool.spec.weight.unwrap_or(0),
            left: limits.iter().map(|(name, (limit, used))| (name.clone(), limit.saturating_sub(*used))).collect(),
            min_values: rules::min_values(pool),
        });
        self.startup_taints.push(startup_taints);
        self.limits.push(limits);
        Ok(())
    }

    /// What a node counts of a limit: what its hardware has, where the catalogue knows it.
    fn counts(&self, node: &Node, limit: &ResourceName) -> i64 {
        if limit.as_str() == NODES {
            return 1;
        }
        let hardware = node.labels.get(keys::INSTANCE_TYPE).and_then(|name| self.capacity.get(&**name));
        hardware.unwrap_or(&node.allocatable).get(limit.as_str())
    }

    /// A node that is on its way counts as one that is there.
    fn comes(&mut self, node: &Node) {
        let Some(pool) = node.labels.get(keys::NODEPOOL) else { return };
        let Some(index) = self.pools.iter().position(|known| known.name == *pool) else { return };
        let each: Vec<(ResourceName, i64)> =
            self.limits[index].keys().map(|name| (name.clone(), self.counts(node, name))).collect();
        self.uses(index, each.iter().map(|(name, each)| (name, *each)));
    }

    /// What is on its way counts as if it were there, and pools by what NodeBatches may take of them beyond that.
    pub(crate) fn expect<'n>(&mut self, nodes: impl Iterator<Item = &'n Node>, beyond: &[(&str, Resources)]) {
        nodes.for_each(|node| self.comes(node));
        for (pool, amounts) in beyond {
            if let Some(index) = self.pools.iter().position(|known| *known.name == **pool) {
                self.uses(index, amounts.iter());
            }
        }
    }

    /// So much of a pool's limits is taken.
    fn uses<'n>(&mut self, index: usize, amounts: impl Iterator<Item = (&'n ResourceName, i64)>) {
        for (name, amount) in amounts {
            if let Some((_, used)) = self.limits[index].get_mut(name) {
                *used = used.saturating_add(amount);
            }
            if let Some(left) = self.pools[index].left.get_mut(name) {
                *left = left.saturating_sub(amount);
            }
        }
    }

    /// A node of a type as its pool offers it, with what its DaemonSets hold; where the very offer is not to be had any more,
    /// as another of the type is, and where the pool is gone or offers the type no more, as the catalogue has it. `None`: nobody knows
    /// the type.
    pub(crate) fn offer(
        &self,
        pool: &str,
        instance_type: &str,
        zone: Option<&str>,
        capacity_type: Option<CapacityType>,
    ) -> Option<(Node, Usage)> {
        let index = self.pools.iter().position(|known| *known.name == *pool);
        let of_type =
            self.offers.iter().filter(|offer| Some(offer.pool) == index && *offer.instance_type == *instance_type);
        let differs = |offer: &&packing::Offer| {
            let elsewhere = zone.is_some() && offer.zone.as_deref() != zone;
            (elsewhere, capacity_type.is_some_and(|capacity_type| capacity_type != offer.capacity_type))
        };
        let offer = of_type.min_by_key(differs);
        let mut node = match offer {
            Some(offer) => Node::clone(&offer.node),
            None => self.without_offer(pool, instance_type)?,
        };
        if let Some(zone) = zone {
            node.labels.insert(keys::ZONE.into(), zone.into());
            node.labels.extend(beside_zone(zone).map(|(key, value)| (Arc::from(key), Arc::from(value))));
        }
        if let Some(capacity_type) = capacity_type {
            node.labels.insert(keys::CAPACITY_TYPE.into(), capacity_type.as_str().into());
        }
        node.labels.insert(keys::NODEPOOL.into(), pool.into());
        // Other DaemonSets may run where the offer is from.
        let overhead = overhead(&self.daemons, &node);
        Some((node, overhead))
    }

    /// A node of a type that is not offered: as its pool says, if that is still there.
    fn without_offer(&self, pool: &str, instance_type: &str) -> Option<Node> {
        let mut node = self.bare.get(instance_type)?.clone();
        if let Some((labels, taints)) = self.templates.get(pool) {
            node.labels.extend(labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
            node.taints.clone_from(taints);
        }
        Some(node)
    }

    /// Nodes that are launched for gangs count too.
    pub(crate) fn launched(&mut self, pool: &str, instance_type: &str, count: u32) {
        let Some(index) = self.pools.iter().position(|known| &*known.name == pool) else { return };
        let hardware = self.capacity.get(instance_type);
        for (name, left) in &mut self.pools[index].left {
            let each = if name.as_str() == NODES { 1 } else { hardware.map_or(0, |all| all.get(name.as_str())) };
            *left = left.saturating_sub(each.saturating_mul(i64::from(count)));
        }
    }
}

/// Where and for how much a node is sold.
struct Sold {
    zone: Option<String>,
    capacity_type: CapacityType,
    reservation: Option<String>,
    free: Option<u32>,
    /// As lists have it, for what is reserved too.
    list_price: u64,
    /// Why it is not.
    withheld: Option<Withheld>,
}

/// Whether the pool's requirements hold for a type with the pool's own labels. Zone and capacity type are of the offering, a
/// custom key of the variant.
fn allows(requirements: &Requirements, template: &Labels, known: &Described, keys: &BTreeSet<&str>) -> bool {
    let later = [keys::ZONE, keys::CAPACITY_TYPE, keys::REGION, keys::EBS_ZONE];
    requirements.iter().filter(|(key, _)| !later.contains(&&***key)).all(|(key, values)| {
        let label = known.labels.get(&**key).map(String::as_str).or_else(|| template.get(key).map(|value| &**value));
        // A pool that lists values of a key that no type knows defines the label by that.
        label.map_or_else(
            || values.contains(None) || !keys::is_known(key) && !keys.contains(&**key) && values.finite().is_some(),
            |label| values.contains(Some(label)),
        )
    })
}

/// Whether the pool's requirements allow a zone, by whichever label of its nodes; what a type or the pool itself says is so.
fn allows_zone(requirements: &Requirements, template: &Labels, known: &Described, zone: &str) -> bool {
    let stated =
        |key: &str| known.labels.get(key).map(String::as_str).or_else(|| template.get(key).map(|value| &**value));
    let derived = [(keys::REGION, region_of(zone)), (keys::EBS_ZONE, Some(zone))];
    requirements.allows(keys::ZONE, Some(zone))
        && derived.into_iter().all(|(key, value)| requirements.allows(key, stated(key).or(value)))
}

/// Every combination of values of the custom labels that a pool leaves open, the smallest first.
///
/// Errors: a key that is required to be there and has no value; too many combinations.
fn variants(requirements: &Requirements, template: &Labels, known: &BTreeSet<&str>) -> Result<Vec<Labels>, String> {
    let mut all = vec![BTreeMap::new()];
    for (key, values) in requirements.iter() {
        if keys::is_known(key) || known.contains(&**key) || template.contains_key(key) || values.contains(None) {
            continue;
        }
        let Some(values) = values.finite() else {
            return Err(format!(
                "spec.template.spec.requirements: {key}: no value is named, and nothing else defines one"
            ));
        };
        let values: Vec<&Arc<str>> = values.collect();
        let with = |one: &Labels, value: &Arc<str>| {
            let mut one = one.clone();
            one.insert(Arc::clone(key), Arc::clone(value));
            one
        };
        all = all.iter().flat_map(|one| values.iter().map(move |value| with(one, value))).collect();
        if all.len() > VARIANTS {
            return Err(format!(
                "spec.template.spec.requirements: {key}: more than {VARIANTS} combinations of custom labels"
            ));
        }
    }
    Ok(all)
}

/// Every way a type is sold, or would be: as its offerings say, else in each zone at the price that is known.
fn offered(name: &str, known: &Described, catalogue: &Catalogue, zones: &[Option<String>]) -> Vec<Sold> {
    if let Some(offerings) = &known.offerings {
        let sold = |one: &Offering| Sold {
            zone: Some(one.zone.clone()),
            capacity_type: one.capacity_type,
            reservation: one.reservation.clone(),
            free: one.free,
            list_price: one.usd_micro_per_hour,
            withheld: match (one.available, one.free) {
                (false, _) => Some(Withheld::Unavailable),
                (true, Some(0)) => Some(Withheld::Full),
                (true, _) => None,
            },
        };
        return offerings.iter().map(sold).collect();
    }
    let classes = catalogue.types.get(name).map(|info| &info.usage_classes);
    let mut found = Vec::new();
    for zone in zones {
        for capacity_type in [CapacityType::Spot, CapacityType::OnDemand, CapacityType::Reserved] {
            let class = if capacity_type == CapacityType::Spot { UsageClass::Spot } else { UsageClass::OnDemand };
            if classes.is_some_and(|classes| !classes.contains(&class)) {
                continue;
            }
            let price = catalogue.prices.price(name, zone.as_deref().unwrap_or_default(), capacity_type);
            let withheld = match (capacity_type, price) {
                // Reservations are offerings, or nobody knows of them.
                (CapacityType::Reserved, _) => Some(Withheld::Unreserved),
                (CapacityType::Spot | CapacityType::OnDemand, None) => Some(Withheld::Unpriced),
                (CapacityType::Spot | CapacityType::OnDemand, Some(_)) => None,
            };
            let (reservation, free) = (None, None);
            let (zone, list_price) = (zone.clone(), price.unwrap_or(0));
            found.push(Sold { zone, capacity_type, reservation, free, list_price, withheld });
        }
    }
    found
}

/// Adds the labels by which Karpenter says the same.
fn karpenter_labels(offer: &mut packing::Offer) {
    let node = Arc::make_mut(&mut offer.node);
    let added: Labels = node
        .labels
        .iter()
        .filter_map(|(key, value)| {
            let theirs = if &**key == keys::CAPACITY_TYPE {
                keys::KARPENTER_CAPACITY_TYPE.to_owned()
            } else {
                format!("{}{}", keys::KARPENTER_INSTANCE, key.strip_prefix(keys::PREFIX)?.strip_prefix("instance-")?)
            };
            Some((Arc::from(theirs), Arc::clone(value)))
        })
        .collect();
    node.labels.extend(added);
}

type Common<'a> = (&'a Labels, &'a Labels, &'a [Taint]);

fn offer(
    (pool, variant): (usize, u32),
    name: &str,
    known: &Described,
    sold: &Sold,
    (template, custom, taints): Common<'_>,
    daemons: &[Shape],
) -> packing::Offer {
    let mut labels = template.clone();
    labels.extend(known.labels.iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))));
    labels.extend(custom.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
    labels.insert(keys::CAPACITY_TYPE.into(), sold.capacity_type.as_str().into());
    if let Some(zone) = &sold.zone {
        labels.insert(keys::ZONE.into(), zone.as_str().into());
        for (key, value) in beside_zone(zone) {
            labels.entry(key.into()).or_insert_with(|| value.into());
        }
    }
    if let Some(reservation) = &sold.reservation {
        labels.insert(keys::CAPACITY_RESERVATION_ID.into(), reservation.as_str().into());
    }
    let node = Node { labels, taints: taints.to_vec(), ..bare(name, known) };
    let overhead = overhead(daemons, &node);
    packing::Offer {
        pool,
        variant,
        instance_type: name.into(),
        zone: sold.zone.as_deref().map(Arc::from),
        capacity_type: sold.capacity_type,
        reservation: sold.reservation.as_deref().map(Arc::from),
        free: sold.free,
        // A reservation is paid for anyway.
        price: if sold.capacity_type == CapacityType::Reserved { 0 } else { sold.list_price },
        list_price: sold.list_price,
        node: Arc::new(node),
        overhead,
        capacity: known.capacity.clone(),
    }
}

/// A node of a type as the catalogue has it.
fn bare(name: &str, known: &Described) -> Node {
    Node {
        name: NodeName::from(format!("new {name}")),
        labels: known.labels.iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
        taints: Vec::new(),
        allocatable: known.allocatable.clone(),
        unschedulable: false,
        held: false,
        ready: true,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    }
}

/// What the DaemonSets hold that run on a node.
fn overhead(daemons: &[Shape], node: &Node) -> Usage {
    let mut overhead = Usage::default();
    daemons.iter().filter(|daemon| fit::accepts(daemon, node).is_ok()).for_each(|daemon| overhead.add(daemon));
    overhead
}
