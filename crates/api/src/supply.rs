//! What a NodePool can provision, as the gang pass and the ranking of candidates look at it: the one answer of the server
//! and of the offline planner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::devices::{self, Blocked, Daemon};
use muster_core::ec2::{CapacityType, ImageKind, Reservation, Subnet};
use muster_core::gang::{Left, PoolView, TypeView};
use muster_core::model::pod::Shape;
use muster_core::offering::{InstanceTypeInfo, Ledger, MinValues, Need, PoolOffer, PoolType, PriceBook};
use muster_core::topology::region_of;

use crate::crd::{EC2NodeClass, EC2NodeClassStatus, NodePool, PlacementGroupPolicy, SubnetStatus};
use crate::new_node::{self, Place};
use crate::{node_class, pool};

/// The largest batch there can be: CreateFleet's largest minimum.
const MOST_NODES: u32 = 1000;

/// A pool with its class.
#[derive(Clone, Copy, Debug)]
pub struct Supplied<'a> {
    /// The pool.
    pub pool: &'a NodePool,
    /// Its class; one that is not known says nothing.
    pub class: Option<&'a EC2NodeClass>,
    /// Zones that the pool allows and in which the class has subnets; empty: not known.
    pub zones: &'a BTreeSet<String>,
}

impl<'a> Supplied<'a> {
    /// The pool as the gang pass sees it. `types` are those that it allows and the class can launch; `blocked`: most nodes
    /// of a batch did not join.
    #[must_use]
    pub fn view(
        &self,
        types: impl Iterator<Item = &'a InstanceTypeInfo>,
        prices: &PriceBook,
        daemons: &[Shape],
        ledger: &Ledger,
        blocked: bool,
    ) -> PoolView {
        let name = self.name();
        let limits = ledger.limits(name);
        let left = ledger.left(name).into_iter();
        PoolView {
            name: name.into(),
            blocked,
            weight: self.pool.spec.weight.unwrap_or(0),
            max_nodes: self.max_nodes(),
            placement_group: match self.pool.spec.placement.placement_group {
                PlacementGroupPolicy::Required => "required".into(),
                PlacementGroupPolicy::Preferred => "preferred".into(),
                PlacementGroupPolicy::None => "none".into(),
            },
            zones: self.zones.iter().map(|zone| Arc::from(zone.as_str())).collect(),
            types: types.filter_map(|info| self.type_view(info, prices, daemons)).collect(),
            left: left
                .map(|(resource, left)| Left { limit: limits.get(&resource).copied().unwrap_or(left), resource, left })
                .collect(),
            ceilings: ledger.ceilings(name),
        }
    }

    fn type_view(&self, info: &InstanceTypeInfo, prices: &PriceBook, daemons: &[Shape]) -> Option<TypeView> {
        let capacity_types = pool::capacity_types(self.pool);
        // What is decided with the candidate is a label of the node only where there is but one.
        let zone = if let [zone] = self.zones.iter().collect::<Vec<_>>()[..] { Some(zone.as_str()) } else { None };
        let capacity_type = if let [one] = capacity_types[..] { Some(one) } else { None };
        let regions: BTreeSet<Option<&str>> = self.zones.iter().map(|zone| region_of(zone)).collect();
        let region = if let [region] = regions.iter().collect::<Vec<_>>()[..] { *region } else { None };
        // A pool whose taints cannot be read is not Ready.
        let new =
            new_node::of_pool(self.pool, self.class, info, Place { zone, region, capacity_type }, daemons).ok()?;
        let zones: Vec<&str> =
            if self.zones.is_empty() { vec![""] } else { self.zones.iter().map(String::as_str).collect() };
        let in_zone = |zone: &str| {
            let launched = capacity_types.iter().filter(|capacity_type| **capacity_type != CapacityType::Reserved);
            launched.filter_map(|capacity_type| prices.price(&info.name, zone, *capacity_type)).min()
        };
        let price = zones.iter().filter_map(|zone| in_zone(zone)).min();
        // What is reserved is paid for anyway: it can be had even where nobody knows a price.
        let owned =
            |zone: &str| capacity_types.contains(&CapacityType::Reserved) && self.has_reservation(&info.name, zone);
        let of_reserved = |zone: &str| prices.price(&info.name, zone, CapacityType::Reserved).unwrap_or(0);
        let anywhere =
            || self.zones.iter().any(|zone| owned(zone)).then(|| zones.first().map_or(0, |zone| of_reserved(zone)));
        let price = price.or_else(anywhere);
        let zonal = |zone: &String| {
            let price = in_zone(zone).or_else(|| owned(zone).then(|| of_reserved(zone)))?;
            Some((Arc::from(zone.as_str()), price))
        };
        Some(TypeView::new(&info.name, new, price, self.zones.iter().filter_map(zonal).collect()))
    }

    /// Whether the class chooses a reservation of the type in a zone.
    fn has_reservation(&self, instance_type: &str, zone: &str) -> bool {
        let status = self.class.and_then(|class| class.status.as_ref());
        let mut chosen = status.iter().flat_map(|status| &status.capacity_reservations);
        chosen.any(|one| one.state != "ended" && one.instance_type == instance_type && one.zone == zone)
    }

    /// The pool as the ranking of candidates sees it.
    #[must_use]
    pub fn offer(
        &self,
        types: impl Iterator<Item = &'a InstanceTypeInfo>,
        subnets: Vec<Subnet>,
        reservations: Vec<Reservation>,
        ledger: &Ledger,
    ) -> PoolOffer {
        let name = self.name();
        let types: Vec<&InstanceTypeInfo> = types.collect();
        PoolOffer {
            min_values: self.min_values(&types),
            name: name.to_owned(),
            weight: self.pool.spec.weight.unwrap_or(0),
            instance_types: types.iter().map(|info| info.name.clone()).collect(),
            zones: self.zones.clone(),
            capacity_types: pool::capacity_types(self.pool),
            group: pool::group_policy(self.pool),
            left: ledger.left(name),
            limits: ledger.limits(name),
            ceilings: ledger.ceilings(name),
            max_nodes_per_batch: self.max_nodes(),
            subnets,
            ipv6: self.class.is_some_and(node_class::is_ipv6),
            reservations,
        }
    }

    fn min_values(&self, types: &[&InstanceTypeInfo]) -> Vec<MinValues> {
        let asked = pool::min_values(self.pool).into_iter();
        let of_key = |(key, least): (Arc<str>, u32)| {
            let value = |info: &&InstanceTypeInfo| {
                let new = new_node::of_pool(self.pool, self.class, info, Place::default(), &[]).ok()?;
                Some((info.name.clone(), new.node.labels.get(&key)?.to_string()))
            };
            MinValues { values: types.iter().filter_map(value).collect(), key: key.to_string(), least }
        };
        // Zones and capacity types are chosen with the candidate: no label of a type says which there are.
        asked.map(of_key).filter(|one| !one.values.is_empty()).collect()
    }

    /// What each node of a type takes, for a ranking that wants so many of them. `None` for a pool whose taints cannot be
    /// read.
    #[must_use]
    pub fn need(&self, info: &InstanceTypeInfo, nodes: u32) -> Option<(PoolType, Need)> {
        let new = new_node::of_pool(self.pool, self.class, info, Place::default(), &[]).ok()?;
        let of = PoolType { pool: self.name().to_owned(), instance_type: info.name.clone() };
        Some((of, Need { nodes, addresses_per_node: new.addresses(), capacity: new.capacity }))
    }

    fn name(&self) -> &'a str {
        self.pool.metadata.name.as_deref().unwrap_or_default()
    }

    fn max_nodes(&self) -> u32 {
        self.pool.spec.placement.max_nodes_per_batch.unwrap_or(MOST_NODES).min(MOST_NODES)
    }
}

/// Zones in which the class has subnets and that the pool allows.
#[must_use]
pub fn zones(pool: &NodePool, class: Option<&EC2NodeClass>) -> BTreeSet<String> {
    let status = class.and_then(|class| class.status.as_ref());
    let zones = status.into_iter().flat_map(|status| &status.subnets).map(|subnet| &subnet.zone);
    zones.filter(|zone| pool::allows_zone(pool, zone)).cloned().collect()
}

/// The subnets of a class, as it lists them.
#[must_use]
pub fn subnets(class: &EC2NodeClass) -> Vec<Subnet> {
    let listed = class.status.iter().flat_map(|status| &status.subnets);
    let subnet = |subnet: &SubnetStatus| Subnet {
        id: subnet.id.clone(),
        zone: subnet.zone.clone(),
        zone_id: subnet.zone_id.clone(),
        free_addresses: subnet.available_addresses,
        vpc_id: String::new(),
        ipv6: subnet.ipv6,
        tags: BTreeMap::new(),
    };
    listed.map(subnet).collect()
}

/// Those of them that nodes can be launched into: in an IPv6 cluster all that have an IPv6 CIDR.
#[must_use]
pub fn open_subnets(class: &EC2NodeClass) -> Vec<Subnet> {
    let ipv6 = node_class::is_ipv6(class);
    subnets(class).into_iter().filter(|subnet| subnet.ipv6 || !ipv6).collect()
}

/// The image nodes of a type boot, if the class has resolved one.
#[must_use]
pub fn image<'a>(resolved: &'a EC2NodeClassStatus, info: &InstanceTypeInfo) -> Option<&'a str> {
    let kind = ImageKind::of(info);
    let mut images = resolved.amis.iter();
    let of_kind = images.find(|ami| ami.architecture == kind.architecture && ami.variant == kind.variant.as_str());
    of_kind.map(|ami| ami.id.as_str())
}

/// Whether the class can launch a type: with an image, and with interfaces that fit.
#[must_use]
pub fn launches(class: &EC2NodeClass, info: &InstanceTypeInfo) -> bool {
    let image = class.status.as_ref().and_then(|resolved| image(resolved, info));
    image.is_some() && node_class::interfaces_fit(class, info).is_ok()
}

/// Why the class cannot launch a type, for a person.
#[must_use]
pub fn why_not_launched(class: &EC2NodeClass, info: &InstanceTypeInfo) -> String {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    match node_class::interfaces_fit(class, info) {
        Err(why) => format!("EC2NodeClass {name}: {why}"),
        Ok(()) => {
            format!("EC2NodeClass {name}: spec.amiSelectorTerms: no image for {} ({})", ImageKind::of(info), info.name)
        }
    }
}

/// The devices that would never come up on nodes of the pool: the DaemonSets that bring them do not tolerate its taints. A
/// pool whose taints cannot be read has none; it is not Ready for them.
#[must_use]
pub fn blocked_devices(pool: &NodePool, class: &EC2NodeClass, plugins: &[Daemon]) -> Vec<Blocked> {
    let taints = pool::taints(pool).unwrap_or_default();
    devices::blocked(&taints, node_class::family(class), plugins)
}

/// The first of them that nodes of the type carry.
#[must_use]
pub fn blocks<'a>(blocked: &'a [Blocked], class: &EC2NodeClass, info: &InstanceTypeInfo) -> Option<&'a Blocked> {
    if blocked.is_empty() {
        return None;
    }
    let devices = new_node::of_class(Some(class), info).devices();
    blocked.iter().find(|one| devices.iter().any(|(name, _)| name.as_str() == one.resource))
}
