//! Subnets and security groups.

use aws_sdk_ec2::operation::describe_security_groups::builders::DescribeSecurityGroupsInputBuilder;
use aws_sdk_ec2::operation::describe_subnets::builders::DescribeSubnetsInputBuilder;
use aws_sdk_ec2::types::{IpPermission, SubnetCidrBlockStateCode};
use muster_core::ec2::{CallError, SecurityGroup, Subnet, Tags};

use crate::Client;
use crate::convert::{filter, from_tags, present, tag_filters, text, unsigned};

const SUBNETS: &str = "DescribeSubnets";
const GROUPS: &str = "DescribeSecurityGroups";
/// Results per page: the most EC2 gives.
const PAGE: i32 = 1000;

/// Which subnets or security groups to describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkQuery {
    /// The one with this id.
    Id(String),
    /// All with this name; security groups only.
    Name(String),
    /// The default subnet of each zone; subnets only.
    DefaultForZone,
    /// All that carry these tags; `*` in a value is a wildcard.
    Tags(Tags),
}

impl NetworkQuery {
    /// Ids as filters, so that an unknown id gives an empty answer and pages can be asked for.
    fn filters(&self, id_filter: &str) -> Vec<aws_sdk_ec2::types::Filter> {
        match self {
            Self::Id(id) => vec![filter(id_filter, [id.clone()])],
            Self::Name(name) => vec![filter("group-name", [name.clone()])],
            Self::DefaultForZone => vec![filter("default-for-az", ["true".to_owned()])],
            Self::Tags(tags) => tag_filters(tags),
        }
    }

    fn checked(&self, operation: &str) -> Result<(), CallError> {
        match self {
            Self::Tags(tags) if tags.is_empty() => {
                Err(CallError::refused_here(operation, "a selector without tags would choose everything"))
            }
            Self::Tags(_) | Self::Id(_) | Self::Name(_) | Self::DefaultForZone => Ok(()),
        }
    }
}

impl Client {
    /// Describes subnets, in order of id, with their free addresses now.
    pub async fn describe_subnets(&self, query: &NetworkQuery) -> Result<Vec<Subnet>, CallError> {
        query.checked(SUBNETS)?;
        let mut subnets = Vec::new();
        let (mut token, mut turns) = (None, self.turns(SUBNETS));
        loop {
            turns.next().await;
            let page = DescribeSubnetsInputBuilder::default()
                .set_filters(Some(query.filters("subnet-id")))
                .max_results(PAGE)
                .set_next_token(token.take());
            let call = page.send_with(&self.calls);
            let output = Box::pin(call).await.map_err(|error| self.failed(SUBNETS, error))?;
            subnets.extend(output.subnets().iter().map(subnet));
            token = present(output.next_token());
            if token.is_none() {
                break;
            }
        }
        subnets.sort();
        Ok(subnets)
    }

    /// Describes security groups, in order of id.
    pub async fn describe_security_groups(&self, query: &NetworkQuery) -> Result<Vec<SecurityGroup>, CallError> {
        query.checked(GROUPS)?;
        let mut groups = Vec::new();
        let (mut token, mut turns) = (None, self.turns(GROUPS));
        loop {
            turns.next().await;
            let page = DescribeSecurityGroupsInputBuilder::default()
                .set_filters(Some(query.filters("group-id")))
                .max_results(PAGE)
                .set_next_token(token.take());
            let call = page.send_with(&self.calls);
            let output = Box::pin(call).await.map_err(|error| self.failed(GROUPS, error))?;
            groups.extend(output.security_groups().iter().map(security_group));
            token = present(output.next_token());
            if token.is_none() {
                break;
            }
        }
        groups.sort();
        Ok(groups)
    }
}

fn subnet(subnet: &aws_sdk_ec2::types::Subnet) -> Subnet {
    let mut states =
        subnet.ipv6_cidr_block_association_set().iter().filter_map(|one| one.ipv6_cidr_block_state()?.state());
    Subnet {
        id: text(subnet.subnet_id()),
        zone: text(subnet.availability_zone()),
        zone_id: text(subnet.availability_zone_id()),
        free_addresses: unsigned(subnet.available_ip_address_count()),
        vpc_id: text(subnet.vpc_id()),
        // One that was taken off is still shown, as disassociated.
        ipv6: states.any(|state| *state == SubnetCidrBlockStateCode::Associated),
        tags: from_tags(subnet.tags()),
    }
}

fn security_group(group: &aws_sdk_ec2::types::SecurityGroup) -> SecurityGroup {
    let id = text(group.group_id());
    // EFA needs a rule for all traffic that names the group itself; 0.0.0.0/0 does not count, since EFA traffic has no
    // address.
    let names_itself = |rules: &[IpPermission]| {
        let all = rules.iter().filter(|rule| rule.ip_protocol() == Some("-1"));
        all.flat_map(IpPermission::user_id_group_pairs).any(|pair| pair.group_id() == Some(id.as_str()))
    };
    SecurityGroup {
        name: text(group.group_name()),
        vpc_id: text(group.vpc_id()),
        allows_itself: names_itself(group.ip_permissions()) && names_itself(group.ip_permissions_egress()),
        tags: from_tags(group.tags()),
        id,
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{SubnetCidrBlockState, SubnetIpv6CidrBlockAssociation, UserIdGroupPair};

    use super::*;

    fn rule(protocol: &str, group: &str) -> IpPermission {
        let pair = UserIdGroupPair::builder().group_id(group).build();
        IpPermission::builder().ip_protocol(protocol).user_id_group_pairs(pair).build()
    }

    #[test]
    fn a_group_allows_itself_only_with_all_traffic_in_both_directions() {
        let build = |inward: IpPermission, outward: IpPermission| {
            let group = aws_sdk_ec2::types::SecurityGroup::builder().group_id("sg-1");
            security_group(&group.ip_permissions(inward).ip_permissions_egress(outward).build()).allows_itself
        };
        assert!(build(rule("-1", "sg-1"), rule("-1", "sg-1")));
        assert!(!build(rule("-1", "sg-1"), rule("-1", "sg-2")));
        assert!(!build(rule("tcp", "sg-1"), rule("-1", "sg-1")));
    }

    #[test]
    fn a_subnet_has_an_ipv6_cidr_as_long_as_one_is_associated() {
        let with = |states: &[SubnetCidrBlockStateCode]| {
            let associated = states.iter().map(|state| {
                let state = SubnetCidrBlockState::builder().state(state.clone()).build();
                SubnetIpv6CidrBlockAssociation::builder().ipv6_cidr_block_state(state).build()
            });
            let seen = aws_sdk_ec2::types::Subnet::builder()
                .set_ipv6_cidr_block_association_set(Some(associated.collect()))
                .build();
            subnet(&seen).ipv6
        };
        use SubnetCidrBlockStateCode::{Associated, Associating, Disassociated};
        assert!(!with(&[]) && !with(&[Disassociated]) && !with(&[Associating]));
        assert!(with(&[Disassociated, Associated]));
    }

    #[test]
    fn a_selector_without_tags_is_refused() {
        assert!(NetworkQuery::Tags(Tags::new()).checked(SUBNETS).is_err());
        assert!(NetworkQuery::Id("subnet-1".to_owned()).checked(SUBNETS).is_ok());
    }
}
