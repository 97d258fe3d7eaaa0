//! DescribeSpotPriceHistory: one price per type and zone, as old as the run.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::fixtures::InstanceType;
use crate::kinds::MarketType;
use crate::operations::filters::{Filters, page};
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;

const PRODUCT: &str = "Linux/UNIX";

pub(super) fn spot_history(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let form = call.form;
    let known = ["availability-zone", "availability-zone-id", "instance-type", "product-description", "spot-price"];
    let filters = Filters::parse(form, &known)?;
    let types = form.list("InstanceType");
    let products = form.list("ProductDescription");
    let instant = |name: &str| {
        let parse = |at: &str| at.parse::<Timestamp>().map_err(|_| ApiError::value(name, at));
        form.get(name).map(parse).transpose()
    };
    let (start, end) = (instant("StartTime")?, instant("EndTime")?);
    if start.zip(end).is_some_and(|(start, end)| start > end) {
        return Err(ApiError::client("InvalidParameterCombination", "StartTime must not be after EndTime"));
    }
    // The price does not change, so it is in force at every time asked for unless that is before the run.
    let in_force = end.is_none_or(|end| end >= world.origin);
    let product = products.is_empty() || products.iter().any(|p| p == PRODUCT || p == "Linux/UNIX (Amazon VPC)");
    let mut found = Vec::new();
    for zone in &world.scenario.zones {
        let named = [form.get("AvailabilityZone"), form.get("AvailabilityZoneId")];
        if named.into_iter().flatten().any(|z| z != zone.name && z != zone.zone_id) || !in_force || !product {
            continue;
        }
        for facts in InstanceType::all() {
            let spot = facts.usage_classes.iter().any(|c| c == "spot") && world.offered(&facts.name, &zone.name);
            if !spot || !(types.is_empty() || types.contains(&facts.name)) {
                continue;
            }
            let micro = world.scenario.price(&facts.name, MarketType::Spot);
            let price = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
            let passes = filters.pass(&BTreeMap::new(), |filter| match filter {
                "availability-zone" => Some(&zone.name),
                "availability-zone-id" => Some(&zone.zone_id),
                "instance-type" => Some(&facts.name),
                "product-description" => Some(PRODUCT),
                "spot-price" => Some(&price),
                _ => None,
            });
            if passes && micro > 0 {
                found.push((zone, &facts.name, price));
            }
        }
    }
    let at = world.origin;
    let (found, next) = page(form, found, 1..=1000, Some(1000))?;
    let mut xml = Xml::new();
    xml.list("spotPriceHistorySet", found, |xml, (zone, instance_type, price)| {
        xml.text("instanceType", instance_type);
        xml.text("productDescription", PRODUCT);
        xml.text("spotPrice", &price);
        xml.time("timestamp", at);
        xml.text("availabilityZone", &zone.name);
        xml.text("availabilityZoneId", &zone.zone_id);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}
