//! What to change, as data: everything a remedy asks of a person. The sentence that is printed is made of it.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::named::{Nodes, PodHolds, listed, listed_with, plural};
use super::pool::ceil;
use super::{Help, NewOffer, Passing, PoolChange, Wait};
use crate::fit::Misfit;
use crate::model::moment::moment;
use crate::model::names::{NodeName, ResourceName};
use crate::model::resources::{amount, at_least};
use crate::offering::CeilingScope;
use crate::planner::plan::{Capacity, Change};

/// Pods listed one by one.
const PODS_SHOWN: usize = 3;

/// One change that a person makes, or one thing that ends by itself. A remedy is all of its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Step {
    /// More capacity, all of it.
    AddCapacity {
        /// Where, and for how many members.
        capacities: Vec<Capacity>,
    },
    /// Require another level of the topology; none: no level at all.
    RequireLevel {
        /// Its name.
        level: Option<Arc<str>>,
    },
    /// Ask for no exclusive domain.
    DropExclusive,
    /// Ask for no slices.
    DropSlices,
    /// Ask for no balance.
    DropBalance,
    /// Slices inside a wider level.
    WidenSlices {
        /// Its name.
        level: Arc<str>,
    },
    /// Slices of this size inside a lower level.
    NarrowSlices {
        /// Members of a slice.
        size: u32,
        /// Its name.
        level: Arc<str>,
    },
    /// Slices of another size.
    ResizeSlices {
        /// As it is.
        from: u32,
        /// As it should be.
        to: u32,
    },
    /// Tolerate taints, all of them.
    Tolerate {
        /// Each `key=value:effect`.
        taints: Vec<Arc<str>>,
    },
    /// Tolerate a taint, or take it from these nodes.
    Untaint {
        /// `key=value:effect`.
        taint: Arc<str>,
        /// The nodes.
        #[serde(flatten)]
        nodes: Nodes,
    },
    /// Do without node selector and node affinity.
    DropSelector,
    /// Uncordon nodes.
    Uncordon {
        /// The nodes.
        #[serde(flatten)]
        nodes: Nodes,
    },
    /// Get nodes Ready.
    MakeReady {
        /// The nodes.
        #[serde(flatten)]
        nodes: Nodes,
    },
    /// Free the host ports of nodes.
    FreePorts {
        /// The nodes.
        #[serde(flatten)]
        nodes: Nodes,
        /// Pods there that hold it, as `namespace/name`; empty where nobody knows.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pods: Vec<PodHolds>,
    },
    /// End the pods that use a resource on nodes.
    EndPods {
        /// The resource.
        resource: ResourceName,
        /// The nodes.
        #[serde(flatten)]
        nodes: Nodes,
        /// Pods there that hold it, as `namespace/name`; empty where nobody knows.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pods: Vec<PodHolds>,
    },
    /// Move away pods that must not stand beside a member.
    MovePods {
        /// The nodes.
        #[serde(flatten)]
        nodes: Nodes,
        /// Pods there that hold it, as `namespace/name`; empty where nobody knows.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pods: Vec<PodHolds>,
    },
    /// Another minimum.
    SetMinimum {
        /// Of this role; empty for the only one.
        role: Arc<str>,
        /// Members.
        members: u32,
    },
    /// Pods without constraints, all of them.
    DropConstraints {
        /// The constraints.
        constraints: Vec<Arc<str>>,
    },
    /// One template for two roles.
    SameTemplate {
        /// The role that changes.
        role: Arc<str>,
        /// The role whose template it takes.
        like: Arc<str>,
    },
    /// Raise a limit of a NodePool.
    RaiseLimit {
        /// The pool.
        pool: Arc<str>,
        /// The resource.
        resource: ResourceName,
        /// As it is, in the resource's unit.
        from: i64,
        /// The least that does.
        to: i64,
    },
    /// Raise a ceiling on dollars per hour.
    RaiseCeiling {
        /// Whose.
        scope: CeilingScope,
        /// The pool.
        pool: Arc<str>,
        /// As it is, in micro-dollars.
        from: u64,
        /// The least that does, in whole cents.
        to: u64,
    },
    /// Allow more nodes in one batch.
    RaiseMaxNodes {
        /// The pool.
        pool: Arc<str>,
        /// As it is.
        from: u32,
        /// The least that does.
        to: u32,
    },
    /// Make pool and gang agree about the placement group.
    AlignPlacementGroup {
        /// The pool.
        pool: Arc<str>,
    },
    /// Get a capacity reservation.
    AddReservation {
        /// The pool.
        pool: Arc<str>,
        /// Of this type.
        instance_type: Option<Arc<str>>,
        /// With at least so many free hosts.
        hosts: Option<u32>,
    },
    /// Add a subnet to the node class of a pool.
    AddSubnet {
        /// The pool.
        pool: Arc<str>,
        /// With at least so many free addresses.
        addresses: Option<u64>,
    },
    /// Create a NodePool.
    CreateNodePool {
        /// With this type.
        instance_type: Arc<str>,
        /// In this zone; null: any.
        zone: Option<Arc<str>>,
        /// Nodes that it would provision for the gang.
        nodes: u32,
        /// The level of the network that the gang asks for, if it does: where new nodes stand is known only once they run.
        level: Option<Arc<str>>,
    },
    /// Allow on-demand capacity in a pool.
    AllowOnDemand {
        /// The pool.
        pool: Arc<str>,
    },
    /// Labels for the nodes of a pool, all of them.
    LabelPool {
        /// The pool.
        pool: Arc<str>,
        /// Key and value of each.
        labels: BTreeMap<Arc<str>, Arc<str>>,
    },
    /// Give nodes the labels of the network that they lack.
    LabelNodes {
        /// The nodes.
        #[serde(flatten)]
        nodes: Nodes,
        /// Keys, from the top.
        keys: Vec<Arc<str>>,
    },
    /// Ask for less of a resource in each member.
    LowerRequest {
        /// The resource.
        resource: ResourceName,
        /// As it is, in the resource's unit.
        from: i64,
        /// The most that fits.
        to: i64,
    },
    /// Let members not share a volume that one node may use at a time.
    OwnVolumes {
        /// The claims.
        claims: Vec<Arc<str>>,
    },
    /// State the size of the gang.
    StateSize,
    /// Resume the owner.
    Resume {
        /// Its kind.
        owner: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// Create members that are missing.
    CreateMembers {
        /// How many.
        members: u32,
    },
    /// Somebody else's scheduling gate goes.
    RemoveGate {
        /// The gate.
        gate: Arc<str>,
        /// The first pod of the gang that has it; others may have it too.
        pod: Arc<str>,
    },
    /// Nodes that were provisioned become Ready.
    AwaitNodes {
        /// Those that have registered.
        nodes: Vec<NodeName>,
        /// The NodeBatches they come from.
        batches: Vec<Arc<str>>,
    },
    /// Nodes are provisioned.
    AwaitProvisioning,
    /// Booked nodes become Ready.
    AwaitBooking {
        /// The ProvisioningRequest.
        request: Arc<str>,
    },
    /// Terminating pods go.
    AwaitTermination {
        /// How many.
        pods: u32,
        /// On so many nodes.
        on: u32,
    },
    /// Other gangs release the capacity assigned to them.
    AwaitGangs {
        /// `namespace/name` of each.
        gangs: Vec<Arc<str>>,
        /// Any one of them is enough.
        any: bool,
    },
    /// A node that is gone comes back, or its member ends.
    RestoreNode {
        /// The node.
        node: NodeName,
    },
    /// It is tried again by itself.
    AwaitTime {
        /// After this.
        until: Timestamp,
    },
    /// The owner recreates its pods.
    AwaitPods,
}

impl Help {
    /// Everything to change, all of it; empty if there is nothing that was shown to help.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        match self {
            // What is wrong is in the headline, with the remedy in words.
            Self::Nothing | Self::Describe(_) | Self::NewPool { offer: None } => Vec::new(),
            Self::Change(change) => change.step().into_iter().collect(),
            Self::Pool { pool, instance_type, count: _, changes } => {
                let steps = changes.iter().map(|change| of_pool(change, pool, instance_type.as_ref()));
                steps.collect::<Option<Vec<Step>>>().unwrap_or_default()
            }
            Self::NewPool { offer: Some(NewOffer { instance_type, count, zone, level }) } => {
                let (instance_type, zone, level) = (Arc::clone(instance_type), zone.clone(), level.clone());
                vec![Step::CreateNodePool { instance_type, zone, nodes: *count, level }]
            }
            Self::Wait(wait) => vec![wait.step()],
        }
    }

    /// What to do, as an instruction without a full stop; `None` if there is nothing to do.
    #[must_use]
    pub fn instruction(&self) -> Option<String> {
        instruction(&self.steps())
    }
}

/// Steps as one instruction; `None` without any.
#[must_use]
pub fn instruction(steps: &[Step]) -> Option<String> {
    let mut steps = steps.iter().map(ToString::to_string);
    let first = steps.next()?;
    Some(steps.fold(first, |text, step| {
        let mut letters = step.chars();
        let begin = letters.next().into_iter().flat_map(char::to_lowercase);
        format!("{text}, and {}{}", begin.collect::<String>(), letters.as_str())
    }))
}

impl Step {
    /// Whether it was shown that the gang fits after it. Else it takes one obstacle away, and whether the gang fits is
    /// planned then.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        match self {
            Self::StateSize
            | Self::Resume { .. }
            | Self::CreateMembers { .. }
            | Self::RemoveGate { .. }
            | Self::AwaitProvisioning
            | Self::AwaitBooking { .. }
            | Self::RestoreNode { .. }
            | Self::AwaitTime { .. }
            | Self::AwaitPods
            // Where the nodes stand is known only once they say so.
            | Self::LabelNodes { .. } => false,
            Self::CreateNodePool { level, .. } => level.is_none(),
            // Nodes that have not registered were not planned with.
            Self::AwaitNodes { nodes, .. } => !nodes.is_empty(),
            Self::AddCapacity { .. }
            | Self::RequireLevel { .. }
            | Self::DropExclusive
            | Self::DropSlices
            | Self::DropBalance
            | Self::WidenSlices { .. }
            | Self::NarrowSlices { .. }
            | Self::ResizeSlices { .. }
            | Self::Tolerate { .. }
            | Self::Untaint { .. }
            | Self::DropSelector
            | Self::Uncordon { .. }
            | Self::MakeReady { .. }
            | Self::FreePorts { .. }
            | Self::EndPods { .. }
            | Self::MovePods { .. }
            | Self::SetMinimum { .. }
            | Self::DropConstraints { .. }
            | Self::SameTemplate { .. }
            | Self::RaiseLimit { .. }
            | Self::RaiseCeiling { .. }
            | Self::RaiseMaxNodes { .. }
            | Self::AlignPlacementGroup { .. }
            | Self::AddReservation { .. }
            | Self::AddSubnet { .. }
            | Self::AllowOnDemand { .. }
            | Self::LabelPool { .. }
            | Self::LowerRequest { .. }
            | Self::OwnVolumes { .. }
            | Self::AwaitTermination { .. }
            | Self::AwaitGangs { .. } => true,
        }
    }
}

impl Change {
    fn step(&self) -> Option<Step> {
        Some(match self {
            Self::Capacity { capacities } => Step::AddCapacity { capacities: capacities.clone() },
            Self::Widen { to: _, level } => Step::RequireLevel { level: level.clone() },
            Self::Share => Step::DropExclusive,
            Self::Unslice => Step::DropSlices,
            Self::Unbalance => Step::DropBalance,
            Self::WidenSlices { to: _, level } => Step::WidenSlices { level: Arc::clone(level) },
            Self::Tolerate { taints } => Step::Tolerate { taints: taints.clone() },
            Self::Unselect => Step::DropSelector,
            Self::Nodes { reason, nodes } => return freed(reason, Nodes { nodes: Vec::new(), count: *nodes }),
            Self::Free { reason, nodes } => {
                let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                return freed(reason, Nodes { nodes: nodes.clone(), count });
            }
            Self::Minimum { role, members } => Step::SetMinimum { role: Arc::clone(role), members: *members },
            Self::Remove { constraints } => Step::DropConstraints { constraints: constraints.clone() },
            Self::SameTemplate { role, like, indices: _ } => {
                Step::SameTemplate { role: Arc::clone(role), like: Arc::clone(like) }
            }
            Self::SliceSize { from, to } => Step::ResizeSlices { from: *from, to: *to },
            Self::NarrowSlices { size, to: _, level } => Step::NarrowSlices { size: *size, level: Arc::clone(level) },
            Self::OwnVolumes { claims } => Step::OwnVolumes { claims: claims.clone() },
            Self::Label { nodes, keys } => {
                let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                Step::LabelNodes { nodes: Nodes { nodes: nodes.clone(), count }, keys: keys.clone() }
            }
            Self::Lower { resource, from, to } => {
                Step::LowerRequest { resource: resource.clone(), from: *from, to: *to }
            }
        })
    }
}

impl Wait {
    fn step(&self) -> Step {
        match self {
            Self::Members(members) => Step::CreateMembers { members: *members },
            Self::Gate { gate, pod } => Step::RemoveGate { gate: Arc::clone(gate), pod: Arc::clone(pod) },
            Self::Joined(joining) => {
                Step::AwaitNodes { nodes: joining.nodes.clone(), batches: joining.batches.clone() }
            }
            Self::Provisioned => Step::AwaitProvisioning,
            Self::Booked(request) => Step::AwaitBooking { request: Arc::clone(request) },
            Self::Passed(Passing::Terminating { pods, nodes, enough: _ }) => {
                Step::AwaitTermination { pods: *pods, on: *nodes }
            }
            Self::Passed(Passing::Assigned { gangs, nodes: _, enough: _, any }) => {
                Step::AwaitGangs { gangs: gangs.iter().map(|gang| Arc::from(gang.to_string())).collect(), any: *any }
            }
            Self::Node(node) => Step::RestoreNode { node: node.clone() },
            Self::Until(until) => Step::AwaitTime { until: *until },
            Self::Pods => Step::AwaitPods,
        }
    }
}

/// Nodes without what blocks them; `None` for what nobody can take from a node.
fn freed(reason: &Misfit, nodes: Nodes) -> Option<Step> {
    Some(match reason {
        Misfit::Unschedulable => Step::Uncordon { nodes },
        Misfit::NotReady => Step::MakeReady { nodes },
        Misfit::Taint { taint } => Step::Untaint { taint: Arc::clone(taint), nodes },
        Misfit::Port => Step::FreePorts { nodes, pods: Vec::new() },
        Misfit::Insufficient { resource } => Step::EndPods { resource: resource.clone(), nodes, pods: Vec::new() },
        Misfit::Occupied => Step::MovePods { nodes, pods: Vec::new() },
        Misfit::Held | Misfit::Shared | Misfit::Volume | Misfit::Selector => return None,
    })
}

/// `None`: whether another type, zone, capacity type or price, or a reservation of unknown size, would do was not tried.
fn of_pool(change: &PoolChange, pool: &Arc<str>, instance_type: Option<&Arc<str>>) -> Option<Step> {
    let pool = Arc::clone(pool);
    Some(match change {
        PoolChange::Limit { resource, from, to } => {
            Step::RaiseLimit { pool, resource: resource.clone(), from: *from, to: *to }
        }
        PoolChange::Ceiling { scope, from, to } => {
            Step::RaiseCeiling { scope: *scope, pool, from: *from, to: ceil(*to) }
        }
        PoolChange::MaxNodes { from, to } => Step::RaiseMaxNodes { pool, from: *from, to: *to },
        PoolChange::Group => Step::AlignPlacementGroup { pool },
        PoolChange::Reservation { hosts: hosts @ Some(_) } => {
            Step::AddReservation { pool, instance_type: instance_type.cloned(), hosts: *hosts }
        }
        PoolChange::Subnet { addresses } => Step::AddSubnet { pool, addresses: *addresses },
        PoolChange::OnDemand => Step::AllowOnDemand { pool },
        PoolChange::Labels { labels } => Step::LabelPool { pool, labels: labels.clone() },
        PoolChange::Price
        | PoolChange::OtherType { .. }
        | PoolChange::OtherCapacityType
        | PoolChange::Reservation { hosts: None }
        | PoolChange::OtherZone => return None,
    })
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddCapacity { capacities } => {
                let parts: Vec<String> = capacities.iter().map(capacity).collect();
                write!(f, "Free or add capacity for {}", parts.join(" and "))
            }
            Self::RequireLevel { level: None } => f.write_str("Remove muster.dev/topology-required"),
            Self::RequireLevel { level: Some(level) } => write!(f, "Change muster.dev/topology-required to {level}"),
            Self::DropExclusive => f.write_str("Remove muster.dev/exclusive-topology"),
            Self::DropSlices => f.write_str("Remove muster.dev/slice-size and muster.dev/slice-topology"),
            Self::DropBalance => f.write_str("Remove muster.dev/balance-topology"),
            Self::WidenSlices { level } => write!(f, "Change muster.dev/slice-topology to {level}"),
            Self::NarrowSlices { size, level } => {
                write!(f, "Change muster.dev/slice-topology of the slices of {size} to {level}")
            }
            Self::ResizeSlices { from, to } => write!(f, "Change muster.dev/slice-size from {from} to {to}"),
            Self::Tolerate { taints } => {
                write!(f, "Tolerate taint{} {} in the pods", plural(taints.len()), listed(taints))
            }
            Self::Untaint { taint, nodes } => {
                write!(f, "Tolerate taint {taint} in the pods, or take it from {nodes}")
            }
            Self::DropSelector => {
                f.write_str("Remove nodeSelector and node affinity from the pods and make them again")
            }
            Self::Uncordon { nodes } => write!(f, "Uncordon {nodes}"),
            Self::MakeReady { nodes } => write!(f, "Get {nodes} Ready"),
            Self::FreePorts { pods, nodes } | Self::EndPods { pods, nodes, .. } | Self::MovePods { pods, nodes }
                if !pods.is_empty() =>
            {
                let shown: Vec<String> = pods.iter().take(PODS_SHOWN).map(ToString::to_string).collect();
                write!(f, "Delete pod{} ", plural(pods.len()))?;
                match pods.len().saturating_sub(PODS_SHOWN) {
                    0 => f.write_str(&listed(&shown)),
                    more => write!(f, "{} and {more} more on {nodes}", shown.join(", ")),
                }
            }
            Self::FreePorts { nodes, .. } => write!(f, "Delete the pods that hold the host ports on {nodes}"),
            Self::EndPods { resource, nodes, .. } => write!(f, "Delete the pods that use {resource} on {nodes}"),
            Self::MovePods { nodes, .. } => write!(f, "Delete the pods that keep the members away on {nodes}"),
            Self::SetMinimum { role, members } if role.is_empty() => {
                write!(f, "Change muster.dev/gang-min to {members}")
            }
            Self::SetMinimum { role, members } => write!(f, "Change muster.dev/gang-min of role {role} to {members}"),
            Self::DropConstraints { constraints } => {
                write!(f, "Take {} out of the pods and make them again", listed(constraints))
            }
            Self::SameTemplate { role, like } if role == like && role.is_empty() => {
                f.write_str("Give all members one template and make them again")
            }
            Self::SameTemplate { role, like } if role == like => {
                write!(f, "Give all members of role {role} one template and make them again")
            }
            Self::SameTemplate { role, like } => {
                write!(f, "Give role {role} the template of role {like} and make its pods again")
            }
            Self::RaiseLimit { pool, resource, from, to } => {
                let (from, to) = (amount(resource.as_str(), *from), at_least(resource.as_str(), *to));
                write!(f, "Raise spec.limits.{resource} of NodePool \"{pool}\" from {from} to {to}")
            }
            Self::RaiseCeiling { scope: CeilingScope::Pool, pool, from, to } => {
                let (from, to) = (dollars(*from), dollars(*to));
                write!(f, "Raise spec.maxUsdPerHour of NodePool \"{pool}\" from {from} to {to}")
            }
            Self::RaiseCeiling { scope: scope @ CeilingScope::Cluster, pool: _, from, to } => {
                write!(f, "Raise {scope} in Muster's configuration from {} to {}", dollars(*from), dollars(*to))
            }
            Self::RaiseMaxNodes { pool, from, to } => {
                write!(f, "Raise spec.placement.maxNodesPerBatch of NodePool \"{pool}\" from {from} to {to}")
            }
            Self::AlignPlacementGroup { pool } => write!(
                f,
                "Change spec.placement.placementGroup of NodePool \"{pool}\" to preferred, or remove muster.dev/placement-group \
                 from the pods"
            ),
            Self::AddReservation { pool, instance_type, hosts } => {
                f.write_str("Get a capacity reservation")?;
                if let Some(hosts) = hosts {
                    write!(f, " with {hosts} free host{}", plural(*hosts))?;
                }
                if let Some(name) = instance_type {
                    write!(f, " of {name}")?;
                }
                write!(
                    f,
                    " that spec.capacityReservationSelectorTerms of the EC2NodeClass of NodePool \"{pool}\" select"
                )
            }
            Self::AddSubnet { pool, addresses } => {
                f.write_str("Add a subnet")?;
                if let Some(addresses) = addresses {
                    write!(f, " with {addresses} free addresses")?;
                }
                write!(f, " to spec.subnetSelectorTerms of the EC2NodeClass of NodePool \"{pool}\"")
            }
            Self::CreateNodePool { instance_type, zone, nodes, level } => {
                write!(f, "Create a NodePool with an EC2NodeClass that may provision {nodes} {instance_type}")?;
                if let Some(zone) = zone {
                    write!(f, " in {zone}")?;
                }
                match level {
                    Some(level) => write!(f, " (the {level} of new nodes is known only once they run)"),
                    None => Ok(()),
                }
            }
            Self::AllowOnDemand { pool } => {
                write!(
                    f,
                    "Add on-demand to muster.dev/capacity-type in spec.template.spec.requirements of NodePool \"{pool}\""
                )
            }
            Self::LabelPool { pool, labels } => {
                let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let (word, labels) = (plural(labels.len()), listed(&labels));
                write!(f, "Add label{word} {labels} to spec.template.metadata.labels of NodePool \"{pool}\"")
            }
            Self::LowerRequest { resource, from, to } => {
                let (from, to) = (amount(resource.as_str(), *from), amount(resource.as_str(), *to));
                write!(f, "Lower {resource} of each member from {from} to {to} and make them again")
            }
            Self::LabelNodes { nodes, keys } => {
                write!(
                    f,
                    "Label {nodes} with {}: the values are what `aws ec2 describe-instance-topology` shows",
                    listed(keys)
                )
            }
            Self::OwnVolumes { claims } => write!(
                f,
                "Give each member a claim of its own, or a volume that many nodes may use (ReadWriteMany), in place of {}, and make them again",
                listed(claims)
            ),
            Self::StateSize => f.write_str(
                "Set the annotation muster.dev/gang-size on the pods, or muster.dev/gang-min for an elastic gang",
            ),
            Self::Resume { owner, name } => write!(f, "Set spec.suspend of {owner} {name} to false"),
            Self::CreateMembers { members: 1 } => f.write_str("Create the member that is missing"),
            Self::CreateMembers { members } => write!(f, "Create the {members} members that are missing"),
            Self::RemoveGate { gate, pod } => {
                write!(
                    f,
                    "Have the scheduling gate {gate} removed from the gang's pods, such as {pod}, by whoever set it"
                )
            }
            Self::AwaitNodes { nodes, batches } => {
                let joining = super::Joining { nodes: nodes.clone(), batches: batches.clone(), until: None };
                write!(f, "Wait for {joining}")
            }
            Self::AwaitProvisioning => f.write_str("Wait until the nodes are provisioned"),
            Self::AwaitBooking { request } => {
                write!(f, "Wait until the nodes booked by ProvisioningRequest {request} are Ready")
            }
            Self::AwaitTermination { pods, on } => write!(
                f,
                "Wait until {pods} terminating pod{} on {on} node{} {} gone",
                plural(*pods),
                plural(*on),
                if *pods == 1 { "is" } else { "are" }
            ),
            Self::AwaitGangs { gangs, any } => match (gangs.as_slice(), any) {
                ([one], _) => write!(f, "Wait for gang {one} to end: the capacity is assigned to it"),
                (_, true) => {
                    let gangs = listed_with(gangs, "or");
                    write!(f, "Wait until gang {gangs} has ended: the capacity is assigned to them")
                }
                (_, false) => {
                    let gangs = listed(gangs);
                    write!(f, "Wait for gangs {gangs} to end: the capacity is assigned to them")
                }
            },
            Self::RestoreNode { node } => write!(f, "Bring node {node} back, or delete the pod on it"),
            Self::AwaitTime { until } => write!(f, "Wait: it is tried again after {}", moment(*until)),
            Self::AwaitPods => f.write_str("Wait for the owner to recreate its pods"),
        }
    }
}

/// An amount of money as a field of an object takes it.
fn dollars(micros: u64) -> String {
    format!("\"{}.{:02}\"", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

fn capacity(Capacity { level, domain, members, role }: &Capacity) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{members} more member{}", plural(*members));
    if let Some(role) = role {
        let _ = write!(text, " of role {role}");
    }
    match level {
        None => {}
        Some(level) if domain.is_empty() => {
            let _ = write!(text, " in a new {level}");
        }
        Some(level) => {
            let _ = write!(text, " in {level} {domain}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_an_instruction_that_names_what_to_touch() {
        let free = |nodes: &[&str]| {
            let nodes = nodes.iter().map(|name| NodeName::from(*name)).collect();
            Help::Change(Change::Free { reason: Misfit::Unschedulable, nodes }).instruction()
        };
        assert_eq!(free(&["c-1"]).as_deref(), Some("Uncordon node c-1"));
        assert_eq!(free(&["c-1", "c-2"]).as_deref(), Some("Uncordon nodes c-1 and c-2"));
        let limit = PoolChange::Limit { resource: "nvidia.com/gpu".into(), from: 64, to: 80 };
        let raise = Help::Pool { pool: "h100".into(), instance_type: None, count: None, changes: vec![limit] };
        assert_eq!(
            raise.instruction().as_deref(),
            Some("Raise spec.limits.nvidia.com/gpu of NodePool \"h100\" from 64 to 80")
        );
        assert_eq!(Help::Nothing.instruction(), None);
    }

    #[test]
    fn steps_of_one_remedy_are_one_sentence_with_values_that_can_be_pasted() {
        let limit = Step::RaiseLimit { pool: "gpu".into(), resource: "nodes".into(), from: 2, to: 3 };
        let (from, to) = (100_000_000, 2_165_120_000);
        let ceiling = Step::RaiseCeiling { scope: CeilingScope::Pool, pool: "gpu".into(), from, to };
        assert_eq!(
            instruction(&[limit, ceiling]).as_deref(),
            Some(
                "Raise spec.limits.nodes of NodePool \"gpu\" from 2 to 3, and raise spec.maxUsdPerHour of NodePool \"gpu\" \
                 from \"100.00\" to \"2165.12\""
            )
        );
    }

    #[test]
    fn nodes_whose_place_in_the_network_is_not_known_are_not_known_to_be_enough() {
        let create = |level: Option<&str>| Step::CreateNodePool {
            instance_type: "p5.48xlarge".into(),
            zone: None,
            nodes: 2,
            level: level.map(Arc::from),
        };
        assert!(create(None).is_enough());
        assert!(!create(Some("layer-3")).is_enough());
        assert_eq!(
            create(Some("layer-3")).to_string(),
            "Create a NodePool with an EC2NodeClass that may provision 2 p5.48xlarge (the layer-3 of new nodes is known only once they run)"
        );
    }

    #[test]
    fn what_was_not_tried_is_no_remedy() {
        let why = Box::new(crate::offering::Exclusion::DoesNotFit);
        for change in [PoolChange::OtherType { why }, PoolChange::OtherCapacityType, PoolChange::OtherZone] {
            let limit = PoolChange::Limit { resource: "nodes".into(), from: 1, to: 2 };
            let changes = vec![limit, change];
            let help = Help::Pool { pool: "h100".into(), instance_type: None, count: None, changes };
            assert_eq!(help.instruction(), None, "{help:?}");
        }
    }

    #[test]
    fn a_remedy_is_data_of_a_kind_with_the_names_that_its_sentence_has() {
        let nodes = Nodes { nodes: vec![NodeName::from("c-1")], count: 1 };
        let step = serde_json::to_value(Step::Uncordon { nodes }).unwrap();
        assert_eq!(step, serde_json::json!({"kind": "uncordon", "nodes": ["c-1"], "count": 1}));
        let limit = Step::RaiseLimit { pool: "h100".into(), resource: "nvidia.com/gpu".into(), from: 64, to: 80 };
        assert_eq!(serde_json::to_value(limit).unwrap()["kind"], "raiseLimit");
    }
}
