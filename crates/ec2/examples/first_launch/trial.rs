//! Two instances in a placement group, on demand and then on spot, by the calls that Muster sends; and nothing is left.
//!
//! Everything carries one tag, so that the next run ends what a killed one left; and each instance powers itself off, which
//! ends it, should there be no next run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::batch::{Verdict, judge};
use muster_core::ec2::{
    BatchTags, CallError, CapacityType, Efa, ErrorClass, FleetTags, GroupState, ImageKind, Instance, InstanceState,
    LaunchAnswer, LaunchParameters, LaunchTemplate, LaunchWay, MetadataOptions, Offering, Purpose, ResourceKind,
    TAG_CLUSTER_UID, Tags, TemplateSpec, efa_layout, placement_group_name,
};
use muster_core::model::names::InstanceId;
use muster_core::offering::{InstanceTypeInfo, PriceList};
use muster_ec2::{Client, GroupQuery, InstanceQuery, NetworkQuery, TopologyQuery};

/// Name and UID of the cluster that there is not, in every tag.
pub(crate) const CLUSTER: &str = "muster-first-launch";
/// Instances of one launch.
const INSTANCES: u32 = 2;
/// Looks in a row at which nothing may be left, where something was: what was launched a moment ago is not always shown yet.
const QUIET: u32 = 12;
/// Minutes after which an instance powers itself off, which ends it.
const LIFE: u32 = 30;
/// Followed by the architecture: Amazon Linux, which boots within seconds.
pub(crate) const IMAGE: &str = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-";

/// What to launch, as asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Instance type.
    pub(crate) instance_type: String,
    /// The subnet; `None`: a default subnet of the Region.
    pub(crate) subnet: Option<String>,
    /// The Region, for its list prices.
    pub(crate) region: String,
}

/// What is launched, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) subnet_id: String,
    pub(crate) image_id: String,
    /// Micro-dollars per hour of one instance.
    pub(crate) on_demand: u64,
    /// Micro-dollars per hour of one instance; `None`: it is not sold there.
    pub(crate) spot: Option<u64>,
    info: InstanceTypeInfo,
}

impl Chosen {
    /// Micro-dollars that all instances cost if each lives until it powers itself off, disks aside.
    pub(crate) fn most(&self) -> u64 {
        let hourly = (self.on_demand + self.spot.unwrap_or(0)) * u64::from(INSTANCES);
        (hourly * u64::from(LIFE)).div_ceil(60)
    }
}

/// What of earlier runs, or of this one, is still there.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Instances that are not terminated.
    pub(crate) instances: Vec<(InstanceId, InstanceState)>,
    /// Placement groups by name.
    pub(crate) groups: Vec<String>,
    /// Launch templates by id.
    pub(crate) templates: Vec<String>,
}

impl Left {
    pub(crate) fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.groups.is_empty() && self.templates.is_empty()
    }

    /// `2 instances (i-1, i-2), 1 placement group (g)`.
    pub(crate) fn sentence(&self) -> String {
        let of = |what: &str, names: Vec<&str>| {
            let plural = if names.len() == 1 { "" } else { "s" };
            (!names.is_empty()).then(|| format!("{} {what}{plural} ({})", names.len(), names.join(", ")))
        };
        let parts = [
            of("instance", self.instances.iter().map(|(id, _)| id.as_str()).collect()),
            of("placement group", self.groups.iter().map(String::as_str).collect()),
            of("launch template", self.templates.iter().map(String::as_str).collect()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// One run.
pub(crate) struct Trial<'a> {
    pub(crate) client: &'a Client,
    /// Takes a line for whoever watches.
    pub(crate) report: &'a (dyn Fn(&str) + Send + Sync),
    /// Between two looks.
    pub(crate) pause: Duration,
    /// Looks after which it gives up.
    pub(crate) looks: u32,
    /// What was not as Muster relies on it.
    pub(crate) wrong: Vec<String>,
}

impl Trial<'_> {
    fn say(&self, line: &str) {
        (self.report)(line);
    }

    /// Says what was seen, and keeps it if it is not what Muster relies on.
    fn check(&mut self, holds: bool, what: &str) {
        if holds {
            self.say(&format!("  ok: {what}"));
        } else {
            self.say(&format!("  WRONG: {what}"));
            self.wrong.push(what.to_owned());
        }
    }

    async fn pause(&self) {
        tokio::time::sleep(self.pause).await;
    }

    /// What there is with our tag.
    pub(crate) async fn left(&self) -> Result<Left, CallError> {
        let tags = Tags::from([(TAG_CLUSTER_UID.to_owned(), CLUSTER.to_owned())]);
        let instances = self.client.describe_instances(&InstanceQuery::Tags(tags.clone())).await?;
        let groups = self.client.describe_placement_groups(&GroupQuery::Tags(tags.clone())).await?;
        let templates = self.client.describe_launch_templates(&tags).await?;
        let groups = groups.into_iter().filter(|group| group.state != GroupState::Deleted);
        Ok(Left {
            instances: instances
                .into_iter()
                .filter(|instance| instance.state != InstanceState::Terminated)
                .map(|instance| (instance.id, instance.state))
                .collect(),
            groups: groups.map(|group| group.name).collect(),
            templates: templates.into_iter().map(|template| template.id).collect(),
        })
    }

    /// Ends and deletes everything with our tag, and looks until nothing is left.
    ///
    /// Errors: a call that was refused, or something that is still there after the last look, by name.
    pub(crate) async fn clean_up(&self) -> Result<(), String> {
        let (mut found, mut quiet) = (false, 0);
        let mut last = Left::default();
        for _ in 0..self.looks {
            last = self.left().await.map_err(|error| error.to_string())?;
            if last.is_empty() {
                quiet += 1;
                if quiet >= if found { QUIET } else { 1 } {
                    return Ok(());
                }
            } else {
                if !found {
                    self.say(&format!("ending {}", last.sentence()));
                }
                (found, quiet) = (true, 0);
                self.end(&last).await.map_err(|error| error.to_string())?;
            }
            self.pause().await;
        }
        Err(format!("still there: {}; run this again, or end it by hand", last.sentence()))
    }

    /// Sends what can be sent now: groups can be deleted once their instances are gone.
    async fn end(&self, left: &Left) -> Result<(), CallError> {
        let live = left.instances.iter().filter(|(_, state)| *state != InstanceState::ShuttingDown);
        let live: Vec<InstanceId> = live.map(|(id, _)| id.clone()).collect();
        if !live.is_empty() {
            self.client.terminate_instances(&live).await?;
        }
        for id in &left.templates {
            self.client.delete_launch_template(id).await?;
        }
        if left.instances.is_empty() {
            for name in &left.groups {
                match self.client.delete_placement_group(name).await {
                    Err(error) if error.kind != ErrorClass::InUse => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Finds a subnet, an image and prices.
    ///
    /// Errors: what is missing, and what to give instead.
    pub(crate) async fn choose(&self, wanted: &Wanted) -> Result<Chosen, String> {
        let Wanted { instance_type, subnet, region } = wanted;
        let reported = |error: CallError| error.to_string();
        let types = self.client.describe_instance_types(std::slice::from_ref(instance_type)).await.map_err(reported)?;
        let Some(info) = types.into_iter().next() else {
            return Err(format!("EC2 knows no instance type {instance_type} in {region}; choose another with --type"));
        };
        if !info.supports_cluster_group {
            return Err(format!("{instance_type} goes into no cluster placement group; choose another with --type"));
        }
        let query = subnet.clone().map_or(NetworkQuery::DefaultForZone, NetworkQuery::Id);
        let subnets = self.client.describe_subnets(&query).await.map_err(reported)?;
        let zones: Vec<String> = subnets.iter().map(|subnet| subnet.zone.clone()).collect();
        if zones.is_empty() {
            return Err(match subnet {
                Some(id) => format!("there is no subnet {id} in {region}; give one with --subnet"),
                None => format!("{region} has no default subnet; give one with --subnet"),
            });
        }
        let offered = self.client.describe_offerings(&zones).await.map_err(reported)?;
        let usable = subnets.iter().find(|subnet| {
            let here = Offering { instance_type: instance_type.clone(), zone: subnet.zone.clone() };
            subnet.free_addresses >= INSTANCES && offered.contains(&here)
        });
        let Some(subnet) = usable else {
            return Err(format!(
                "no subnet with {INSTANCES} free addresses in a zone that offers {instance_type}; choose with --type and --subnet"
            ));
        };
        let architecture = ImageKind::of(&info).architecture;
        let image_id = self.client.image_parameter(&format!("{IMAGE}{architecture}")).await.map_err(reported)?;
        let listed = self.client.list_prices().await.unwrap_or_else(|error| {
            self.say(&format!("no list prices ({error}); those that Muster brings are used"));
            BTreeMap::new()
        });
        let brought = || PriceList::of_region(region)?.prices.get(instance_type.as_str()).copied();
        let Some(on_demand) = listed.get(instance_type).copied().or_else(brought) else {
            return Err(format!("no price of {instance_type} in {region} is known; choose another with --type"));
        };
        let prices = self
            .client
            .describe_spot_prices(std::slice::from_ref(instance_type), Timestamp::now())
            .await
            .map_err(reported)?;
        Ok(Chosen {
            instance_type: instance_type.clone(),
            zone: subnet.zone.clone(),
            subnet_id: subnet.id.clone(),
            image_id,
            on_demand,
            spot: prices.get(&(instance_type.clone(), subnet.zone.clone())).copied(),
            info,
        })
    }

    /// Launches on demand, then on spot, and ends everything again. What was not as Muster relies on it is in `wrong`.
    ///
    /// Errors: what it could not go on after, or not end.
    pub(crate) async fn run(&mut self, chosen: &Chosen, run: &str) -> Result<(), String> {
        for (number, capacity_type) in (1..).zip([CapacityType::OnDemand, CapacityType::Spot]) {
            self.say(&format!("{capacity_type}: {INSTANCES} x {} in {}", chosen.instance_type, chosen.zone));
            if capacity_type == CapacityType::Spot && chosen.spot.is_none() {
                self.check(false, "there is a spot price in this zone; nothing was launched on spot");
                continue;
            }
            let launched = Box::pin(self.round(chosen, capacity_type, run, number)).await;
            let ended = Box::pin(self.clean_up()).await;
            let fleet = launched?;
            ended?;
            self.say("  ok: instances, placement group and launch template are gone");
            if let Some(fleet) = fleet {
                let deleted = self.client.delete_fleets(std::slice::from_ref(&fleet)).await;
                let deleted = deleted.map_err(|error| error.to_string())?;
                self.check(deleted == [fleet], "the fleet, which has no instance any more, is deleted");
            }
        }
        Ok(())
    }

    /// One launch; what it made is left to the caller. The answer is the fleet.
    async fn round(
        &mut self,
        chosen: &Chosen,
        capacity_type: CapacityType,
        run: &str,
        number: u32,
    ) -> Result<Option<String>, String> {
        let reported = |error: CallError| error.to_string();
        let tags = BatchTags {
            cluster_uid: CLUSTER.to_owned(),
            cluster_name: CLUSTER.to_owned(),
            batch_uid: format!("{run}-{number}"),
            gang_uid: None,
            attempt: 1,
        };
        let group = placement_group_name(CLUSTER, run, number);
        let of_group = tags.of(ResourceKind::PlacementGroup);
        self.client.create_placement_group(&group, &of_group).await.map_err(reported)?;
        self.await_group(&group, &of_group).await?;
        let template = self.template(chosen, &tags, capacity_type).await?;
        let intent = LaunchParameters {
            count: INSTANCES,
            instance_type: chosen.instance_type.clone(),
            zone: chosen.zone.clone(),
            subnet_id: chosen.subnet_id.clone(),
            capacity_type,
            template_id: template.id,
            template_version: template.latest_version,
            placement_group: Some(group),
            way: LaunchWay::Fleet,
            reservation: None,
            partial: false,
            tags,
            fleet_tags: FleetTags::Documented,
            overrides: Vec::new(),
            token: String::new(),
        }
        .with_token(1);
        let answer = self.client.create_fleet(&intent).await;
        let ids = match judge(&intent, true, &answer) {
            Verdict::Won(ids) => ids,
            other => return Err(format!("the launch came to nothing: {other:?}")),
        };
        let fleet = answer.ok().and_then(|answer| answer.fleet_id);
        self.check(fleet.is_some(), "the answer names the fleet");
        let again = self.client.create_fleet(&intent).await;
        self.check_replay(&intent, &ids, &again);
        self.await_running(&intent, &ids).await?;
        let instances =
            self.client.describe_instances(&InstanceQuery::Tags(intent.tags.sweep())).await.map_err(reported)?;
        let shown: BTreeSet<InstanceId> = instances.into_iter().map(|instance| instance.id).collect();
        self.check(
            shown == ids.iter().cloned().collect(),
            "the tags find these instances and no other: nothing was launched twice",
        );
        let places = self.client.describe_topology(&TopologyQuery::Instances(ids)).await.map_err(reported)?;
        for (id, nodes) in places {
            self.say(&format!("  {id} lies below {}", nodes.join(", ")));
        }
        Ok(fleet)
    }

    async fn await_group(&mut self, group: &str, tags: &Tags) -> Result<(), String> {
        for _ in 0..self.looks {
            let found = self.client.describe_placement_groups(&GroupQuery::Name(group.to_owned())).await;
            let found = found.map_err(|error| error.to_string())?;
            if let Some(found) = found.into_iter().find(|found| found.state == GroupState::Available) {
                self.check(found.strategy == "cluster", "the placement group is one of strategy cluster");
                self.check(has(&found.tags, tags), "the placement group carries its tags");
                return Ok(());
            }
            self.pause().await;
        }
        Err(format!("placement group {group} did not become available"))
    }

    async fn template(
        &mut self,
        chosen: &Chosen,
        tags: &BatchTags,
        capacity_type: CapacityType,
    ) -> Result<LaunchTemplate, String> {
        let spec = TemplateSpec {
            image_id: chosen.image_id.clone(),
            instance_profile: String::new(),
            network_interfaces: efa_layout(&chosen.info, Efa::Never, Purpose::Ordinary, &[]),
            subnet_id: None,
            public_address: None,
            primary_ipv6: false,
            metadata: MetadataOptions::default(),
            user_data: format!("#!/bin/sh\nshutdown -h +{LIFE}\n"),
            block_devices: Vec::new(),
            detailed_monitoring: false,
            capacity_type,
            template_tags: tags.of(ResourceKind::LaunchTemplate),
            resource_tags: tags.of(ResourceKind::Instance),
        };
        let made = self.client.create_launch_template(&spec).await.map_err(|error| error.to_string())?;
        let again = self.client.create_launch_template(&spec).await.map_err(|error| error.to_string())?;
        self.check(made.id == again.id, "a launch template that is made again is the same one");
        Ok(made)
    }

    /// What AWS does not document: the answer to a token that was used already. Only a second launch would be wrong.
    fn check_replay(
        &mut self,
        intent: &LaunchParameters,
        ids: &[InstanceId],
        answer: &Result<LaunchAnswer, CallError>,
    ) {
        let stated = match answer {
            Ok(answer) if answer.instances.is_empty() => "no instance".to_owned(),
            Ok(_) => "the same instances".to_owned(),
            Err(error) => format!("an error: {error}"),
        };
        let harmless = match judge(intent, false, answer) {
            Verdict::Won(again) => again == ids,
            Verdict::Violated(_) => false,
            _ => true,
        };
        self.check(harmless, &format!("the same launch sent twice is answered with {stated}"));
    }

    async fn await_running(&mut self, intent: &LaunchParameters, ids: &[InstanceId]) -> Result<(), String> {
        for _ in 0..self.looks {
            let found = self.client.describe_instances(&InstanceQuery::Ids(ids.to_vec())).await;
            let found = found.map_err(|error| error.to_string())?;
            if let Some(ended) = found.iter().find(|instance| !instance.state.live()) {
                return Err(format!("instance {} ended by itself: {:?}", ended.id, ended.state_reason));
            }
            if found.len() == ids.len() && found.iter().all(|instance| instance.state == InstanceState::Running) {
                let wanted = intent.tags.of(ResourceKind::Instance);
                self.check(found.iter().all(|one| has(&one.tags, &wanted)), "instances carry their tags");
                let placed = |one: &Instance| {
                    one.instance_type == intent.instance_type
                        && one.zone == intent.zone
                        && one.subnet_id.as_ref() == Some(&intent.subnet_id)
                        && one.placement_group == intent.placement_group
                };
                self.check(
                    found.iter().all(placed),
                    "instances run in the type, zone, subnet and placement group asked for",
                );
                let named = found.iter().all(|one| one.private_dns_name.is_some() && one.launch_time.is_some());
                self.check(named, "instances have a private DNS name and a launch time");
                return Ok(());
            }
            self.pause().await;
        }
        Err(format!("of {} some did not run after {} looks", names(ids), self.looks))
    }
}

fn names(ids: &[InstanceId]) -> String {
    ids.iter().map(InstanceId::as_str).collect::<Vec<&str>>().join(", ")
}

/// Whether all of these tags are there. EC2 adds some of its own.
fn has(tags: &Tags, wanted: &Tags) -> bool {
    wanted.iter().all(|(key, value)| tags.get(key) == Some(value))
}
