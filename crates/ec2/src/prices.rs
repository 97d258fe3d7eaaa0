//! Spot prices.

use std::collections::BTreeMap;

use aws_sdk_ec2::operation::describe_spot_price_history::builders::DescribeSpotPriceHistoryInputBuilder;
use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{InstanceType, SpotPrice};
use jiff::Timestamp;
use muster_core::ec2::CallError;
use muster_core::offering::micro_dollars;

use crate::Client;
use crate::convert::{present, text};

const HISTORY: &str = "DescribeSpotPriceHistory";
/// Prices per page: the most EC2 gives.
const PAGE: i32 = 1000;
/// Types per call.
const TYPES: usize = 50;

/// Type and zone, in micro-dollars per hour.
pub type SpotPrices = BTreeMap<(String, String), u64>;

impl Client {
    /// The spot prices of Linux that hold at `now`, for these types. A type or zone without a spot capacity type is missing.
    pub async fn describe_spot_prices(&self, types: &[String], now: Timestamp) -> Result<SpotPrices, CallError> {
        let mut newest: BTreeMap<(String, String), (i64, u64)> = BTreeMap::new();
        let mut turns = self.turns(HISTORY);
        for chunk in types.chunks(TYPES) {
            let mut token = None;
            loop {
                turns.next().await;
                let names = chunk.iter().map(|name| InstanceType::from(name.as_str())).collect();
                let page = DescribeSpotPriceHistoryInputBuilder::default()
                    .set_instance_types(Some(names))
                    .product_descriptions("Linux/UNIX")
                    // Start and end alike: EC2 then gives the price that holds, whenever it was set.
                    .start_time(DateTime::from_secs(now.as_second()))
                    .max_results(PAGE)
                    .set_next_token(token.take());
                let call = page.send_with(&self.calls);
                let output = Box::pin(call).await.map_err(|error| self.failed(HISTORY, error))?;
                output.spot_price_history().iter().for_each(|price| keep(&mut newest, price));
                token = present(output.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(newest.into_iter().map(|(key, (_, micros))| (key, micros)).collect())
    }
}

/// Keeps the newest price of each type and zone; one that cannot be read is no price.
fn keep(newest: &mut BTreeMap<(String, String), (i64, u64)>, price: &SpotPrice) {
    let Some(micros) = price.spot_price().and_then(micro_dollars) else { return };
    let key = (text(price.instance_type().map(InstanceType::as_str)), text(price.availability_zone()));
    let at = price.timestamp().map_or(i64::MIN, DateTime::secs);
    if newest.get(&key).is_none_or(|(known, _)| at >= *known) {
        newest.insert(key, (at, micros));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_price_of_a_type_and_zone_counts_and_nonsense_is_none() {
        let price = |zone: &str, at, text: &str| {
            SpotPrice::builder()
                .instance_type(InstanceType::from("p5.48xlarge"))
                .availability_zone(zone)
                .timestamp(DateTime::from_secs(at))
                .spot_price(text)
                .build()
        };
        let mut newest = BTreeMap::new();
        for one in [price("a", 2, "20.500000"), price("a", 1, "19.0"), price("b", 1, "n/a"), price("c", 1, "0.0000001")]
        {
            keep(&mut newest, &one);
        }
        let key = |zone: &str| ("p5.48xlarge".to_owned(), zone.to_owned());
        assert_eq!(newest.get(&key("a")), Some(&(2, 20_500_000)));
        assert_eq!(newest.get(&key("b")), None);
        assert_eq!(newest.get(&key("c")), Some(&(1, 0)));
    }
}
