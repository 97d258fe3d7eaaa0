//! Instances that nobody ends: those whose user data has the unit that ends a machine which becomes no node, and others.

use std::collections::BTreeMap;

use muster_core::batch::{Verdict, judge};
use muster_core::ec2::{Bootstrap, CapacityType, ClusterAccess, Family, Kubelet, LaunchParameters, user_data};
use muster_ec2_sim::choices::SpotPowerOff;
use muster_ec2_sim::{Fault, FaultKind, MarketType, Scenario};

use crate::support::{P5, SUBNET, World, ZONE, scenario, tags};

/// `join.registerWithin` of 15 minutes and four more.
const LIMIT: u32 = 19 * 60;
/// From the launch until a machine runs, and from there until its node registers.
const BOOT: i64 = 30;
const REGISTRATION: i64 = 20;
const DAY: i64 = 24 * 3600;

fn bootstrap() -> Bootstrap {
    Bootstrap {
        cluster: ClusterAccess {
            name: "prod".to_owned(),
            endpoint: "https://prod.example".to_owned(),
            certificate_authority: "Q0E=".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
        },
        labels: BTreeMap::new(),
        taints: Vec::new(),
        kubelet: Kubelet::default(),
        local_storage_raid0: false,
        user_data: String::new(),
        power_off_after: Some(u64::from(LIMIT)),
    }
}

/// The first instance of every launch never registers its node.
fn half_dead() -> Scenario {
    let mut scenario = scenario().with_pool(P5, ZONE, MarketType::Spot, 2, 2, 2);
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let seconds = |seconds: i64| seconds as f64;
    scenario.delays.boot_seconds = seconds(BOOT);
    scenario.delays.boot_jitter_seconds = 0.0;
    scenario.delays.registration_seconds = seconds(REGISTRATION);
    scenario.faults = vec![Fault::of(FaultKind::SlowRegistration { instances: Some(1), seconds: None })];
    scenario
}

impl World {
    /// Two instances by each of the calls, with this user data.
    async fn launch_both_ways(&self, capacity_type: CapacityType, text: &str) {
        let first = self.intent_on(capacity_type, 2).await;
        let template = self.template_with(&tags(), None, capacity_type, text).await;
        let fleet = LaunchParameters { template_id: template.id, ..first.clone() }.with_token(1);
        let answer = self.client.create_fleet(&fleet).await;
        assert!(matches!(judge(&fleet, true, &answer), Verdict::Won(_)), "{answer:?}");
        let run = self.run_beside(&first, 2).await;
        let template = self.template_with(&run.tags, Some(SUBNET.to_owned()), capacity_type, text).await;
        let run = LaunchParameters { template_id: template.id, ..run }.with_token(1);
        self.client.run_instances(&run).await.expect("there is capacity");
    }

    /// Of each instance whether it registers, and how it ended.
    fn lives(&self) -> Vec<(bool, Option<String>)> {
        let instances = self.simulator.instances();
        instances.into_iter().map(|one| (one.registration_time.is_some(), one.state_reason)).collect()
    }
}

#[tokio::test]
async fn a_machine_of_al2023_that_becomes_no_node_ends_itself_and_one_that_became_a_node_lives_on() {
    let text = user_data(Family::Al2023, &bootstrap()).unwrap();
    for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
        let world = World::of(half_dead()).await;
        world.launch_both_ways(capacity_type, &text).await;
        world.advance(BOOT + i64::from(LIMIT) - 1);
        assert!(world.lives().iter().all(|(_, ended)| ended.is_none()), "{capacity_type}: {:?}", world.lives());
        world.advance(1);
        for later in [0, DAY] {
            world.advance(later);
            let lives = world.lives();
            assert_eq!(lives.len(), 4, "{capacity_type}");
            assert_eq!(lives.iter().filter(|(registers, _)| *registers).count(), 2, "{capacity_type}");
            for (registers, ended) in lives {
                let expected = (!registers).then_some("Client.InstanceInitiatedShutdown");
                assert_eq!(ended.as_deref(), expected, "{capacity_type}");
            }
        }
    }
}

#[tokio::test]
async fn a_node_that_registers_within_the_limit_stays_and_one_after_it_is_too_late() {
    let text = user_data(Family::Al2023, &bootstrap()).unwrap();
    for (late, ends) in [(LIMIT - 30, false), (LIMIT + 30, true)] {
        let mut scenario = half_dead();
        scenario.faults =
            vec![Fault::of(FaultKind::SlowRegistration { instances: None, seconds: Some(f64::from(late)) })];
        let world = World::of(scenario).await;
        world.launch_both_ways(CapacityType::OnDemand, &text).await;
        world.advance(DAY);
        assert!(world.lives().iter().all(|(_, ended)| ended.is_some() == ends), "{late} s: {:?}", world.lives());
    }
}

#[tokio::test]
async fn machines_without_the_unit_and_spot_that_would_only_stop_go_on() {
    let bottlerocket = user_data(Family::Bottlerocket, &bootstrap()).unwrap();
    let unarmed = user_data(Family::Al2023, &Bootstrap { power_off_after: None, ..bootstrap() }).unwrap();
    let armed = user_data(Family::Al2023, &bootstrap()).unwrap();
    for (capacity_type, text) in [
        (CapacityType::OnDemand, bottlerocket.as_str()),
        (CapacityType::OnDemand, &unarmed),
        (CapacityType::OnDemand, "#!/bin/bash"),
        (CapacityType::Spot, &armed),
    ] {
        let mut scenario = half_dead();
        scenario.choices.spot_power_off = SpotPowerOff::Stops;
        let world = World::of(scenario).await;
        world.launch_both_ways(capacity_type, text).await;
        world.advance(DAY);
        assert!(world.lives().iter().all(|(_, ended)| ended.is_none()), "{capacity_type}: {:?}", world.lives());
    }
}
