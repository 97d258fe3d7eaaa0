//! Prices in micro-dollars per hour.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::launch::CapacityType;

/// Day of the table below.
pub const PRICES_AS_OF: &str = "2026-07-20";

/// [`PRICES_AS_OF`] as a moment.
#[must_use]
pub fn prices_as_of() -> Option<Timestamp> {
    format!("{PRICES_AS_OF}T00:00:00Z").parse().ok()
}

/// List prices on demand, us-east-1, Linux. Types without a list price there (p5e, trn2, p6e-gb200) are missing on
/// purpose: they are provisioned only as reserved or with a price from the configuration.
const ON_DEMAND: &[(&str, u64)] = &[
    ("g5.12xlarge", 5_672_000),
    ("g5.48xlarge", 16_288_000),
    ("g6.48xlarge", 13_350_000),
    ("g6e.12xlarge", 10_490_000),
    ("g6e.24xlarge", 15_070_000),
    ("g6e.48xlarge", 30_131_190),
    ("g7e.48xlarge", 33_140_000),
    ("m5.2xlarge", 384_000),
    ("m5.8xlarge", 1_536_000),
    ("p4d.24xlarge", 21_957_642),
    ("p4de.24xlarge", 27_450_000),
    ("p5.48xlarge", 55_040_000),
    ("p5.4xlarge", 6_880_000),
    ("p5en.48xlarge", 63_296_000),
    ("p6-b200.48xlarge", 113_932_800),
    ("p6-b300.48xlarge", 142_416_000),
    ("trn1.32xlarge", 21_500_000),
    ("trn1n.32xlarge", 24_780_000),
];

/// List price on demand of [`PRICES_AS_OF`], in micro-dollars per hour. Most entries are exact to the cent.
#[must_use]
pub fn on_demand_price(instance_type: &str) -> Option<u64> {
    ON_DEMAND.iter().find(|(name, _)| *name == instance_type).map(|(_, price)| *price)
}

/// List prices on demand for Linux, Region by Region: `@region day`, then `type micro-dollars`. Written by
/// `hack/prices.py` from public data.
const BY_REGION: &str = include_str!("prices.txt");

/// The Region whose list stands in for Regions of the same partition that have none.
const STAND_IN: &str = "us-east-1";

/// List prices on demand of one Region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// The Region they are of.
    pub region: &'static str,
    /// The day they were read.
    pub as_of: &'static str,
    /// Micro-dollars per hour by type.
    pub prices: BTreeMap<&'static str, u64>,
}

impl PriceList {
    /// The list that holds for a Region: its own, or where it has none that of us-east-1, which is a guess. `None` where
    /// prices are not public or not in dollars.
    #[must_use]
    pub fn of_region(region: &str) -> Option<Self> {
        Self::own(region).or_else(|| Self::own(STAND_IN).filter(|_| is_commercial(region)))
    }

    fn own(region: &str) -> Option<Self> {
        let block =
            BY_REGION.split('@').skip(1).find(|block| block.split_once(' ').is_some_and(|(name, _)| name == region))?;
        let mut lines = block.lines();
        let (region, as_of) = lines.next()?.split_once(' ')?;
        let price = |line: &'static str| {
            let (name, micros) = line.split_once(' ')?;
            Some((name, micros.parse().ok()?))
        };
        Some(Self { region, as_of, prices: lines.filter_map(price).collect() })
    }
}

/// Whether a Region is in the partition `aws`.
fn is_commercial(region: &str) -> bool {
    let others = ["cn-", "us-gov-", "us-iso", "eu-isoe-", "eusc-"];
    !region.is_empty() && !others.iter().any(|prefix| region.starts_with(prefix))
}

/// The Region of the Price List API that is nearest to a Region and knows its prices; `None` where it knows none, in other
/// partitions than `aws`.
/// Source: <https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html>.
#[must_use]
pub fn price_list_region(region: &str) -> Option<&'static str> {
    if !is_commercial(region) {
        return None;
    }
    Some(match region.split('-').next() {
        Some("eu" | "af" | "me" | "il") => "eu-central-1",
        Some("ap") => "ap-south-1",
        _ => "us-east-1",
    })
}

/// How a price differs from what it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// It is this, in micro-dollars per hour: a private offer.
    Absolute(u64),
    /// It is so many hundredths of a percent of it: 8000 is a fifth off, a savings plan.
    Share(u32),
}

/// A price from the configuration. What is absent holds for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// Type.
    #[serde(default)]
    pub instance_type: Option<String>,
    /// Zone by name.
    #[serde(default)]
    pub zone: Option<String>,
    /// MarketType.
    #[serde(default)]
    #[serde(rename = "market")]
    pub capacity_type: Option<CapacityType>,
    /// The change.
    pub change: Change,
}

impl Override {
    /// How exactly it names what it is for, if it holds for it: type before zone before capacity type.
    fn fits(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> Option<u8> {
        let one = |given: Option<bool>, weight: u8| match given {
            None => Some(0),
            Some(true) => Some(weight),
            Some(false) => None,
        };
        let named = one(self.instance_type.as_deref().map(|name| name == instance_type), 4)?;
        let zoned = one(self.zone.as_deref().map(|name| name == zone), 2)?;
        let sold = one(self.capacity_type.map(|one| one == capacity_type), 1)?;
        Some(named + zoned + sold)
    }
}

/// Whether a price on demand is near another one: dearer by a quarter at most. What is launched in the place of the cheapest is paid for
/// as long as it stands, and another plan may find a better mix.
#[must_use]
pub(crate) fn is_near(price: u64, cheapest: u64) -> bool {
    price.saturating_mul(4) <= cheapest.saturating_mul(5)
}

/// Prices: overrides of the configuration, over spot history, over the static table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceBook {
    known: BTreeMap<String, Vec<Entry>>,
    #[serde(default)]
    overrides: Vec<Override>,
    /// Whether the known prices are all there are, those of the Region's lists among them: then the built-in table says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    listed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    zone: Option<String>,
    #[serde(rename = "market")]
    capacity_type: CapacityType,
    micro_usd_per_hour: u64,
}

impl PriceBook {
    /// Without any price, the built-in table's included.
    #[must_use]
    pub fn bare() -> Self {
        Self { listed: true, ..Self::default() }
    }

    /// Sets a price, for one zone or (`None`) for all that have none of their own.
    pub fn set(
        &mut self,
        instance_type: &str,
        zone: Option<&str>,
        capacity_type: CapacityType,
        micro_usd_per_hour: u64,
    ) {
        let entries = self.known.entry(instance_type.to_owned()).or_default();
        entries.retain(|entry| entry.zone.as_deref() != zone || entry.capacity_type != capacity_type);
        entries.push(Entry { zone: zone.map(str::to_owned), capacity_type, micro_usd_per_hour });
    }

    /// Takes the list of a Region in the place of the built-in table; a type that is not on it has no price.
    pub fn list(&mut self, region: &str) {
        self.listed = true;
        let prices = PriceList::of_region(region).map(|list| list.prices).unwrap_or_default();
        for (instance_type, micros) in prices {
            self.set(instance_type, None, CapacityType::OnDemand, micros);
        }
    }

    /// Takes prices on demand that were read from AWS in the place of the list's; a type that was not read keeps its own.
    pub fn relist(&mut self, prices: &BTreeMap<String, u64>) {
        for (instance_type, micros) in prices {
            self.set(instance_type, None, CapacityType::OnDemand, *micros);
        }
    }

    /// Adds an override. Of several that hold for a price the most exact one counts, of equally exact ones the last.
    pub fn change(&mut self, change: Override) {
        self.overrides.push(change);
    }

    /// Micro-dollars per hour: the zone's price, the type's price, or on demand the static table; changed by the
    /// overrides. Reserved capacity is paid for anyway; its price is the on-demand price, which only breaks ties.
    /// `None` is never guessed: such an offer is not provisioned, and its reason is that no price is known.
    #[must_use]
    pub fn price(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> Option<u64> {
        let best = self
            .overrides
            .iter()
            .filter_map(|one| Some((one.fits(instance_type, zone, capacity_type)?, one.change)))
            .max_by_key(|(exactness, _)| *exactness);
        let found = || self.found(instance_type, zone, capacity_type);
        match best {
            None => found(),
            Some((_, Change::Absolute(micros))) => Some(micros),
            Some((_, Change::Share(share))) => {
                let changed = u128::from(found()?) * u128::from(share) / 10_000;
                Some(u64::try_from(changed).unwrap_or(u64::MAX))
            }
        }
    }

    fn found(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> Option<u64> {
        let entries = self.known.get(instance_type).map_or(&[][..], Vec::as_slice);
        let of = |place: Option<&str>| {
            let entry =
                entries.iter().find(|entry| entry.zone.as_deref() == place && entry.capacity_type == capacity_type);
            entry.map(|entry| entry.micro_usd_per_hour)
        };
        of(Some(zone)).or_else(|| of(None)).or_else(|| match capacity_type {
            CapacityType::OnDemand if self.listed => None,
            CapacityType::OnDemand => on_demand_price(instance_type),
            CapacityType::Reserved => self.price(instance_type, zone, CapacityType::OnDemand),
            CapacityType::Spot => None,
        })
    }
}

/// Reads an amount of dollars, `0.8421` or `55.04`, as micro-dollars; places beyond the sixth are cut.
#[must_use]
pub fn micro_dollars(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') || fraction.contains('.') {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)
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
    fn every_region_has_its_own_list_or_that_of_its_partition_and_china_none() {
        let price = |region: &str, name: &str| {
            let mut book = PriceBook::default();
            book.list(region);
            book.price(name, "a", CapacityType::OnDemand)
        };
        for (name, micros) in [("g4dn.xlarge", 526_000), ("g5.xlarge", 1_006_000), ("m5.large", 96_000)] {
            assert_eq!(price("us-east-1", name), Some(micros));
            assert_eq!(price("eu-west-1", name), Some(micros), "a guess, until it is overridden");
        }
        assert_eq!(price("us-gov-west-1", "p5.48xlarge"), Some(66_048_000));
        assert_eq!(price("us-gov-east-1", "p5.48xlarge"), None, "it is not sold there");
        assert_eq!(price("cn-north-1", "m5.large"), None, "not in dollars");
        assert_eq!(price("us-east-1", "nothing.large"), None);
    }

    #[test]
    fn a_price_that_was_read_comes_before_the_list_and_after_the_configuration() {
        let mut book = PriceBook::default();
        book.list("us-east-1");
        book.change(over(Some("m5.large"), None, None, Change::Absolute(1)));
        book.relist(&BTreeMap::from([("p5.48xlarge".to_owned(), 31_464_000), ("m5.large".to_owned(), 2)]));
        let price = |name: &str| book.price(name, "a", CapacityType::OnDemand);
        assert_eq!(price("p5.48xlarge"), Some(31_464_000));
        assert_eq!(price("m5.large"), Some(1));
        assert_eq!(price("g5.xlarge"), Some(1_006_000), "it was not read");
    }

    #[test]
    fn prices_are_asked_for_where_the_api_is_and_in_no_other_partition() {
        for (region, asked) in [
            ("us-west-2", Some("us-east-1")),
            ("sa-east-1", Some("us-east-1")),
            ("eu-north-1", Some("eu-central-1")),
            ("me-central-1", Some("eu-central-1")),
            ("ap-northeast-1", Some("ap-south-1")),
            ("us-gov-west-1", None),
            ("cn-north-1", None),
            ("", None),
        ] {
            assert_eq!(price_list_region(region), asked, "{region}");
        }
    }

    #[test]
    fn what_is_listed_agrees_to_the_cent_with_the_built_in_table() {
        let list = PriceList::of_region("us-east-1").unwrap();
        assert!(list.prices.len() > 1_000 && list.as_of == PRICES_AS_OF, "{} {}", list.prices.len(), list.as_of);
        for (name, micros) in ON_DEMAND {
            let listed = list.prices.get(name).copied();
            assert!(listed.is_none_or(|listed| listed.abs_diff(*micros) < 5_000), "{name}: {micros} and {listed:?}");
        }
    }

    #[test]
    fn spot_and_unlisted_types_have_no_price_of_their_own() {
        let book = PriceBook::default();
        assert_eq!(book.price("p5.48xlarge", "a", CapacityType::Spot), None);
        assert_eq!(book.price("p5e.48xlarge", "a", CapacityType::OnDemand), None);
        assert_eq!(book.price("p4d.24xlarge", "a", CapacityType::Reserved), Some(21_957_642));
    }

    fn over(name: Option<&str>, zone: Option<&str>, capacity_type: Option<CapacityType>, change: Change) -> Override {
        Override { instance_type: name.map(str::to_owned), zone: zone.map(str::to_owned), capacity_type, change }
    }

    #[test]
    fn an_override_by_share_or_amount_holds_for_what_it_names() {
        let mut book = PriceBook::default();
        book.set("p5.48xlarge", Some("a"), CapacityType::Spot, 20_000_000);
        book.change(over(None, None, Some(CapacityType::OnDemand), Change::Share(8_000)));
        book.change(over(Some("p5e.48xlarge"), None, None, Change::Absolute(40_000_000)));
        let price = |name: &str, zone: &str, capacity_type| book.price(name, zone, capacity_type);
        assert_eq!(price("p5.48xlarge", "a", CapacityType::OnDemand), Some(44_032_000));
        assert_eq!(price("p5.48xlarge", "a", CapacityType::Spot), Some(20_000_000));
        assert_eq!(price("p5e.48xlarge", "a", CapacityType::OnDemand), Some(40_000_000), "type before capacity type");
        assert_eq!(price("trn2.48xlarge", "a", CapacityType::OnDemand), None, "a share of nothing is nothing");
    }

    #[test]
    fn the_most_exact_override_counts_and_of_equals_the_last() {
        let mut book = PriceBook::default();
        let p5 = Some("p5.48xlarge");
        book.change(over(p5, Some("a"), None, Change::Absolute(1)));
        book.change(over(p5, None, Some(CapacityType::OnDemand), Change::Absolute(2)));
        book.change(over(None, Some("b"), Some(CapacityType::OnDemand), Change::Absolute(3)));
        book.change(over(None, Some("b"), Some(CapacityType::OnDemand), Change::Absolute(4)));
        let on_demand = |name, zone| book.price(name, zone, CapacityType::OnDemand);
        assert_eq!(on_demand("p5.48xlarge", "a"), Some(1));
        assert_eq!(on_demand("p5.48xlarge", "b"), Some(2));
        assert_eq!(on_demand("g6.48xlarge", "b"), Some(4));
    }

    #[test]
    fn amounts_are_exact_to_the_micro_dollar() {
        for (text, micros) in [("55.04", 55_040_000), ("0.842100", 842_100), ("3", 3_000_000), ("0.00000199", 1)] {
            assert_eq!(micro_dollars(text), Some(micros), "{text}");
        }
        for wrong in ["", ".5", "1.2.3", "-1", "1e3", "much", "99999999999999999999"] {
            assert_eq!(micro_dollars(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_table_is_sorted_without_duplicates() {
        assert!(ON_DEMAND.iter().all(|(name, price)| name.contains('.') && *price > 0));
        let names: std::collections::BTreeSet<_> = ON_DEMAND.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), ON_DEMAND.len());
    }

    /// The size of a type as a multiple of `large`, where its name says so.
    fn multiple(size: &str) -> Option<u64> {
        match size {
            "large" => Some(1),
            "xlarge" => Some(2),
            size => size.strip_suffix("xlarge")?.parse::<u64>().ok().map(|times| 2 * times),
        }
    }

    #[test]
    fn no_price_in_a_list_lacks_a_digit_or_has_one_too_many() {
        let lists: Vec<PriceList> =
            BY_REGION.split('@').skip(1).filter_map(|block| PriceList::own(block.split_once(' ')?.0)).collect();
        assert_eq!(lists.len(), BY_REGION.matches('@').count());
        let reference = PriceList::own(STAND_IN).unwrap();
        let mut compared = 0;
        for list in &lists {
            for (name, micros) in &list.prices {
                let elsewhere = reference.prices.get(name).copied().or_else(|| on_demand_price(name));
                // The list of the Region that others are compared with: what Muster knows without any list.
                let known = on_demand_price(name).filter(|_| list.region == STAND_IN);
                assert!(
                    known.is_none_or(|known| known.abs_diff(*micros) <= known / 100),
                    "{name} costs {micros}: {known:?}"
                );
                if let Some(elsewhere) = elsewhere {
                    compared += 1;
                    let like = elsewhere / 2 < *micros && *micros < elsewhere * 2;
                    assert!(like, "{name} costs {micros} in {} and {elsewhere} in {STAND_IN}", list.region);
                }
                // Types for high-performance computing cost the same in every size.
                let Some((family, size)) = name.split_once('.').filter(|(family, _)| !family.starts_with("hpc")) else {
                    continue;
                };
                let Some(own) = multiple(size) else { continue };
                let others = list.prices.range(family..).take_while(|(other, _)| other.starts_with(family));
                for (other, price) in others {
                    let same = other.split_once('.').filter(|(of, _)| *of == family);
                    let Some(times) = same.and_then(|(_, size)| multiple(size)) else { continue };
                    compared += 1;
                    assert!(
                        micros * times < price * own * 5,
                        "{name} costs {micros} and {other} {price} in {}",
                        list.region
                    );
                }
            }
        }
        assert!(compared > 10_000, "{compared} compared");
    }
}
