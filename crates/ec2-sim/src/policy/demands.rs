//! What each call has to be allowed: its actions, their resources, and the keys that conditions ask for.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::MarketType;
use crate::operations::sent_templates;
use crate::protocol::form::Form;
use crate::protocol::request::{Request, Service};
use crate::state::World;

/// One thing that a call has to be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) action: String,
    pub(super) resource: String,
    /// Condition keys and their values.
    pub(super) keys: BTreeMap<String, String>,
}

/// Everything that a call has to be allowed.
pub(super) fn of(world: &World, request: &Request) -> Vec<Demand> {
    let form = &request.form;
    let account = &world.scenario.account;
    let region = &world.scenario.region;
    let mut demands = Demands { world, list: vec![] };
    match request.service {
        Service::Ec2 => demands.ec2(&request.operation, form),
        // Everybody may ask who they are.
        Service::Sts => {}
        Service::Sqs => {
            let named = form.get("QueueName").or_else(|| form.get("QueueUrl").and_then(|url| url.rsplit('/').next()));
            let action = request.operation.trim_end_matches("Batch");
            let queue = named.unwrap_or("");
            demands.add(&format!("sqs:{action}"), format!("arn:aws:sqs:{region}:{account}:{queue}"), []);
        }
        Service::Iam => {
            let name = form.get("InstanceProfileName").unwrap_or("");
            let action = format!("iam:{}", request.operation);
            demands.add(&action, format!("arn:aws:iam::{account}:instance-profile/{name}"), []);
        }
        Service::Ssm => {
            let name = form.get("Name").unwrap_or("");
            // Parameters of AWS belong to no account.
            let owner = if name.starts_with("/aws/service/") { "" } else { account.as_str() };
            let action = format!("ssm:{}", request.operation);
            demands.add(&action, format!("arn:aws:ssm:{region}:{owner}:parameter{name}"), []);
        }
        Service::Quotas => {
            // Reads know no resource.
            let resource = match request.operation.starts_with("Get") {
                true => "*".to_owned(),
                false => {
                    format!("arn:aws:servicequotas:{region}:{account}:ec2/{}", form.get("QuotaCode").unwrap_or(""))
                }
            };
            demands.add(&format!("servicequotas:{}", request.operation), resource, []);
        }
        // Prices belong to nobody.
        Service::Pricing => demands.add(&format!("pricing:{}", request.operation), "*".to_owned(), []),
        Service::Eks => {
            let name = form.get("name").unwrap_or("");
            let resource = match form.get("principalArn") {
                None => format!("cluster/{name}"),
                Some(principal) => {
                    let role = principal.rsplit('/').next().unwrap_or(principal);
                    format!("access-entry/{name}/role/{account}/{role}/00000000-0000-0000-0000-000000000001")
                }
            };
            let action = format!("eks:{}", request.operation);
            demands.add(&action, format!("arn:aws:eks:{region}:{account}:{resource}"), []);
        }
    }
    demands.list
}

struct Demands<'a> {
    world: &'a World,
    list: Vec<Demand>,
}

type Tags = BTreeMap<String, String>;

impl Demands<'_> {
    fn add(&mut self, action: &str, resource: String, keys: impl IntoIterator<Item = (String, String)>) {
        let mut keys: BTreeMap<String, String> = keys.into_iter().collect();
        keys.insert("aws:RequestedRegion".to_owned(), self.world.scenario.region.clone());
        self.list.push(Demand { action: action.to_owned(), resource, keys });
    }

    /// A demand on something that exists and has tags.
    fn on(&mut self, action: &str, kind: &str, name: &str, tags: &Tags, more: Vec<(String, String)>) {
        let tagged = ["aws", "ec2"].into_iter().flat_map(|service| {
            tags.iter().map(move |(key, value)| (format!("{service}:ResourceTag/{key}"), value.clone()))
        });
        self.add(action, self.world.arn(kind, name), tagged.chain(more));
    }

    /// A demand on something that the call makes, and on tagging it.
    fn make(&mut self, actions: &[&str], kind: &str, name: &str, tags: &Tags, more: &[(String, String)]) {
        let arn = self.world.arn(kind, name);
        let requested = || tags.iter().map(|(key, value)| (format!("aws:RequestTag/{key}"), value.clone()));
        for action in actions {
            self.add(action, arn.clone(), requested().chain(more.to_vec()));
        }
        if !tags.is_empty() {
            let by = actions.first().and_then(|a| a.split_once(':')).map_or("", |(_, name)| name);
            let created = ("ec2:CreateAction".to_owned(), by.to_owned());
            self.add("ec2:CreateTags", arn, requested().chain([created]));
        }
    }

    fn ec2(&mut self, operation: &str, form: &Form) {
        let action = format!("ec2:{operation}");
        let world = self.world;
        let none = Tags::new();
        match operation {
            "CreateFleet" => self.launch(&["ec2:CreateFleet", "ec2:RunInstances"], form),
            "RunInstances" => self.launch(&["ec2:RunInstances"], form),
            "CreateLaunchTemplate" => {
                self.make(&[&action], "launch-template", "*", &form.tags_for("launch-template"), &[]);
            }
            "DeleteLaunchTemplate" => {
                for template in sent_templates(world, form) {
                    self.on(&action, "launch-template", &template.id, &template.tags, vec![]);
                }
            }
            "CreatePlacementGroup" => {
                let name = form.get("GroupName").unwrap_or("");
                let strategy = form.get("Strategy").unwrap_or("cluster");
                let keys = [
                    ("ec2:PlacementGroupStrategy".to_owned(), strategy.to_owned()),
                    ("ec2:PlacementGroupName".to_owned(), name.to_owned()),
                ];
                self.make(&[&action], "placement-group", name, &form.tags_for("placement-group"), &keys);
            }
            "DeletePlacementGroup" => {
                let name = form.get("GroupName").unwrap_or("");
                // Of what does not exist nothing is known, so nothing can be refused.
                if let Some(group) = world.groups.get(name) {
                    let strategy = ("ec2:PlacementGroupStrategy".to_owned(), group.strategy.name().to_owned());
                    let named = ("ec2:PlacementGroupName".to_owned(), name.to_owned());
                    self.on(&action, "placement-group", name, &group.tags, vec![strategy, named]);
                }
            }
            "TerminateInstances" | "GetConsoleOutput" => {
                let one = form.get("InstanceId").map(str::to_owned);
                for id in form.list("InstanceId").into_iter().chain(one) {
                    if let Some(instance) = world.instances.get(&id) {
                        self.on(&action, "instance", &id, &instance.tags, vec![]);
                    }
                }
            }
            "DeleteFleets" => {
                for id in form.list("FleetId") {
                    if let Some(fleet) = world.fleets.get(&id) {
                        self.on(&action, "fleet", &id, &fleet.tags, vec![]);
                    }
                }
            }
            "CreateTags" => {
                let requested: Vec<(String, String)> =
                    form.tags().into_iter().map(|(key, value)| (format!("aws:RequestTag/{key}"), value)).collect();
                for id in form.list("ResourceId") {
                    let (kind, tags) = if let Some(i) = world.instances.get(&id) {
                        ("instance", &i.tags)
                    } else if let Some(t) = world.templates.get(&id) {
                        ("launch-template", &t.tags)
                    } else if let Some(f) = world.fleets.get(&id) {
                        ("fleet", &f.tags)
                    } else {
                        let group = world.groups.values().find(|g| g.id == id);
                        ("placement-group", group.map_or(&none, |g| &g.tags))
                    };
                    self.on(&action, kind, &id, tags, requested.clone());
                }
            }
            "CreateCapacityReservation" => {
                let mut tags = form.tags_of("TagSpecifications", "capacity-reservation");
                tags.extend(form.tags_for("capacity-reservation"));
                self.make(&[&action], "capacity-reservation", "*", &tags, &[]);
                if let Some(arn) = form.get("PlacementGroupArn") {
                    self.add(&action, arn.to_owned(), []);
                }
            }
            "CancelCapacityReservation" => {
                let id = form.get("CapacityReservationId").unwrap_or("");
                if let Some(reservation) = world.reservations.get(id) {
                    self.on(&action, "capacity-reservation", id, &reservation.tags, vec![]);
                }
            }
            _ => self.add(&action, "*".to_owned(), []),
        }
        if form.flag("ResolveAlias") == Ok(true) {
            let paths = sent_templates(world, form).iter().filter_map(|t| parameter(&t.data)).collect();
            self.parameters(paths);
        }
    }

    fn launch(&mut self, actions: &[&str], form: &Form) {
        let world = self.world;
        let templates = sent_templates(world, form);
        let missing = form.parameters().iter().any(|(key, value)| match key.rsplit('.').next() {
            Some("LaunchTemplateId") => templates.iter().all(|t| t.id != *value),
            Some("LaunchTemplateName") => templates.iter().all(|t| t.name != *value),
            _ => false,
        });
        if missing {
            // A part of what would be tagged stands in the template: without it nothing can be judged, and the call is
            // refused for the template.
            return;
        }
        let mut datas: Vec<&Form> = templates.iter().map(|t| &t.data).collect();
        datas.push(form);
        let ends = |names: &[&str]| -> BTreeSet<String> {
            let all = datas.iter().flat_map(|d| d.parameters().iter());
            all.filter(|(key, _)| names.iter().any(|name| key.as_str() == *name || key.ends_with(&format!(".{name}"))))
                .map(|(_, value)| value.clone())
                .collect()
        };
        let listed = |name: &str| -> BTreeSet<String> {
            let part = format!("{name}.");
            let all = datas.iter().flat_map(|d| d.parameters().iter());
            all.filter(|(key, _)| key.starts_with(&part) || key.contains(&format!(".{part}")))
                .map(|(_, value)| value.clone())
                .collect()
        };
        let none = Tags::new();
        for action in actions {
            for template in &templates {
                self.on(action, "launch-template", &template.id, &template.tags, vec![]);
            }
            self.on(action, "image", "*", &none, vec![]);
            for subnet in ends(&["SubnetId"]) {
                let tags = world.subnets.get(&subnet).map_or(&none, |s| &s.tags);
                self.on(action, "subnet", &subnet, tags, vec![]);
            }
            for group in listed("SecurityGroupId") {
                let group = world.scenario.security_groups.iter().find(|g| g.id == group);
                if let Some(group) = group {
                    self.on(action, "security-group", &group.id, &group.tags, vec![]);
                }
            }
            for name in ends(&["Placement.GroupName", "Placement.GroupId"]) {
                let group = world.groups.iter().find(|(n, g)| **n == name || g.id == name);
                if let Some((name, group)) = group {
                    self.on(action, "placement-group", name, &group.tags, vec![]);
                }
            }
            for id in ends(&["CapacityReservationTarget.CapacityReservationId"]) {
                if let Some(reservation) = world.reservations.get(&id) {
                    self.on(action, "capacity-reservation", &id, &reservation.tags, vec![]);
                }
            }
        }
        let tags = |kind: &str| -> Tags { datas.iter().flat_map(|d| d.tags_for(kind)).collect() };
        let mut made = vec!["instance", "volume", "network-interface"];
        let provisioned = ends(&["MarketType", "DefaultTargetCapacityType"]);
        if provisioned.contains(MarketType::Spot.name()) {
            made.push("spot-instances-request");
        }
        if actions.contains(&"ec2:CreateFleet") {
            made.push("fleet");
        }
        for kind in made {
            self.make(actions, kind, "*", &tags(kind), &[]);
        }
        let account = &world.scenario.account;
        for profile in ends(&["IamInstanceProfile.Name", "IamInstanceProfile.Arn"]) {
            let name = profile.rsplit('/').next().unwrap_or(&profile);
            let profiles = &world.scenario.instance_profiles;
            if !profiles.is_empty() && !profiles.iter().any(|known| known == name) {
                // A profile that does not exist has no role that could be passed: the launch is refused for its name.
                continue;
            }
            let service = ("iam:PassedToService".to_owned(), "ec2.amazonaws.com".to_owned());
            self.add("iam:PassRole", format!("arn:aws:iam::{account}:role/{name}"), [service]);
        }
        let paths = datas.iter().filter_map(|d| parameter(d)).collect();
        self.parameters(paths);
    }

    /// EC2 reads parameters with the permission of the caller.
    fn parameters(&mut self, paths: BTreeSet<String>) {
        let region = &self.world.scenario.region;
        for path in paths {
            let account = if path.starts_with("/aws/service/") { "" } else { self.world.scenario.account.as_str() };
            self.add("ssm:GetParameters", format!("arn:aws:ssm:{region}:{account}:parameter{path}"), []);
        }
    }
}

/// The path that an image is resolved from.
fn parameter(data: &Form) -> Option<String> {
    data.get("ImageId").and_then(|image| image.strip_prefix("resolve:ssm:")).map(str::to_owned)
}
