//! What EC2 sells in this Region, read once and kept.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ec2::{CallError, CapacityType, Offering};
use muster_core::offering::{InstanceTypeInfo, PriceBook};
use muster_ec2::SpotPrices;

use crate::cloud::Cloud;

/// Types, where they are offered, and what they cost.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalogue {
    /// Counts up with every reading.
    pub(super) number: u64,
    pub(super) types: BTreeMap<String, InstanceTypeInfo>,
    pub(super) offerings: BTreeSet<Offering>,
    pub(super) prices: PriceBook,
}

/// Reads the catalogue for the `number`-th time. `spot` has the spot prices read last, `listed`
/// the list prices.
///
/// Errors: those of the describing calls; nothing is provisioned without it.
pub(super) async fn read(
    cloud: &Cloud,
    prices: &PriceBook,
    spot: &SpotPrices,
    listed: &BTreeMap<String, u64>,
    number: u64,
) -> Result<Catalogue, CallError> {
    let types = cloud.instance_types().await?;
    let offerings = cloud.offerings().await?;
    let mut prices = prices.clone();
    prices.relist(listed);
    for ((instance_type, zone), micros) in spot {
        prices.set(instance_type, Some(zone), CapacityType::Spot, *micros);
    }
    Ok(Catalogue {
        number,
        types: types.into_iter().map(|info| (info.name.clone(), info)).collect(),
        offerings,
        prices,
    })
}
