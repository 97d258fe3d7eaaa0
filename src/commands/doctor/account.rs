//! What AWS is asked: reads, and dry runs of everything else.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use muster_api::crd::{EC2NodeClass, NodePool, condition};
use muster_api::{new_node, node_class, pool as rules};
use muster_core::doctor::{Account, Class, Images, Pool, READS, Ready, Trial, counted};
use muster_core::ec2::{
    Alias, BatchTags, CallError, CapacityType, EksCluster, FleetTags, ImageKind, InstanceState, LaunchParameters,
    LaunchWay, Offering, ResourceKind, SecurityGroup, Subnet, TAG_CLUSTER_UID, Tags, VcpuQuota, placement_group_name,
};
use muster_core::offering::{EFA, InstanceTypeInfo, NEURON, NVIDIA_GPU};
use muster_ec2::{
    Client, ClientOptions, GroupQuery, ImageQuery, InstanceQuery, NetworkQuery, Queue, TrialLaunch, access_entry,
};

use super::cluster::Objects;
use crate::cloud::selectors;

/// A batch that never exists: its name stands in dry runs.
const BATCH: &str = "doctor";

/// Whose resources are ours.
#[derive(Debug)]
pub(super) struct Whose {
    pub(super) cluster_uid: String,
    pub(super) cluster_name: String,
    /// `ec2.isolated`: services that may have no endpoint in the VPC are not asked.
    pub(super) isolated: bool,
    /// The cluster's version, which decides which images fit.
    pub(super) kubernetes: Option<String>,
}

impl Whose {
    fn tags(&self) -> BatchTags {
        BatchTags {
            cluster_uid: self.cluster_uid.clone(),
            cluster_name: self.cluster_name.clone(),
            batch_uid: BATCH.to_owned(),
            gang_uid: None,
            attempt: 1,
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) actions: Vec<(String, Trial)>,
    pub(super) classes: Vec<Class>,
    pub(super) pools: Vec<Pool>,
}

/// Types of the Region, and where they are offered.
#[derive(Debug)]
struct Region {
    types: BTreeMap<String, InstanceTypeInfo>,
    offerings: BTreeSet<Offering>,
}

/// The first call, a small one: whether AWS knows who asks. A type that the Region does not have is an answer too.
pub(super) async fn first(ec2: &Client) -> Result<(), CallError> {
    ec2.describe_instance_types(&["m5.large".to_owned()]).await.map(|_| ())
}

/// The queue, by its URL or name.
pub(super) async fn queue(options: ClientOptions, queue: Option<&str>) -> Option<muster_core::doctor::Queue> {
    let queue = queue?;
    // A URL alone would not be asked for.
    let name = queue.rsplit('/').next().unwrap_or(queue).to_owned();
    let error = Queue::connect(options, &name).await.err().map(|error| (error.code, error.message));
    Some(muster_core::doctor::Queue { name, error })
}

/// The access entry of each role that nodes get. The role of an instance profile has its name in the shipped template, and only
/// IAM shows another one.
pub(super) async fn entries(
    options: &ClientOptions,
    cluster: &EksCluster,
    classes: &[Class],
) -> Vec<(String, Result<Option<String>, CallError>)> {
    let roles: BTreeSet<&String> = classes.iter().filter_map(|class| class.profile.as_ref()).collect();
    let mut entries = Vec::new();
    for role in roles {
        let Some(principal) = cluster.role(role).filter(|_| cluster.takes_entries()) else { continue };
        let found = access_entry(options.clone(), &cluster.access.name, &principal).await;
        entries.push((role.clone(), found));
    }
    entries
}

/// What the account may run of the pools' types, by the code of the quota. Where the first call is denied or reaches nobody the
/// others would not fare better.
pub(super) async fn quotas(
    ec2: &Client,
    whose: &Whose,
    pools: &[Pool],
) -> BTreeMap<&'static str, Result<u32, CallError>> {
    let mut values = BTreeMap::new();
    let quotas: BTreeSet<VcpuQuota> = pools.iter().flat_map(|pool| &pool.quotas).map(|counted| counted.quota).collect();
    for quota in quotas.into_iter().filter(|_| !whose.isolated) {
        let value = ec2.vcpu_quota(quota.code).await;
        let over = value.as_ref().is_err_and(|error| error.kind.permitted() != Some(true));
        values.insert(quota.code, value);
        if over {
            break;
        }
    }
    values
}

/// What Service Quotas answered, as the trial of the action.
pub(super) fn of_quotas(whose: &Whose, quotas: &BTreeMap<&'static str, Result<u32, CallError>>) -> (String, Trial) {
    let trial = match quotas.values().next() {
        Some(answer) => answer.as_ref().map(|_| ()).map_err(Clone::clone).into(),
        None if whose.isolated => {
            Trial::NothingToTry("an endpoint of Service Quotas, which ec2.isolated says there is not")
        }
        None => Trial::NothingToTry("a NodePool with a type that is launched on demand or on spot"),
    };
    ("servicequotas:GetServiceQuota".to_owned(), trial)
}

/// What EKS answered, as trials of the actions that were asked for.
pub(super) fn of_eks(account: &Account) -> Vec<(String, Trial)> {
    let mut actions = Vec::new();
    let mut add = |action: &str, answer: Result<(), CallError>| actions.push((action.to_owned(), answer.into()));
    if let Some(cluster) = &account.cluster {
        add("eks:DescribeCluster", cluster.as_ref().map(|_| ()).map_err(Clone::clone));
    }
    if let Some((_, found)) = account.entries.first() {
        add("eks:DescribeAccessEntry", found.as_ref().map(|_| ()).map_err(Clone::clone));
    }
    actions
}

/// Looks at permissions, classes and pools; `None`: AWS is not asked.
pub(super) async fn look(asked: Option<&(Client, Whose)>, objects: &Objects) -> Looked {
    let mut looked = Looked::default();
    let region = match asked {
        None => None,
        Some((ec2, _)) => region(ec2).await,
    };
    let of_pool = |pool: &NodePool| {
        let reference = &pool.spec.template.spec.node_class_ref;
        objects.classes.iter().find(|class| class.name_any() == reference.name)
    };
    for class in &objects.classes {
        let pools: Vec<&NodePool> =
            objects.pools.iter().filter(|pool| of_pool(pool).is_some_and(|of| std::ptr::eq(of, class))).collect();
        looked.classes.push(of_class(asked, region.as_ref(), class, &pools).await);
    }
    for pool in &objects.pools {
        let class = of_pool(pool);
        let subnets = class
            .and_then(|class| looked.classes.iter().find(|one| one.name == class.name_any()))
            .and_then(|class| class.subnets.as_ref()?.as_ref().ok());
        looked.pools.push(pool_facts(region.as_ref(), pool, class, subnets));
    }
    if let Some((ec2, whose)) = asked {
        looked.actions = actions(ec2, whose, &looked).await;
    }
    looked
}

/// The types of the Region; `None` where they may not be read, which is a finding of its own.
async fn region(ec2: &Client) -> Option<Region> {
    let types = ec2.describe_instance_types(&[]).await.ok()?;
    let offerings = ec2.describe_offerings(&[]).await.ok()?;
    Some(Region { types: types.into_iter().map(|info| (info.name.clone(), info)).collect(), offerings })
}

async fn of_class(
    asked: Option<&(Client, Whose)>,
    region: Option<&Region>,
    class: &EC2NodeClass,
    pools: &[&NodePool],
) -> Class {
    let types: Vec<&InstanceTypeInfo> = region
        .iter()
        .flat_map(|region| region.types.values())
        .filter(|info| pools.iter().any(|pool| rules::allows_type(pool, info)))
        .collect();
    let mut found = Class {
        name: class.name_any(),
        ready: ready(class.status.as_ref().map(|status| status.conditions.as_slice())),
        family: node_class::family(class),
        profile: Some(node_class::instance_profile(class)).filter(|profile| !profile.is_empty()),
        efa: types.iter().any(|info| node_class::has_efa(class, info)),
        subnets: None,
        groups: None,
        images: None,
        launch: None,
    };
    let Some((ec2, whose)) = asked else { return found };
    let subnets = all_subnets(ec2, class).await;
    let groups = all_groups(ec2, class).await;
    // A type that is offered where a subnet is, for the dry run of a launch.
    let place = subnets.iter().flatten().find_map(|subnet| {
        let region = region?;
        let offered = |info: &&&InstanceTypeInfo| {
            let offering = Offering { instance_type: info.name.clone(), zone: subnet.zone.clone() };
            region.offerings.contains(&offering)
        };
        Some((subnet, *types.iter().find(offered)?))
    });
    let images = images(ec2, whose, class, place.map(|(_, info)| ImageKind::of(info))).await;
    let launch = match (place, &groups, &images) {
        (Some((subnet, info)), Ok(groups), Images::Found(_)) if !groups.is_empty() => {
            let image = match &images {
                Images::Found(ids) => ids.first().cloned().unwrap_or_default(),
                Images::None(_) => String::new(),
            };
            let trial = TrialLaunch {
                image,
                instance_type: info.name.clone(),
                subnet: subnet.id.clone(),
                security_groups: groups.iter().map(|group| group.id.clone()).collect(),
                instance_profile: node_class::instance_profile(class),
                tags: whose.tags(),
            };
            Trial::from(ec2.dry_run_instance(&trial).await)
        }
        _ => Trial::NothingToTry("subnet, security group and image, and a NodePool with a type that is offered there"),
    };
    found.subnets = Some(subnets);
    found.groups = Some(groups);
    found.images = Some(images);
    found.launch = Some(launch);
    found
}

async fn all_subnets(ec2: &Client, class: &EC2NodeClass) -> Result<Vec<Subnet>, CallError> {
    let mut found = BTreeMap::new();
    for term in &class.spec.subnet_selector_terms {
        for subnet in ec2.describe_subnets(&selectors::subnets(term)).await? {
            found.insert(subnet.id.clone(), subnet);
        }
    }
    Ok(found.into_values().collect())
}

async fn all_groups(ec2: &Client, class: &EC2NodeClass) -> Result<Vec<SecurityGroup>, CallError> {
    let mut found = BTreeMap::new();
    for term in &class.spec.security_group_selector_terms {
        let query: NetworkQuery = selectors::security_groups(term);
        for group in ec2.describe_security_groups(&query).await? {
            found.insert(group.id.clone(), group);
        }
    }
    Ok(found.into_values().collect())
}

/// The image for a kind: what `muster serve` resolved, else what the terms name.
async fn images(ec2: &Client, whose: &Whose, class: &EC2NodeClass, kind: Option<ImageKind>) -> Images {
    let fits = |architecture: &str| kind.as_ref().is_none_or(|kind| kind.architecture == architecture);
    let amis = class.status.iter().flat_map(|status| &status.amis);
    let resolved: Vec<String> = amis
        .filter(|ami| fits(&ami.architecture) && kind.as_ref().is_none_or(|kind| kind.variant.as_str() == ami.variant))
        .map(|ami| ami.id.clone())
        .collect();
    let mut last = "spec.amiSelectorTerms: nothing resolves".to_owned();
    let mut queries = Vec::new();
    if !resolved.is_empty() {
        queries.push(ImageQuery { ids: resolved, ..ImageQuery::default() });
    }
    for term in &class.spec.ami_selector_terms {
        if !queries.is_empty() {
            break;
        }
        match (&term.alias, &term.id, &term.ssm_parameter) {
            (Some(alias), _, _) => {
                let Some(kubernetes) = &whose.kubernetes else { continue };
                let kind = kind.clone().unwrap_or(ImageKind {
                    architecture: "x86_64".to_owned(),
                    variant: muster_core::ec2::Variant::Standard,
                });
                match Alias::parse(alias).and_then(|alias| alias.parameter(kubernetes, &kind)) {
                    Ok(path) => match ec2.image_parameter(&path).await {
                        Ok(id) => return Images::Found(vec![id]),
                        Err(error) => last = format!("spec.amiSelectorTerms: alias {alias} ({path}): {error}"),
                    },
                    Err(error) => last = error.to_string(),
                }
            }
            (None, None, Some(path)) => match ec2.image_parameter(path).await {
                Ok(id) => queries.push(ImageQuery { ids: vec![id], ..ImageQuery::default() }),
                Err(error) => last = format!("spec.amiSelectorTerms: parameter {path}: {error}"),
            },
            (None, Some(id), _) => queries.push(ImageQuery { ids: vec![id.clone()], ..ImageQuery::default() }),
            (None, None, None) => queries.push(selectors::images(term)),
        }
    }
    for query in &queries {
        match ec2.describe_images(query).await {
            Ok(found) => {
                let ids: Vec<String> =
                    found.into_iter().filter(|image| fits(&image.architecture)).map(|image| image.id).collect();
                if !ids.is_empty() {
                    return Images::Found(ids);
                }
                last = "spec.amiSelectorTerms: no image of the pools' architecture matches".to_owned();
            }
            Err(error) => last = error.to_string(),
        }
    }
    Images::None(last)
}

fn pool_facts(
    region: Option<&Region>,
    pool: &NodePool,
    class: Option<&EC2NodeClass>,
    subnets: Option<&Vec<Subnet>>,
) -> Pool {
    let types: Vec<&InstanceTypeInfo> =
        region.iter().flat_map(|region| region.types.values()).filter(|info| rules::allows_type(pool, info)).collect();
    let offered = |info: &InstanceTypeInfo| {
        subnets.into_iter().flatten().filter(|subnet| rules::allows_zone(pool, &subnet.zone)).any(|subnet| {
            let offering = Offering { instance_type: info.name.clone(), zone: subnet.zone.clone() };
            region.is_some_and(|region| region.offerings.contains(&offering))
        })
    };
    let names = |all: Vec<&InstanceTypeInfo>| all.into_iter().map(|info| info.name.clone()).collect::<Vec<_>>();
    let nodes: Vec<_> = types
        .iter()
        .filter_map(|info| new_node::of_pool(pool, class, info, new_node::Place::default(), &[]).ok())
        .map(|new| new.node)
        .collect();
    let mut samples = BTreeMap::new();
    for resource in [NVIDIA_GPU, NEURON, EFA] {
        let sample = nodes.iter().find(|node| node.allocatable.get(resource) > 0);
        samples.extend(sample.map(|node| (node.name.clone(), node.clone())));
    }
    if samples.is_empty() {
        samples.extend(nodes.first().map(|node| (node.name.clone(), node.clone())));
    }
    let capacity_types = rules::capacity_types(pool);
    let reservations = class.is_some_and(|class| !class.spec.capacity_reservation_selector_terms.is_empty());
    Pool {
        name: pool.name_any(),
        ready: ready(pool.status.as_ref().map(|status| status.conditions.as_slice())),
        class: pool.spec.template.spec.node_class_ref.name.clone(),
        family: class.map_or(muster_core::ec2::Family::Al2023, node_class::family),
        spot: capacity_types.contains(&CapacityType::Spot),
        reserved: reservations && capacity_types.contains(&CapacityType::Reserved),
        quotas: counted(&types, &capacity_types),
        offered: region.and(subnets).map(|_| names(types.iter().copied().filter(|info| offered(info)).collect())),
        types: region.map(|_| names(types)),
        nodes: samples.into_values().collect(),
    }
}

fn ready(conditions: Option<&[Condition]>) -> Ready {
    match conditions.and_then(|all| condition(all, "Ready")) {
        None => Ready::Unseen,
        Some(one) if one.status == "True" => Ready::Yes,
        Some(one) => Ready::No(one.reason.clone(), one.message.clone()),
    }
}

/// Every action, by a dry run where there is something to try it on.
async fn actions(ec2: &Client, whose: &Whose, looked: &Looked) -> Vec<(String, Trial)> {
    let mut actions = Vec::new();
    let mut add = |action: &str, trial: Trial| actions.push((action.to_owned(), trial));
    for action in READS {
        if let Some(answer) = ec2.dry_run_read(action).await {
            add(action, answer.into());
        }
    }
    // AWS publishes its images for every version that the cluster can have.
    let standard = ImageKind { architecture: "x86_64".to_owned(), variant: muster_core::ec2::Variant::Standard };
    let newest = Alias { family: muster_core::ec2::Family::Al2023, version: None };
    let path = whose.kubernetes.as_deref().and_then(|version| newest.parameter(version, &standard).ok());
    add(
        "ssm:GetParameter",
        match path {
            Some(path) => ec2.image_parameter(&path).await.map(|_| ()).into(),
            None => Trial::NothingToTry("the cluster's version"),
        },
    );
    add(
        "pricing:GetProducts",
        match whose.isolated {
            true => Trial::NothingToTry("an endpoint of the Price List API, which ec2.isolated says there is not"),
            false => ec2.try_list_prices().await.into(),
        },
    );
    let tags = whose.tags();
    let template = ec2.dry_run_launch_template(BATCH, &tags.of(ResourceKind::LaunchTemplate)).await;
    add("ec2:CreateLaunchTemplate", template.into());
    let name = placement_group_name(&whose.cluster_name, BATCH, 1);
    let group = ec2.dry_run_placement_group(&name, &tags.of(ResourceKind::PlacementGroup)).await;
    add("ec2:CreatePlacementGroup", group.into());
    let launch = looked.classes.iter().find_map(|class| class.launch.clone());
    // What else is wrong with a launch is a finding of its class.
    let launch = launch.unwrap_or(Trial::NothingToTry("an EC2NodeClass and a NodePool"));
    add("ec2:RunInstances", launch);

    // What is ours is tried on what is ours: the policy allows it nowhere else.
    let ours = Tags::from([(TAG_CLUSTER_UID.to_owned(), whose.cluster_uid.clone())]);
    let templates = ec2.describe_launch_templates(&ours).await.unwrap_or_default();
    let place = looked.pools.iter().find_map(|pool| {
        let class = looked.classes.iter().find(|class| class.name == pool.class)?;
        let subnet = class.subnets.as_ref()?.as_ref().ok()?.first()?;
        Some((pool.offered.as_ref()?.first()?.clone(), subnet.clone()))
    });
    add(
        "ec2:CreateFleet",
        match (templates.first(), place) {
            (Some(template), Some((instance_type, subnet))) => {
                let launch = LaunchParameters {
                    count: 1,
                    instance_type,
                    zone: subnet.zone,
                    subnet_id: subnet.id,
                    capacity_type: CapacityType::OnDemand,
                    template_id: template.id.clone(),
                    template_version: template.latest_version,
                    placement_group: None,
                    way: LaunchWay::Fleet,
                    reservation: None,
                    partial: false,
                    tags: whose.tags(),
                    fleet_tags: FleetTags::Documented,
                    overrides: Vec::new(),
                    token: String::new(),
                };
                ec2.dry_run_launch(&launch.with_token(1)).await.into()
            }
            (None, _) | (Some(_), None) => Trial::NothingToTry("a launch template of Muster's"),
        },
    );
    add(
        "ec2:DeleteLaunchTemplate",
        match templates.first() {
            Some(template) => ec2.dry_run_delete_launch_template(&template.id).await.into(),
            None => Trial::NothingToTry("a launch template of Muster's"),
        },
    );
    let groups = ec2.describe_placement_groups(&GroupQuery::Tags(ours.clone())).await.unwrap_or_default();
    add(
        "ec2:DeletePlacementGroup",
        match groups.first() {
            Some(group) => ec2.dry_run_delete_placement_group(&group.name).await.into(),
            None => Trial::NothingToTry("a placement group of Muster's"),
        },
    );
    let instances = ec2.describe_instances(&InstanceQuery::Tags(ours)).await.unwrap_or_default();
    let running = instances.iter().find(|instance| instance.state == InstanceState::Running);
    add(
        "ec2:GetConsoleOutput",
        match running {
            Some(instance) => ec2.dry_run_console(&instance.id).await.into(),
            None => Trial::NothingToTry("an instance of Muster's"),
        },
    );
    add(
        "ec2:TerminateInstances",
        match running {
            Some(instance) => ec2.dry_run_terminate(&instance.id).await.into(),
            None => Trial::NothingToTry("an instance of Muster's"),
        },
    );
    add("ec2:DeleteFleets", Trial::NothingToTry("a fleet of Muster's"));
    actions
}
