//! Subnets and their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::scenario::{Block, Subnet, Zone, ipv6_block};

/// A subnet with the addresses in use.
#[derive(Debug, Clone)]
pub(crate) struct SubnetState {
    pub(crate) id: String,
    pub(crate) cidr: String,
    pub(crate) ipv6_cidr: Option<String>,
    pub(crate) zone: String,
    pub(crate) zone_id: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) default_for_zone: bool,
    block: Option<Block>,
    /// Addresses that may be in use at once.
    capacity: u32,
    used: BTreeSet<u32>,
    /// IPv6 addresses that were ever taken: there are more than any run takes, and none is taken twice.
    ipv6_taken: u64,
}

impl SubnetState {
    pub(crate) fn new(zone: &Zone, subnet: &Subnet) -> Self {
        let block = Block::parse(&subnet.cidr);
        let usable = block.map_or(0, Block::usable);
        Self {
            id: subnet.id.clone(),
            cidr: subnet.cidr.clone(),
            ipv6_cidr: subnet.ipv6_cidr.clone(),
            zone: zone.name.clone(),
            zone_id: zone.zone_id.clone(),
            tags: subnet.tags.clone(),
            default_for_zone: subnet.default_for_zone,
            block,
            capacity: subnet.free_addresses.unwrap_or(usable).min(usable),
            used: BTreeSet::new(),
            ipv6_taken: 0,
        }
    }

    /// IPv6 addresses of its block; none without one.
    pub(crate) fn take_ipv6(&mut self, count: u32) -> Vec<Ipv6Addr> {
        let Some(base) = self.ipv6_cidr.as_deref().and_then(ipv6_block) else { return vec![] };
        let first = self.ipv6_taken;
        self.ipv6_taken += u64::from(count);
        // AWS keeps the first four of a block.
        (first..self.ipv6_taken).map(|index| Ipv6Addr::from(u128::from(base) + 4 + u128::from(index))).collect()
    }

    pub(crate) fn available(&self) -> u32 {
        self.capacity.saturating_sub(u32::try_from(self.used.len()).unwrap_or(u32::MAX))
    }

    /// Takes addresses, or none if there are not enough. The second member is what [`Self::free`]
    /// wants back.
    pub(crate) fn take(&mut self, count: u32) -> Option<Vec<(u32, Ipv4Addr)>> {
        let block = self.block?;
        if count > self.available() {
            return None;
        }
        let free: Vec<u32> =
            (0..block.usable()).filter(|index| !self.used.contains(index)).take(count as usize).collect();
        self.used.extend(&free);
        Some(free.into_iter().map(|i| (i, block.address(i))).collect())
    }

    pub(crate) fn free(&mut self, addresses: &[u32]) {
        for address in addresses {
            self.used.remove(address);
        }
    }
}
