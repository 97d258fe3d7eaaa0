//! Quotas of an account that launches count towards: virtual CPUs in use at once, per family of types, on demand and on spot
//! apart.
//!
//! Source: "Amazon EC2 instance type quotas" of the EC2 user guide; codes and names as `ListServiceQuotas` has them.

use crate::model::launch::CapacityType;

/// A quota of virtual CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VcpuQuota {
    /// Code within the service `ec2`, `L-417A185B`.
    pub code: &'static str,
    /// Name, `Running On-Demand P instances`.
    pub name: &'static str,
}

/// First letters of the types of a family, its quota on demand, and that on spot where there is one.
type Family = (&'static [&'static str], VcpuQuota, Option<VcpuQuota>);

const fn quota(code: &'static str, name: &'static str) -> VcpuQuota {
    VcpuQuota { code, name }
}

const FAMILIES: [Family; 10] = [
    (
        &["a", "c", "d", "h", "i", "m", "r", "t", "z"],
        quota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
        Some(quota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests")),
    ),
    (
        &["g", "vt"],
        quota("L-DB2E81BA", "Running On-Demand G and VT instances"),
        Some(quota("L-3819A6DF", "All G and VT Spot Instance Requests")),
    ),
    (
        &["p"],
        quota("L-417A185B", "Running On-Demand P instances"),
        Some(quota("L-7212CCBC", "All P Spot Instance Requests")),
    ),
    (
        &["trn"],
        quota("L-2C3B7624", "Running On-Demand Trn instances"),
        Some(quota("L-6B0D517C", "All Trn Spot Instance Requests")),
    ),
    (
        &["inf"],
        quota("L-1945791B", "Running On-Demand Inf instances"),
        Some(quota("L-B5D1601B", "All Inf Spot Instance Requests")),
    ),
    (
        &["dl"],
        quota("L-6E869C2A", "Running On-Demand DL instances"),
        Some(quota("L-85EED4F7", "All DL Spot Instance Requests")),
    ),
    (
        &["x"],
        quota("L-7295265B", "Running On-Demand X instances"),
        Some(quota("L-E3A00192", "All X Spot Instance Requests")),
    ),
    (
        &["f"],
        quota("L-74FC7D96", "Running On-Demand F instances"),
        Some(quota("L-88CF9481", "All F Spot Instance Requests")),
    ),
    (&["hpc"], quota("L-F7808C92", "Running On-Demand HPC instances"), None),
    (&["u"], quota("L-43DA4232", "Running On-Demand High Memory instances"), None),
];

/// The quota that a launch of a type counts towards; the longest first letters decide. `None`: a family that is not known or not
/// sold so, or a reservation, whose capacity was counted when it was made.
#[must_use]
pub fn vcpu_quota(instance_type: &str, capacity_type: CapacityType) -> Option<VcpuQuota> {
    let letters = instance_type.split(|letter: char| !letter.is_ascii_lowercase()).next().unwrap_or_default();
    let longest = |(starts, _, _): &Family| {
        starts.iter().filter(|start| letters.starts_with(**start)).map(|start| start.len()).max()
    };
    let (_, (_, on_demand, spot)) = FAMILIES
        .iter()
        .filter_map(|family| longest(family).map(|length| (length, family)))
        .max_by_key(|(length, _)| *length)?;
    match capacity_type {
        CapacityType::OnDemand => Some(*on_demand),
        CapacityType::Spot => *spot,
        CapacityType::Reserved => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_counts_towards_the_quota_of_its_family_and_capacity_type() {
        use CapacityType::{OnDemand, Reserved, Spot};
        for (instance_type, capacity_type, code) in [
            ("p5.48xlarge", OnDemand, Some("L-417A185B")),
            ("p5.48xlarge", Spot, Some("L-7212CCBC")),
            ("p5.48xlarge", Reserved, None),
            ("g6e.48xlarge", OnDemand, Some("L-DB2E81BA")),
            ("gr6.4xlarge", Spot, Some("L-3819A6DF")),
            ("vt1.3xlarge", OnDemand, Some("L-DB2E81BA")),
            ("trn2.48xlarge", OnDemand, Some("L-2C3B7624")),
            ("t3.micro", OnDemand, Some("L-1216C47A")),
            ("inf2.48xlarge", Spot, Some("L-B5D1601B")),
            ("i4i.large", Spot, Some("L-34B43A08")),
            ("im4gn.large", OnDemand, Some("L-1216C47A")),
            ("dl1.24xlarge", OnDemand, Some("L-6E869C2A")),
            ("d3.xlarge", OnDemand, Some("L-1216C47A")),
            ("hpc7a.96xlarge", OnDemand, Some("L-F7808C92")),
            ("hpc7a.96xlarge", Spot, None),
            ("h1.2xlarge", OnDemand, Some("L-1216C47A")),
            ("x2idn.16xlarge", Spot, Some("L-E3A00192")),
            ("f2.6xlarge", OnDemand, Some("L-74FC7D96")),
            ("u-6tb1.56xlarge", OnDemand, Some("L-43DA4232")),
            ("u7i-12tb.224xlarge", OnDemand, Some("L-43DA4232")),
            ("8xlarge", OnDemand, None),
            ("", Spot, None),
        ] {
            assert_eq!(vcpu_quota(instance_type, capacity_type).map(|quota| quota.code), code, "{instance_type}");
        }
    }
}
