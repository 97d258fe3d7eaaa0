//! Every label, annotation, taint and tag key Muster reads or writes. No other file spells one out.

/// API group of the custom resources.
pub const GROUP: &str = "muster.dev";
/// `spec.schedulerName` of the default profile.
pub const SCHEDULER_NAME: &str = "muster";
/// Namespace Muster is installed into.
pub const NAMESPACE: &str = "muster-system";

/// Prefix of everything of ours.
pub const PREFIX: &str = "muster.dev/";

/// Pod annotation: identity of the gang. Also the name of the scheduling gate.
pub const GANG: &str = "muster.dev/gang";
/// Pod annotation: members expected.
pub const GANG_SIZE: &str = "muster.dev/gang-size";
/// Pod annotation: members needed to start.
pub const GANG_MIN: &str = "muster.dev/gang-min";
/// Pod annotation: place in the ring, within the role.
pub const RANK: &str = "muster.dev/rank";
/// Pod annotation: all members inside one domain of this level.
pub const TOPOLOGY_REQUIRED: &str = "muster.dev/topology-required";
/// Pod annotation: try this level first.
pub const TOPOLOGY_PREFERRED: &str = "muster.dev/topology-preferred";
/// Pod annotation: consecutive ranks that form a slice.
pub const SLICE_SIZE: &str = "muster.dev/slice-size";
/// Pod annotation: level each slice stays within.
pub const SLICE_TOPOLOGY: &str = "muster.dev/slice-topology";
/// Pod annotation: `required`, `preferred` or `none`.
pub const PLACEMENT_GROUP: &str = "muster.dev/placement-group";

/// Scheduling gate behind which gang pods wait.
pub const GATE: &str = "muster.dev/gang";
/// Pod and Binding annotation: epoch of the plan.
pub const PLAN_EPOCH: &str = "muster.dev/plan-epoch";
/// Pod annotation: the planned node.
pub const PLANNED_NODE: &str = "muster.dev/planned-node";
/// Pod annotation that always changes, so that a patch wakes the pod in kube-scheduler.
pub const WAKE: &str = "muster.dev/wake";
/// Binding annotation: the rank the member was given.
pub const ASSIGNED_RANK: &str = "muster.dev/assigned-rank";
/// Pod condition that tells where a member stands.
pub const POD_CONDITION: &str = "muster.dev/Gang";

/// Node label and EC2 tag: NodePool name.
pub const NODEPOOL: &str = "muster.dev/nodepool";
/// Node label and EC2 tag: NodeBatch UID.
pub const BATCH: &str = "muster.dev/batch";
/// Node label and EC2 tag: Gang UID.
pub const GANG_UID: &str = "muster.dev/gang-uid";
/// Node label and EC2 tag: attempt number.
pub const ATTEMPT: &str = "muster.dev/attempt";
/// EC2 tag: UID of the namespace kube-system.
pub const CLUSTER_UID: &str = "muster.dev/cluster-uid";
/// Node label: UID of the ProvisioningRequest the node is booked for.
pub const BOOKING: &str = "muster.dev/booking";
/// Node label and requirement: `reserved`, `spot`, `on-demand`.
pub const CAPACITY_TYPE: &str = "muster.dev/capacity-type";
/// Node label: placement group id or name.
pub const PLACEMENT_GROUP_ID: &str = "muster.dev/placement-group-id";
/// Requirement and node label: instance family, `p5`.
pub const INSTANCE_FAMILY: &str = "muster.dev/instance-family";
/// Requirement and node label: instance size, `48xlarge`.
pub const INSTANCE_SIZE: &str = "muster.dev/instance-size";
/// Requirement and node label: GPU name, `h100`.
pub const INSTANCE_GPU_NAME: &str = "muster.dev/instance-gpu-name";
/// Requirement and node label: number of GPUs.
pub const INSTANCE_GPU_COUNT: &str = "muster.dev/instance-gpu-count";

/// Taint on the nodes of an Atomic batch until it is in use; value = gang UID.
pub const GANG_PENDING: &str = "muster.dev/gang-pending";
/// Taint while a node drains.
pub const DISRUPTED: &str = "muster.dev/disrupted";
/// NodePool annotation: names the set of orphaned instances that a person has released for termination.
pub const CONFIRM_ORPHANS: &str = "muster.dev/confirm-orphans";
/// Finalizer on NodeBatch: deletion waits for the clean-up in EC2.
pub const TERMINATION: &str = "muster.dev/termination";

/// Well-known: zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Well-known: region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// cloud-provider-aws: zone id.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// cloud-provider-aws: network layers; 1 is the top.
pub const NETWORK_LAYER_PREFIX: &str = "topology.k8s.aws/network-node-layer-";
/// Well-known: instance type.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Well-known: host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Well-known: architecture.
pub const ARCH: &str = "kubernetes.io/arch";
/// Well-known: operating system.
pub const OS: &str = "kubernetes.io/os";

/// Label and annotation of an Indexed Job's pods: the completion index.
pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Class of ProvisioningRequests Muster serves.
pub const PROVISIONING_CLASS: &str = "atomic.muster.dev";
/// Pod annotation, read only: the ProvisioningRequest whose booked batch the pod uses.
pub const CONSUME_PROVISIONING_REQUEST: &str = "autoscaling.x-k8s.io/consume-provisioning-request";

/// Tag that EKS tooling expects on a cluster's resources: `kubernetes.io/cluster/<name>` = `owned`.
pub const CLUSTER_TAG_PREFIX: &str = "kubernetes.io/cluster/";

/// Extended resource of NVIDIA GPUs.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// Extended resource of EFA interfaces.
pub const EFA: &str = "vpc.amazonaws.com/efa";
