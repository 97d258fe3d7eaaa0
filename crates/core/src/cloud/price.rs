//! Prices in micro-dollars per hour.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::launch::CapacityType;

/// Day of the table below.
pub const PRICES_AS_OF: &str = "2026-07-20";

/// List prices on demand, us-east-1, Linux. Types without a list price there (p5e, trn2, p6e-gb200) are missing on
/// purpose: they are bought only as reserved or with a price from the configuration.
const ON_DEMAND: &[(&str, u64)] = &[
    ("g5.48xlarge", 16_290_000),
    ("g6.48xlarge", 13_350_000),
    ("g6e.12xlarge", 10_490_000),
    ("g6e.24xlarge", 15_070_000),
    ("g6e.48xlarge", 30_130_000),
    ("g7e.48xlarge", 33_140_000),
    ("p4d.24xlarge", 21_957_642),
    ("p4de.24xlarge", 27_450_000),
    ("p5.48xlarge", 55_040_000),
    ("p5.4xlarge", 6_880_000),
    ("p5en.48xlarge", 63_300_000),
    ("p6-b200.48xlarge", 113_930_000),
    ("p6-b300.48xlarge", 142_420_000),
    ("trn1.32xlarge", 21_500_000),
    ("trn1n.32xlarge", 24_780_000),
];

/// List price on demand of [`PRICES_AS_OF`], in micro-dollars per hour. Most entries are exact to the cent.
#[must_use]
pub fn on_demand_price(instance_type: &str) -> Option<u64> {
    ON_DEMAND.iter().find(|(name, _)| *name == instance_type).map(|(_, price)| *price)
}

/// Prices from configuration and spot history before the static table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceBook {
    known: BTreeMap<String, Vec<Entry>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    zone: Option<String>,
    market: CapacityType,
    micro_usd_per_hour: u64,
}

impl PriceBook {
    /// Sets a price, for one zone or (`None`) for all that have none of their own.
    pub fn set(&mut self, instance_type: &str, zone: Option<&str>, market: CapacityType, micro_usd_per_hour: u64) {
        let entries = self.known.entry(instance_type.to_owned()).or_default();
        entries.retain(|entry| entry.zone.as_deref() != zone || entry.market != market);
        entries.push(Entry { zone: zone.map(str::to_owned), market, micro_usd_per_hour });
    }

    /// Micro-dollars per hour: the zone's price, the type's price, or on demand the static table. Reserved capacity is
    /// paid for anyway; its price is the on-demand price, which only breaks ties.
    #[must_use]
    pub fn price(&self, instance_type: &str, zone: &str, market: CapacityType) -> Option<u64> {
        let entries = self.known.get(instance_type).map_or(&[][..], Vec::as_slice);
        let of = |place: Option<&str>| {
            let entry = entries.iter().find(|entry| entry.zone.as_deref() == place && entry.market == market);
            entry.map(|entry| entry.micro_usd_per_hour)
        };
        of(Some(zone)).or_else(|| of(None)).or_else(|| match market {
            CapacityType::OnDemand => on_demand_price(instance_type),
            CapacityType::Reserved => self.price(instance_type, zone, CapacityType::OnDemand),
            CapacityType::Spot => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_beats_the_type_beats_the_table() {
        let mut book = PriceBook::default();
        let price = |book: &PriceBook, zone| book.price("p5.48xlarge", zone, CapacityType::OnDemand);
        assert_eq!(price(&book, "a"), Some(55_040_000));
        book.set("p5.48xlarge", None, CapacityType::OnDemand, 50);
        book.set("p5.48xlarge", Some("a"), CapacityType::OnDemand, 40);
        book.set("p5.48xlarge", Some("a"), CapacityType::OnDemand, 41);
        assert_eq!((price(&book, "a"), price(&book, "b")), (Some(41), Some(50)));
    }

    #[test]
    fn spot_and_unlisted_types_have_no_price_of_their_own() {
        let book = PriceBook::default();
        assert_eq!(book.price("p5.48xlarge", "a", CapacityType::Spot), None);
        assert_eq!(book.price("p5e.48xlarge", "a", CapacityType::OnDemand), None);
        assert_eq!(book.price("p4d.24xlarge", "a", CapacityType::Reserved), Some(21_957_642));
    }

    #[test]
    fn the_table_is_sorted_without_duplicates() {
        assert!(ON_DEMAND.iter().all(|(name, price)| name.contains('.') && *price > 0));
        let names: std::collections::BTreeSet<_> = ON_DEMAND.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), ON_DEMAND.len());
    }
}
