//! The part of the Price List API that lists prices on demand: GetProducts of `AmazonEC2`, for the Region of the scenario.

use serde_json::json;

use crate::fixtures::InstanceType;
use crate::kinds::MarketType;
use crate::operations::filters::page;
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::state::World;

/// Attributes that a product has here; another one is an error, as a misspelt one is there.
const ATTRIBUTES: [&str; 9] = [
    "capacitystatus",
    "instanceType",
    "marketoption",
    "operatingSystem",
    "preInstalledSw",
    "productFamily",
    "regionCode",
    "servicecode",
    "tenancy",
];

pub(super) fn products(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let invalid = |text: String| ApiError::client("InvalidParameterException", text);
    let service = call.form.get("ServiceCode").unwrap_or_default();
    if service != "AmazonEC2" {
        return Err(invalid(format!("Failed to find the service {service}")));
    }
    let mut wanted = Vec::new();
    for filter in call.form.structs("Filters") {
        let member = |name: &str| filter.get(name).unwrap_or_default().to_owned();
        let (kind, field, value) = (member("Type"), member("Field"), member("Value"));
        if kind != "TERM_MATCH" || !ATTRIBUTES.contains(&field.as_str()) {
            return Err(invalid(format!("Input Parameters: the filter {kind} {field} is not valid")));
        }
        wanted.push((field, value));
    }
    let mut found = Vec::new();
    for facts in InstanceType::all() {
        let micros = world.scenario.price(&facts.name, MarketType::OnDemand);
        let attributes = |name: &str| match name {
            "capacitystatus" => "Used",
            "instanceType" => facts.name.as_str(),
            "marketoption" => "OnDemand",
            "operatingSystem" => "Linux",
            "preInstalledSw" => "NA",
            "productFamily" => "Compute Instance",
            "regionCode" => world.scenario.region.as_str(),
            "servicecode" => "AmazonEC2",
            _ => "Shared",
        };
        if micros == 0 || wanted.iter().any(|(field, value)| attributes(field) != value) {
            continue;
        }
        let all: serde_json::Map<String, serde_json::Value> = ATTRIBUTES
            .into_iter()
            .filter(|name| *name != "productFamily")
            .map(|name| (name.to_owned(), attributes(name).into()))
            .collect();
        let sku = facts.name.to_ascii_uppercase();
        let product = json!({
            "product": {"productFamily": "Compute Instance", "sku": sku, "attributes": all},
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {format!("{sku}.JRTCKXETXF"): {
                "sku": sku,
                "offerTermCode": "JRTCKXETXF",
                "priceDimensions": {format!("{sku}.JRTCKXETXF.6YS6EN2CT7"): {
                    "unit": "Hrs",
                    "beginRange": "0",
                    "endRange": "Inf",
                    "pricePerUnit": {"USD": format!("{}.{:06}0000", micros / 1_000_000, micros % 1_000_000)},
                }},
            }}},
        });
        found.push(product.to_string());
    }
    let (found, next) = page(call.form, found, 1..=100, Some(100))?;
    let mut answer = json!({"FormatVersion": "aws_v1", "PriceList": found});
    // The last page has none.
    if let Some(next) = next {
        answer["NextToken"] = next.into();
    }
    Ok(Reply::json(answer))
}
