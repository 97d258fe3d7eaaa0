//! What the labels of a node say about its zone beside the zone itself.

/// Label key of the region, as the cloud controller writes it.
pub const REGION_KEY: &str = "topology.kubernetes.io/region";
/// Label key by which the EBS CSI driver says in which zone a node attaches volumes.
pub const EBS_ZONE_KEY: &str = "topology.ebs.csi.aws.com/zone";

/// Labels that a node of the zone carries once it has joined, beside that of the zone itself.
pub fn beside_zone(zone: &str) -> impl Iterator<Item = (&'static str, &str)> {
    let region = region_of(zone).map(|region| (REGION_KEY, region));
    region.into_iter().chain([(EBS_ZONE_KEY, zone)])
}

/// The region of a zone of EC2: `us-east-1` of `us-east-1a`, and of the local zone `us-east-1-bos-1a`. `None`: it is named as no
/// zone of EC2 is.
#[must_use]
pub fn region_of(zone: &str) -> Option<&str> {
    let is_digit = |c: char| c.is_ascii_digit();
    let digits = zone.match_indices('-').map(|(at, _)| at + 1).find(|at| zone[*at..].starts_with(is_digit))?;
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_lowercase());
    let words: Vec<&str> = zone[..digits - 1].split('-').collect();
    let number = zone[digits..].find(|c| !is_digit(c))?;
    let end = digits + number;
    let named = zone[end..].starts_with(|c: char| c == '-' || c.is_ascii_lowercase());
    (words.len() >= 2 && words.iter().all(|word| is_word(word)) && named).then(|| &zone[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_that_of_the_zone_whatever_its_kind() {
        for (zone, region) in [
            ("us-east-1a", Some("us-east-1")),
            ("ap-southeast-12b", Some("ap-southeast-12")),
            ("us-gov-west-1a", Some("us-gov-west-1")),
            ("us-east-1-bos-1a", Some("us-east-1")),
            ("us-east-1-wl1-bos-wlz-1", Some("us-east-1")),
            ("us-east-1", None),
            ("z-1", None),
            ("z-1a", None),
            ("use1-az1", None),
            ("a", None),
            ("", None),
        ] {
            assert_eq!(region_of(zone), region, "{zone}");
        }
    }

    #[test]
    fn a_zone_that_is_none_of_ec2_has_no_region() {
        assert_eq!(
            beside_zone("us-east-1a").collect::<Vec<_>>(),
            [(REGION_KEY, "us-east-1"), (EBS_ZONE_KEY, "us-east-1a")]
        );
        assert_eq!(beside_zone("z-1").collect::<Vec<_>>(), [(EBS_ZONE_KEY, "z-1")]);
    }
}
