//! Quotas in virtual CPUs, per family of types and capacity type.

use crate::kinds::MarketType;

/// The families that share a quota: the quota's name and the prefixes of its types. The longest prefix counts.
const FAMILIES: [(&str, &[&str]); 9] = [
    ("standard", &["a", "c", "d", "h", "i", "m", "r", "t", "z"]),
    ("g", &["g", "vt"]),
    ("p", &["p"]),
    ("trn", &["trn"]),
    ("inf", &["inf"]),
    ("dl", &["dl"]),
    ("hpc", &["hpc"]),
    ("x", &["x"]),
    ("f", &["f"]),
];

/// Every name that a scenario's `quotas` may have.
pub(crate) fn names() -> Vec<String> {
    FAMILIES.iter().flat_map(|(name, _)| [(*name).to_owned(), format!("spot-{name}")]).collect()
}

/// Codes of Service Quotas.
const CODES: [(&str, &str); 17] = [
    ("L-1216C47A", "standard"),
    ("L-DB2E81BA", "g"),
    ("L-417A185B", "p"),
    ("L-34B43A08", "spot-standard"),
    ("L-3819A6DF", "spot-g"),
    ("L-7212CCBC", "spot-p"),
    ("L-2C3B7624", "trn"),
    ("L-6B0D517C", "spot-trn"),
    ("L-1945791B", "inf"),
    ("L-B5D1601B", "spot-inf"),
    ("L-6E869C2A", "dl"),
    ("L-85EED4F7", "spot-dl"),
    ("L-7295265B", "x"),
    ("L-E3A00192", "spot-x"),
    ("L-74FC7D96", "f"),
    ("L-88CF9481", "spot-f"),
    ("L-F7808C92", "hpc"),
];

/// The quota that Service Quotas has under a code.
pub(crate) fn of_code(code: &str) -> Option<&'static str> {
    CODES.iter().find(|(known, _)| *known == code).map(|(_, quota)| *quota)
}

/// The quota a type counts towards; nothing is provisioned in a reservation that was not counted before.
pub(crate) fn of(instance_type: &str, capacity_type: MarketType) -> String {
    let letters: String = instance_type.chars().take_while(char::is_ascii_lowercase).collect();
    let fits = |prefixes: &[&str]| prefixes.iter().filter(|p| letters.starts_with(**p)).map(|p| p.len()).max();
    let family = FAMILIES
        .iter()
        .filter_map(|(name, prefixes)| fits(prefixes).map(|length| (length, *name)))
        .max_by_key(|(length, _)| *length)
        .map_or("standard", |(_, name)| name);
    match capacity_type {
        MarketType::Spot => format!("spot-{family}"),
        MarketType::OnDemand | MarketType::CapacityBlock | MarketType::InterruptibleReservation => family.to_owned(),
    }
}

/// The code of a quota that is used up.
pub(crate) fn code(capacity_type: MarketType) -> &'static str {
    match capacity_type {
        MarketType::Spot => "MaxSpotInstanceCountExceeded",
        MarketType::OnDemand | MarketType::CapacityBlock | MarketType::InterruptibleReservation => "VcpuLimitExceeded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_quota_of_its_own() {
        for (instance_type, quota) in [
            ("p5.48xlarge", "p"),
            ("g6e.48xlarge", "g"),
            ("trn2.48xlarge", "trn"),
            ("hpc7a.96xlarge", "hpc"),
            ("m5.2xlarge", "standard"),
            ("inf2.48xlarge", "inf"),
            ("dl1.24xlarge", "dl"),
            ("t3.micro", "standard"),
        ] {
            assert_eq!(of(instance_type, MarketType::OnDemand), quota, "{instance_type}");
        }
        assert_eq!(of("p5.48xlarge", MarketType::Spot), "spot-p");
    }
}
