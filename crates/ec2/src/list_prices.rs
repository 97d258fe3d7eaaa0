//! Prices on demand, from the Price List API.

use std::collections::BTreeMap;

use aws_sdk_pricing::operation::get_products::builders::GetProductsInputBuilder;
use aws_sdk_pricing::types::{Filter, FilterType};
use muster_core::ec2::CallError;
use muster_core::offering::micro_dollars;
use serde_json::Value;

use crate::Client;
use crate::convert::present;
use crate::error::failure;

const GET: &str = "GetProducts";
/// Products per page: the most that the API gives.
const PAGE: i32 = 100;
/// What a node is: Linux without further software, shared tenancy, and not what a capacity reservation costs while it is
/// unused.
const OF_NODES: [(&str, &str); 6] = [
    ("operatingSystem", "Linux"),
    ("preInstalledSw", "NA"),
    ("tenancy", "Shared"),
    ("capacitystatus", "Used"),
    ("marketoption", "OnDemand"),
    ("productFamily", "Compute Instance"),
];

impl Client {
    /// Micro-dollars per hour on demand, by instance type, in the client's Region. A type that is not sold there, or not for dollars by
    /// the hour, is missing.
    ///
    /// Errors: those of the call; the first failed page ends the reading.
    pub async fn list_prices(&self) -> Result<BTreeMap<String, u64>, CallError> {
        let mut prices = BTreeMap::new();
        let mut token = None;
        loop {
            let page = request(&self.region)?.max_results(PAGE).set_next_token(token.take());
            let output = Box::pin(page.send_with(&self.prices)).await;
            let output = output.map_err(|error| failure(&self.prices_endpoint, GET, error))?;
            prices.extend(output.price_list().iter().filter_map(|text| price(text)));
            token = present(output.next_token());
            if token.is_none() {
                return Ok(prices);
            }
        }
    }

    /// Asks for one price, to see whether it may be asked.
    ///
    /// Errors: those of the call.
    pub async fn try_list_prices(&self) -> Result<(), CallError> {
        let call = request(&self.region)?.max_results(1).send_with(&self.prices);
        Box::pin(call).await.map(|_| ()).map_err(|error| failure(&self.prices_endpoint, GET, error))
    }
}

fn request(region: &str) -> Result<GetProductsInputBuilder, CallError> {
    let filters = OF_NODES.into_iter().chain([("regionCode", region)]).map(|(field, value)| {
        let filter = Filter::builder().r#type(FilterType::TermMatch).field(field).value(value).build();
        filter.map_err(|error| CallError::refused_here(GET, error.to_string()))
    });
    let filters: Vec<Filter> = filters.collect::<Result<_, _>>()?;
    Ok(GetProductsInputBuilder::default().service_code("AmazonEC2").set_filters(Some(filters)))
}

/// Type and micro-dollars per hour of one product of the list, which is JSON within the answer.
fn price(text: &str) -> Option<(String, u64)> {
    let product: Value = serde_json::from_str(text).ok()?;
    let instance_type = product.pointer("/product/attributes/instanceType")?.as_str()?;
    let terms = product.pointer("/terms/OnDemand")?.as_object()?.values();
    let dimensions = terms.filter_map(|term| term.get("priceDimensions")?.as_object()).flat_map(|all| all.values());
    let hourly = dimensions.filter(|one| one.get("unit").and_then(Value::as_str) == Some("Hrs"));
    let micros = hourly.filter_map(|one| micro_dollars(one.pointer("/pricePerUnit/USD")?.as_str()?));
    // A price of nothing is a product that is sold in another way.
    let micros = micros.filter(|micros| *micros > 0).max()?;
    Some((instance_type.to_owned(), micros))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn product(unit: &str, per_unit: &Value) -> String {
        json!({
            "product": {"productFamily": "Compute Instance", "attributes": {"instanceType": "p5.48xlarge"}},
            "terms": {"OnDemand": {"S.J": {"priceDimensions": {"S.J.6": {"unit": unit, "pricePerUnit": per_unit}}}}},
        })
        .to_string()
    }

    #[test]
    fn a_price_is_dollars_by_the_hour_to_the_micro_dollar_and_nothing_else_is_one() {
        let of = |unit: &str, per_unit: Value| price(&product(unit, &per_unit)).map(|(_, micros)| micros);
        assert_eq!(of("Hrs", json!({"USD": "55.0400000000"})), Some(55_040_000));
        assert_eq!(of("Hrs", json!({"USD": "0.0000000000"})), None);
        assert_eq!(of("Hrs", json!({"CNY": "55.0400000000"})), None);
        assert_eq!(of("Quantity", json!({"USD": "1.0000000000"})), None);
        assert_eq!(price("{"), None);
        assert_eq!(price("{\"product\": {}}"), None);
    }
}
