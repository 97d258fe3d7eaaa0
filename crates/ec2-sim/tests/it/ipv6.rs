//! IPv6 addresses of instances, and subnets that have none to give.

use std::collections::BTreeSet;

use muster_ec2_sim::{Scenario, ScenarioError, Simulator};

use crate::support::{Fleet, SSM, SUBNET_A, SUBNET_B, Sim, small, text, texts};

const CIDR: &str = "2600:1f14:abcd:ef00::/64";

/// A scenario in which the subnet of the first zone has an IPv6 block, and the others have none.
fn dual_stack() -> Scenario {
    let mut scenario = small();
    scenario.zones[0].subnets[0].ipv6_cidr = Some(CIDR.to_owned());
    scenario
}

/// Makes a template with one interface, of which this is set beside its place.
async fn template(sim: &Sim, interface: &[(&str, &str)]) -> String {
    let names: Vec<String> =
        interface.iter().map(|(name, _)| format!("LaunchTemplateData.NetworkInterface.1.{name}")).collect();
    let mut parameters = vec![
        ("LaunchTemplateName", "hash-6"),
        ("LaunchTemplateData.ImageId", SSM),
        ("LaunchTemplateData.NetworkInterface.1.DeviceIndex", "0"),
        ("LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1", "sg-00000000000000001"),
    ];
    parameters.extend(names.iter().map(String::as_str).zip(interface.iter().map(|(_, value)| *value)));
    text(&sim.ok("CreateLaunchTemplate", &parameters).await, "launchTemplateId").to_owned()
}

const PRIMARY: [(&str, &str); 2] = [("Ipv6AddressCount", "1"), ("PrimaryIpv6", "true")];

fn run<'a>(template: &'a str, subnet: &'a str) -> [(&'a str, &'a str); 6] {
    [
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("LaunchTemplate.LaunchTemplateId", template),
        ("LaunchTemplate.Version", "1"),
        ("InstanceType", "p5.48xlarge"),
        ("SubnetId", subnet),
    ]
}

#[tokio::test]
async fn every_instance_gets_an_ipv6_address_of_its_own_and_keeps_its_ipv4_one() {
    let sim = Sim::new(dual_stack());
    let template = template(&sim, &PRIMARY).await;
    sim.ok("CreateFleet", &Fleet::of(&template, "3", "t").parameters()).await;
    let body = sim.ok("DescribeInstances", &[]).await;
    let sets = texts(&body, "ipv6AddressesSet");
    let addresses: BTreeSet<&str> = sets.iter().map(|set| text(set, "ipv6Address")).collect();
    assert_eq!(addresses.len(), 3);
    assert!(addresses.iter().all(|address| address.starts_with("2600:1f14:abcd:ef00:")), "{addresses:?}");
    assert!(sets.iter().all(|set| text(set, "isPrimaryIpv6") == "true"));
    let private: BTreeSet<&str> = texts(&body, "privateIpAddress").into_iter().collect();
    assert_eq!(private.len(), 3);
    let ask = [("LaunchTemplateId", template.as_str()), ("LaunchTemplateVersion.1", "1")];
    let body = sim.ok("DescribeLaunchTemplateVersions", &ask).await;
    assert_eq!((text(&body, "ipv6AddressCount"), text(&body, "primaryIpv6")), ("1", "true"));
}

#[tokio::test]
async fn a_subnet_without_an_ipv6_block_gives_no_ipv6_address_and_nothing_is_launched_in_it() {
    let sim = Sim::new(dual_stack());
    let template = template(&sim, &PRIMARY).await;
    let fleet = Fleet { subnet: SUBNET_B, ..Fleet::of(&template, "2", "t") };
    let body = sim.ok("CreateFleet", &fleet.parameters()).await;
    assert_eq!(texts(&body, "errorCode"), ["InvalidParameterValue"]);
    assert!(text(&body, "errorMessage").contains(SUBNET_B), "{body}");
    let refused = sim.refused("RunInstances", &run(&template, SUBNET_B)).await;
    assert_eq!(refused, (400, "InvalidParameterValue".to_owned()));
    assert!(sim.simulator.instances().is_empty());
    sim.ok("RunInstances", &run(&template, SUBNET_A)).await;
}

#[tokio::test]
async fn a_launch_that_asks_for_no_ipv6_address_gets_none() {
    let sim = Sim::new(dual_stack());
    let template = sim.template().await;
    for (subnet, token) in [(SUBNET_A, "t1"), (SUBNET_B, "t2")] {
        sim.ok("CreateFleet", &Fleet { subnet, ..Fleet::of(&template, "1", token) }.parameters()).await;
    }
    assert!(!sim.ok("DescribeInstances", &[]).await.contains("pv6"));
}

#[tokio::test]
async fn a_number_of_ipv6_addresses_excludes_addresses_of_its_own_and_an_efa_only_interface_has_neither() {
    let sim = Sim::new(dual_stack());
    let both = [("Ipv6AddressCount", "1"), ("Ipv6Addresses.1.Ipv6Address", "2600:1f14:abcd:ef00::9")];
    let template = template(&sim, &both).await;
    let refused = sim.refused("RunInstances", &run(&template, SUBNET_A)).await;
    assert_eq!(refused.1, "InvalidParameterCombination");
    for (name, value) in PRIMARY {
        let second = |rest: &str| format!("NetworkInterface.2.{rest}");
        let (index, card, kind, set) =
            (second("DeviceIndex"), second("NetworkCardIndex"), second("InterfaceType"), second(name));
        let mut call = vec![
            ("ImageId", SSM),
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.SubnetId", SUBNET_A),
            (index.as_str(), "0"),
            (card.as_str(), "1"),
            (kind.as_str(), "efa-only"),
            (set.as_str(), value),
            ("InstanceType", "p5.48xlarge"),
        ];
        call.extend([("MinCount", "1"), ("MaxCount", "1")]);
        assert_eq!(sim.refused("RunInstances", &call).await.1, "InvalidParameterValue", "{name}");
    }
}

#[tokio::test]
async fn a_subnet_shows_its_ipv6_block_as_associated() {
    let sim = Sim::new(dual_stack());
    let with = sim.ok("DescribeSubnets", &[("SubnetId.1", SUBNET_A)]).await;
    let block = text(&with, "ipv6CidrBlockAssociationSet");
    assert_eq!((text(block, "ipv6CidrBlock"), text(block, "ipv6CidrBlockState")), (CIDR, "<state>associated</state>"));
    let without = sim.ok("DescribeSubnets", &[("SubnetId.1", SUBNET_B)]).await;
    assert!(!without.contains("ipv6"));
}

#[test]
fn an_ipv6_block_that_no_subnet_has_is_no_scenario() {
    for cidr in ["2600:1f14:abcd:ef00::/56", "2600:1f14:abcd:ef00::1/64", "10.0.0.0/64", "2600::"] {
        let mut scenario = dual_stack();
        scenario.zones[0].subnets[0].ipv6_cidr = Some(cidr.to_owned());
        let refused = Simulator::new(scenario).err();
        assert_eq!(refused, Some(ScenarioError::Ipv6Cidr(cidr.to_owned())));
    }
}
