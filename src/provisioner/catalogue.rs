//! What EC2 sells in this Region, read once and kept.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::cloud::{CallError, InstanceTypeInfo, Offering, PriceBook};

use crate::cloud::Cloud;

/// Types, where they are offered, and what they cost.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalogue {
    pub(super) types: BTreeMap<String, InstanceTypeInfo>,
    pub(super) offerings: BTreeSet<Offering>,
    pub(super) prices: PriceBook,
}

/// Reads the catalogue.
///
/// Errors: those of the describing calls; nothing is bought without it.
pub(super) async fn read(cloud: &Cloud, prices: &PriceBook) -> Result<Catalogue, CallError> {
    let types = cloud.ec2().describe_instance_types(&[]).await?;
    let offerings = cloud.ec2().describe_offerings(&[]).await?;
    Ok(Catalogue {
        types: types.into_iter().map(|info| (info.name.clone(), info)).collect(),
        offerings,
        prices: prices.clone(),
    })
}
