//! DescribeInstances, TerminateInstances, RunInstances.

use crate::support::{Fleet, SUBNET_A, SUBNET_B, Sim, fleet_ids, text, texts};

#[tokio::test]
async fn an_instance_is_described_with_all_its_members() {
    let sim = Sim::small();
    let template = sim.template().await;
    let fleet = sim.ok("CreateFleet", &Fleet::of(&template, "1", "token-1").parameters()).await;
    sim.advance(20);
    let id = fleet_ids(&fleet).remove(0);
    let body = sim.ok("DescribeInstances", &[("InstanceId.1", &id)]).await;
    let interfaces = texts(&body, "networkInterfaceId");
    let expected = format!(
        "<reservationSet><item><reservationId>{reservation}</reservationId>\
         <ownerId>123456789012</ownerId><instancesSet><item><instanceId>{id}</instanceId>\
         <imageId>{image}</imageId><instanceState><code>16</code><name>running</name></instanceState>\
         <privateDnsName>ip-10-0-0-4.ec2.internal</privateDnsName>\
         <privateIpAddress>10.0.0.4</privateIpAddress><subnetId>{SUBNET_A}</subnetId>\
         <vpcId>vpc-00000000000000001</vpcId><amiLaunchIndex>0</amiLaunchIndex><reason></reason>\
         <instanceType>p5.48xlarge</instanceType><launchTime>2026-01-01T00:00:00.000Z</launchTime>\
         <placement><availabilityZone>us-east-1a</availabilityZone>\
         <availabilityZoneId>use1-az6</availabilityZoneId><tenancy>default</tenancy></placement>\
         <clientToken>token-1</clientToken>\
         <capacityReservationSpecification><capacityReservationPreference>open\
         </capacityReservationPreference></capacityReservationSpecification>\
         <networkInterfaceSet><item><networkInterfaceId>{}</networkInterfaceId>\
         <interfaceType>interface</interfaceType><subnetId>{SUBNET_A}</subnetId>\
         <vpcId>vpc-00000000000000001</vpcId><status>in-use</status>\
         <privateIpAddress>10.0.0.4</privateIpAddress>\
         <attachment><deviceIndex>0</deviceIndex><networkCardIndex>0</networkCardIndex>\
         <status>attached</status></attachment></item>\
         <item><networkInterfaceId>{}</networkInterfaceId>\
         <interfaceType>efa-only</interfaceType><subnetId>{SUBNET_A}</subnetId>\
         <vpcId>vpc-00000000000000001</vpcId><status>in-use</status>\
         <attachment><deviceIndex>0</deviceIndex><networkCardIndex>1</networkCardIndex>\
         <status>attached</status></attachment></item></networkInterfaceSet>\
         <tagSet><item><key>kubernetes.io/cluster/demo</key><value>owned</value></item>\
         <item><key>muster.dev/attempt</key><value>1</value></item>\
         <item><key>muster.dev/batch</key><value>b1</value></item>\
         <item><key>muster.dev/cluster-uid</key><value>c1</value></item></tagSet>\
         <groupSet><item><groupId>sg-00000000000000001</groupId>\
         <groupName>muster-demo-nodes</groupName></item></groupSet>\
         </item></instancesSet></item></reservationSet></DescribeInstancesResponse>",
        interfaces[0],
        interfaces[1],
        reservation = text(&body, "reservationId"),
        image = text(&body, "imageId"),
    );
    assert!(body.ends_with(&expected), "{body}");
}

#[tokio::test]
async fn an_instance_lives_by_the_virtual_clock() {
    let sim = Sim::small();
    let template = sim.template().await;
    let fleet = sim.ok("CreateFleet", &Fleet::of(&template, "1", "t").parameters()).await;
    let id = fleet_ids(&fleet).remove(0);
    let state = || async {
        let body = sim.ok("DescribeInstances", &[("InstanceId.1", &id)]).await;
        text(text(&body, "instanceState"), "name").to_owned()
    };
    assert_eq!(state().await, "pending");
    sim.advance(20);
    assert_eq!(state().await, "running");
    let body = sim.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!(texts(&body, "name"), ["shutting-down", "running"], "current and previous state");
    assert_eq!(state().await, "shutting-down");
    sim.advance(40);
    assert_eq!(state().await, "terminated");
    // To terminate it again is no error.
    sim.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    sim.advance(3600);
    let gone = sim.refused("DescribeInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!(gone, (400, "InvalidInstanceID.NotFound".to_owned()));
}

#[tokio::test]
async fn one_unknown_id_keeps_all_from_being_terminated() {
    let sim = Sim::small();
    let template = sim.template().await;
    let fleet = sim.ok("CreateFleet", &Fleet::of(&template, "1", "t").parameters()).await;
    let id = fleet_ids(&fleet).remove(0);
    let refused = sim.refused("TerminateInstances", &[("InstanceId.1", &id), ("InstanceId.2", "i-0123")]).await;
    assert_eq!(refused.1, "InvalidInstanceID.NotFound");
    assert_eq!(sim.simulator.instances()[0].state, "pending");
}

#[tokio::test]
async fn filters_and_pages_narrow_what_is_described() {
    let sim = Sim::small();
    let template = sim.template().await;
    sim.ok("CreateFleet", &Fleet::of(&template, "7", "t").parameters()).await;
    let count = |body: &str| texts(body, "instanceId").len();
    for (name, value, expected) in [
        ("tag:muster.dev/batch", "b1", 7),
        ("tag:muster.dev/batch", "b*", 7),
        ("tag:muster.dev/batch", "b2", 0),
        ("tag-key", "muster.dev/clus?er-uid", 7),
        ("instance-state-name", "pending", 7),
        ("client-token", "t", 7),
        ("placement-group-name", "*", 0),
    ] {
        let body = sim.ok("DescribeInstances", &[("Filter.1.Name", name), ("Filter.1.Value.1", value)]).await;
        assert_eq!(count(&body), expected, "{name}={value}");
    }
    let first = sim.ok("DescribeInstances", &[("MaxResults", "5")]).await;
    let next = text(&first, "nextToken");
    let second = sim.ok("DescribeInstances", &[("MaxResults", "5"), ("NextToken", next)]).await;
    assert_eq!((count(&first), count(&second)), (5, 2));
    assert!(texts(&second, "nextToken").is_empty());
    let refused = sim.refused("DescribeInstances", &[("MaxResults", "4")]).await;
    assert_eq!(refused.1, "InvalidParameterValue");
}

fn run<'a>(template: &'a str, n: &'a str, token: &'a str, subnet: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("MinCount", n),
        ("MaxCount", n),
        ("ClientToken", token),
        ("LaunchTemplate.LaunchTemplateId", template),
        ("LaunchTemplate.Version", "1"),
        ("InstanceType", "p5.48xlarge"),
        ("SubnetId", subnet),
    ]
}

#[tokio::test]
async fn run_instances_is_all_or_nothing_in_its_zone() {
    let sim = Sim::small();
    let template = sim.template().await;
    let refused = sim.refused("RunInstances", &run(&template, "9", "t1", SUBNET_A)).await;
    assert_eq!(refused, (500, "InsufficientInstanceCapacity".to_owned()));
    assert!(sim.simulator.instances().is_empty());
    let body = sim.ok("RunInstances", &run(&template, "8", "t2", SUBNET_A)).await;
    assert_eq!(texts(&body, "instanceId").len(), 8);
}

#[tokio::test]
async fn a_run_instances_token_counts_in_its_zone_alone() {
    let sim = Sim::small();
    let template = sim.template().await;
    let first = sim.ok("RunInstances", &run(&template, "2", "t", SUBNET_A)).await;
    let again = sim.ok("RunInstances", &run(&template, "2", "t", SUBNET_A)).await;
    assert_eq!(texts(&first, "instanceId"), texts(&again, "instanceId"));
    let refused = sim.refused("RunInstances", &run(&template, "3", "t", SUBNET_A)).await;
    assert_eq!(refused.1, "IdempotentParameterMismatch");
    sim.ok("RunInstances", &run(&template, "2", "t", SUBNET_B)).await;
    assert_eq!(sim.simulator.instances().len(), 4, "the second zone launched again");
    let broken = sim.simulator.invariants();
    let tokens = broken.iter().find(|i| i.number == 1).expect("it is judged");
    assert!(!tokens.holds, "four instances by a token for two");
    sim.advance(1);
    let ids = texts(&first, "instanceId");
    sim.ok("TerminateInstances", &[("InstanceId.1", ids[0]), ("InstanceId.2", ids[1])]).await;
    let spent = sim.refused("RunInstances", &run(&template, "2", "t", SUBNET_A)).await;
    assert_eq!(spent.1, "IdempotentInstanceTerminated");
}
