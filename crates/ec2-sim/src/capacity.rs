//! Finite capacity: zone, spine, leaf and hosts, per instance type and capacity type.

use std::collections::BTreeSet;

use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::choices::{FourthLayer, LeafSpread};
use crate::fixtures::{InstanceType, fnv};
use crate::kinds::MarketType;
use crate::scenario::pools::{PoolSpec, SpineSpec};

/// Where an instance runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pool: usize,
    pub(crate) spine: usize,
    pub(crate) leaf: usize,
    pub(crate) slot: u32,
}

/// The segment a cluster placement group is bound to. The spines of two types are different
/// segments, so a second type in a group finds no capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) zone: String,
    pub(crate) instance_type: String,
    pub(crate) spine: usize,
}

/// What a launch asks of one pool.
#[derive(Debug, Clone)]
pub(crate) struct Want<'a> {
    pub(crate) instance_type: &'a str,
    pub(crate) zone: &'a str,
    pub(crate) capacity_type: MarketType,
    /// Whether all hosts have to lie in one spine.
    pub(crate) cluster: bool,
    /// The spine the group is already bound to.
    pub(crate) pin: Option<&'a Pin>,
    pub(crate) count: u32,
}

/// All pools.
#[derive(Debug)]
pub(crate) struct Capacity {
    pools: Vec<Pool>,
    rng: ChaCha8Rng,
    spread: LeafSpread,
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) capacity_type: MarketType,
    pub(crate) spines: Vec<Vec<Leaf>>,
    /// The reservation whose hosts these are; nothing but it launches on them.
    pub(crate) reservation: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Leaf {
    /// Hosts there are. It may fall below the number in use: then hosts vanish when they are freed.
    pub(crate) hosts: u32,
    used: BTreeSet<u32>,
}

impl Leaf {
    pub(crate) fn used(&self) -> u32 {
        u32::try_from(self.used.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn free(&self) -> u32 {
        self.hosts.saturating_sub(self.used())
    }

    fn free_slots(&self) -> impl Iterator<Item = u32> {
        (0..self.hosts).filter(|slot| !self.used.contains(slot))
    }
}

impl Capacity {
    pub(crate) fn new(pools: &[PoolSpec], rng: ChaCha8Rng, spread: LeafSpread) -> Self {
        let mut capacity = Self { pools: vec![], rng, spread };
        for spec in pools {
            let pool = capacity.ensure(&spec.instance_type, &spec.zone, spec.capacity_type);
            pool.spines = spec
                .spines
                .iter()
                .map(|spine| spine.leaves.iter().map(|hosts| Leaf { hosts: *hosts, used: BTreeSet::new() }).collect())
                .collect();
        }
        capacity
    }

    pub(crate) fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Makes hosts for a reservation; they lie in the same spines and leaves as those of the pools.
    pub(crate) fn set_aside(&mut self, id: &str, instance_type: &str, zone: &str, spines: &[SpineSpec]) -> Vec<Host> {
        let pool = self.pools.len();
        let mut hosts = Vec::new();
        let mut made = Vec::new();
        for (spine, spec) in spines.iter().enumerate() {
            let mut leaves = Vec::new();
            for (leaf, count) in spec.leaves.iter().enumerate() {
                hosts.extend((0..*count).map(|slot| Host { pool, spine, leaf, slot }));
                leaves.push(Leaf { hosts: *count, used: (0..*count).collect() });
            }
            made.push(leaves);
        }
        self.pools.push(Pool {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type: MarketType::OnDemand,
            spines: made,
            reservation: Some(id.to_owned()),
        });
        hosts
    }

    /// Whether EC2 has the type in the zone at all, in whatever capacity type.
    pub(crate) fn offered(&self, instance_type: &str, zone: &str) -> bool {
        self.pools.iter().any(|p| p.instance_type == instance_type && p.zone == zone)
    }

    /// Free hosts of a pool.
    pub(crate) fn free(&self, instance_type: &str, zone: &str, capacity_type: MarketType) -> u32 {
        self.position(instance_type, zone, capacity_type)
            .map_or(0, |pool| self.pools[pool].spines.iter().flatten().map(Leaf::free).sum())
    }

    /// Sets the hosts of one leaf; spines and leaves up to it come to be.
    pub(crate) fn set_hosts(
        &mut self,
        instance_type: &str,
        zone: &str,
        capacity_type: MarketType,
        (spine, leaf): (usize, usize),
        change: impl FnOnce(u32) -> u32,
    ) -> u32 {
        let pool = self.ensure(instance_type, zone, capacity_type);
        if pool.spines.len() <= spine {
            pool.spines.resize_with(spine + 1, Vec::new);
        }
        let leaves = &mut pool.spines[spine];
        if leaves.len() <= leaf {
            leaves.resize_with(leaf + 1, Leaf::default);
        }
        leaves[leaf].hosts = change(leaves[leaf].hosts);
        leaves[leaf].hosts
    }

    /// Takes up to `count` hosts. In a cluster without a pin the spine is one of those with capacity
    /// for all, or else the one with most capacity.
    pub(crate) fn take(&mut self, want: &Want<'_>) -> Vec<Host> {
        let Some(pool) = self.position(want.instance_type, want.zone, want.capacity_type) else {
            return vec![];
        };
        let mut hosts = if want.cluster {
            self.spine_for(pool, want).map(|spine| self.in_spine(pool, spine)).unwrap_or_default()
        } else {
            self.anywhere(pool)
        };
        hosts.truncate(usize::try_from(want.count).unwrap_or(usize::MAX));
        for host in &hosts {
            self.pools[pool].spines[host.spine][host.leaf].used.insert(host.slot);
        }
        hosts
    }

    /// Gives a host back.
    pub(crate) fn release(&mut self, host: &Host) {
        let leaf = self
            .pools
            .get_mut(host.pool)
            .and_then(|pool| pool.spines.get_mut(host.spine))
            .and_then(|spine| spine.get_mut(host.leaf));
        if let Some(leaf) = leaf {
            leaf.used.remove(&host.slot);
        }
    }

    fn position(&self, instance_type: &str, zone: &str, capacity_type: MarketType) -> Option<usize> {
        self.pools.iter().position(|p| {
            p.reservation.is_none()
                && p.instance_type == instance_type
                && p.zone == zone
                && p.capacity_type == capacity_type
        })
    }

    fn ensure(&mut self, instance_type: &str, zone: &str, capacity_type: MarketType) -> &mut Pool {
        let position = match self.position(instance_type, zone, capacity_type) {
            Some(position) => position,
            None => {
                self.pools.push(Pool {
                    instance_type: instance_type.to_owned(),
                    zone: zone.to_owned(),
                    capacity_type,
                    spines: vec![],
                    reservation: None,
                });
                self.pools.len() - 1
            }
        };
        &mut self.pools[position]
    }

    fn spine_for(&mut self, pool: usize, want: &Want<'_>) -> Option<usize> {
        if let Some(pin) = want.pin {
            let same = pin.zone == want.zone && pin.instance_type == want.instance_type;
            return (same && pin.spine < self.pools[pool].spines.len()).then_some(pin.spine);
        }
        let free: Vec<(usize, u32)> = self.pools[pool]
            .spines
            .iter()
            .enumerate()
            .map(|(i, leaves)| (i, leaves.iter().map(Leaf::free).sum()))
            .collect();
        let roomy: Vec<usize> = free.iter().filter(|(_, free)| *free >= want.count).map(|(i, _)| *i).collect();
        roomy
            .choose(&mut self.rng)
            .copied()
            .or_else(|| free.iter().filter(|(_, free)| *free > 0).max_by_key(|(_, free)| *free).map(|(i, _)| *i))
    }

    /// The free hosts of a spine in the order in which EC2 would give them.
    fn in_spine(&mut self, pool: usize, spine: usize) -> Vec<Host> {
        let mut leaves: Vec<(usize, Vec<u32>)> = self.pools[pool].spines[spine]
            .iter()
            .enumerate()
            .map(|(leaf, l)| (leaf, l.free_slots().take(l.free() as usize).collect()))
            .collect();
        leaves.shuffle(&mut self.rng);
        let host = |leaf: usize, slot: u32| Host { pool, spine, leaf, slot };
        match self.spread {
            LeafSpread::Packed => {
                leaves.iter().flat_map(|(leaf, slots)| slots.iter().map(|slot| host(*leaf, *slot))).collect()
            }
            LeafSpread::RoundRobin => {
                let longest = leaves.iter().map(|(_, slots)| slots.len()).max().unwrap_or(0);
                (0..longest)
                    .flat_map(|turn| {
                        leaves.iter().filter_map(move |(leaf, slots)| slots.get(turn).map(|s| (*leaf, *s)))
                    })
                    .map(|(leaf, slot)| host(leaf, slot))
                    .collect()
            }
        }
    }

    fn anywhere(&mut self, pool: usize) -> Vec<Host> {
        let spines = self.pools[pool].spines.len();
        let mut hosts: Vec<Host> = (0..spines).flat_map(|s| self.in_spine(pool, s)).collect();
        hosts.shuffle(&mut self.rng);
        hosts
    }
}

/// The network nodes above a host, top to bottom, the last one closest; empty for types that
/// DescribeInstanceTopology does not report.
pub(crate) fn network_nodes(
    seed: u64,
    instance_type: &InstanceType,
    zone: &str,
    host: &Host,
    fourth: FourthLayer,
) -> Vec<String> {
    if instance_type.layers == 0 {
        return vec![];
    }
    let name = &instance_type.name;
    let (spine, leaf) = (host.spine, host.leaf);
    let [core, spine_node, leaf_node] = path(seed, name, zone, host);
    if instance_type.layers < 4 {
        return vec![core, spine_node, leaf_node];
    }
    match fourth {
        FourthLayer::BelowLeaf => {
            let pair = host.slot / 2;
            let below = node(seed, &format!("pair/{zone}/{name}/{spine}/{leaf}/{pair}"));
            vec![core, spine_node, leaf_node, below]
        }
        FourthLayer::AboveLeaf => {
            let pair = leaf / 2;
            let above = node(seed, &format!("above/{zone}/{name}/{spine}/{pair}"));
            vec![core, spine_node, above, leaf_node]
        }
    }
}

/// Core, spine and leaf above a host, whatever the type.
pub(crate) fn path(seed: u64, instance_type: &str, zone: &str, host: &Host) -> [String; 3] {
    let (spine, leaf) = (host.spine, host.leaf);
    [
        node(seed, &format!("core/{zone}")),
        node(seed, &format!("spine/{zone}/{instance_type}/{spine}")),
        node(seed, &format!("leaf/{zone}/{instance_type}/{spine}/{leaf}")),
    ]
}

fn node(seed: u64, path: &str) -> String {
    let first = fnv(&format!("{seed}/{path}"));
    let last = fnv(&format!("{path}/{seed}")) & 0xf;
    format!("nn-{first:016x}{last:x}")
}
