//! How nodes and pods of the cluster get addresses, and subnets that have none for them.

use muster_api::crd::SubnetStatus;
use muster_api::node_class::Problem;

use crate::cluster::State;
use crate::provisioner::Context;

/// How nodes and pods of the cluster get addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    /// Whether they are IPv6.
    pub(super) ipv6: bool,
    /// Whether nodes get prefixes of them.
    pub(super) prefixes: bool,
}

impl Network {
    /// As far as it is known by now.
    pub(super) fn of(context: &Context, state: &State) -> Self {
        Self { ipv6: context.options.way.load().access.is_ipv6(), prefixes: state.prefixes }
    }
}

/// An IPv6 cluster, and no subnet that has an IPv6 CIDR. Where some have one, the others are excluded by name with each launch.
pub(super) fn without_ipv6(subnets: &[SubnetStatus], ipv6: bool) -> Option<Problem> {
    if !ipv6 || subnets.is_empty() || subnets.iter().any(|subnet| subnet.ipv6) {
        return None;
    }
    let names: Vec<&str> = subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    Some(Problem {
        condition: "SubnetsReady",
        reason: "SubnetsWithoutIPv6",
        message: format!(
            "spec.subnetSelectorTerms: the cluster is IPv6, and none of {} has an IPv6 CIDR; choose subnets that have one, or \
             associate one with them",
            names.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_of_an_ipv6_cluster_needs_one_subnet_with_an_ipv6_cidr() {
        let subnet = |id: &str, ipv6| SubnetStatus { id: id.to_owned(), ipv6, ..SubnetStatus::default() };
        let none = [subnet("subnet-1", false), subnet("subnet-2", false)];
        let found = without_ipv6(&none, true).unwrap();
        assert_eq!((found.condition, found.reason), ("SubnetsReady", "SubnetsWithoutIPv6"));
        assert!(found.message.contains("subnet-1, subnet-2"), "{}", found.message);
        assert!(without_ipv6(&none, false).is_none(), "an IPv4 cluster");
        assert!(without_ipv6(&[subnet("subnet-1", false), subnet("subnet-2", true)], true).is_none());
        assert!(without_ipv6(&[], true).is_none(), "that there is no subnet is named already");
    }
}
