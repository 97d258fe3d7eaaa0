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
/// Pod annotation: level whose domains the gang, or each slice, uses alone.
pub const EXCLUSIVE_TOPOLOGY: &str = "muster.dev/exclusive-topology";
/// Pod annotation: level over whose domains the members are spread evenly.
pub const BALANCE_TOPOLOGY: &str = "muster.dev/balance-topology";
/// Pod annotation: the pod's role, in a gang of several owners.
pub const ROLE: &str = "muster.dev/role";
/// Pod annotation: members of the pod's role.
pub const ROLE_SIZE: &str = "muster.dev/role-size";
/// Pod annotation: `required`, `preferred` or `none`.
pub const PLACEMENT_GROUP: &str = "muster.dev/placement-group";

/// Scheduling gate behind which gang pods wait.
pub const GATE: &str = "muster.dev/gang";
/// Pod and Binding annotation: epoch of the plan.
pub const PLAN_EPOCH: &str = "muster.dev/plan-epoch";
/// Pod annotation: the planned node.
pub const PLANNED_NODE: &str = "muster.dev/planned-node";
/// Annotation of a pod that was pinned to its planned node: which it is.
pub const PINNED_NODE: &str = "muster.dev/pinned-node";
/// Pod annotation that always changes, so that a patch requeues the pod in kube-scheduler.
pub const REQUEUE: &str = "muster.dev/wake";
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
/// Node label: capacity reservation.
pub const CAPACITY_RESERVATION_ID: &str = "muster.dev/capacity-reservation-id";
/// Requirement and node label: instance family, `p5`.
pub const INSTANCE_FAMILY: &str = "muster.dev/instance-family";
/// Requirement and node label: instance size, `48xlarge`.
pub const INSTANCE_SIZE: &str = "muster.dev/instance-size";
/// Requirement and node label: GPU name, `h100`.
pub const INSTANCE_GPU_NAME: &str = "muster.dev/instance-gpu-name";
/// Requirement and node label: number of GPUs.
pub const INSTANCE_GPU_COUNT: &str = "muster.dev/instance-gpu-count";

/// Letters before the generation of the instance type, `m`, label and requirement.
pub const INSTANCE_CATEGORY: &str = "muster.dev/instance-category";
/// Generation of the instance type, an integer, label and requirement.
pub const INSTANCE_GENERATION: &str = "muster.dev/instance-generation";
/// vCPUs of the instance type, label and requirement.
pub const INSTANCE_CPU: &str = "muster.dev/instance-cpu";
/// Maker of the processor, `intel`, `amd`, `aws`, label and requirement.
pub const INSTANCE_CPU_MANUFACTURER: &str = "muster.dev/instance-cpu-manufacturer";
/// Memory of the instance type in MiB, label and requirement.
pub const INSTANCE_MEMORY: &str = "muster.dev/instance-memory";
/// Maker of the GPUs, label and requirement.
pub const INSTANCE_GPU_MANUFACTURER: &str = "muster.dev/instance-gpu-manufacturer";
/// Memory of one GPU in MiB, label and requirement.
pub const INSTANCE_GPU_MEMORY: &str = "muster.dev/instance-gpu-memory";
/// Name of an accelerator that is no GPU, label and requirement.
pub const INSTANCE_ACCELERATOR_NAME: &str = "muster.dev/instance-accelerator-name";
/// Maker of an accelerator that is no GPU, label and requirement.
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str = "muster.dev/instance-accelerator-manufacturer";
/// Number of accelerators that are no GPUs, label and requirement.
pub const INSTANCE_ACCELERATOR_COUNT: &str = "muster.dev/instance-accelerator-count";
/// Annotation of a pod for which nothing is launched: `true`.
pub const DO_NOT_PROVISION: &str = "muster.dev/do-not-provision";
/// Taint on the nodes of an Atomic batch until it is in use; value = gang UID.
pub const GANG_PENDING: &str = "muster.dev/gang-pending";
/// Node annotation beside a cordon of ours; value = UID of the gang or request the node is held for.
pub const HOLD: &str = "muster.dev/hold";
/// Taint that Kubernetes puts on cordoned nodes, and that pods of DaemonSets tolerate by themselves.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taint with which a node for pods of no gang registers, until it is matched to its NodeBatch.
pub const UNREGISTERED: &str = "muster.dev/unregistered";
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
/// EBS CSI driver: the zone in which a node attaches volumes.
pub const EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";
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

/// Labels of a Job's pods: the Job's name, under both keys that it has had.
pub const JOB_NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
/// Labels of a Job's pods: the Job's UID, under both keys that it has had.
pub const JOB_CONTROLLER_UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// Label and annotation of an Indexed Job's pods: the completion index.
pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Label of a StatefulSet's pods: the ordinal.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
/// Where `spec.schedulingGroup.podGroupName` of Kubernetes 1.36 and later is kept on a pod that was read with older types.
pub const SCHEDULING_GROUP: &str = "scheduling.k8s.io/pod-group-name";
/// The field of a native PodGroup that asks for a level.
pub const NATIVE_TOPOLOGY: &str = "spec.schedulingConstraints.topology";

/// JobSet: label of pods and Jobs, the replicated job.
pub const JOBSET_REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
/// JobSet: label of pods and Jobs, the Job's number within its replicated job.
pub const JOBSET_JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
/// JobSet: annotation, one job per domain of this label key.
pub const JOBSET_EXCLUSIVE_TOPOLOGY: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// JobSet: annotation, exclusive placement by node selector instead of a webhook.
pub const JOBSET_NODE_SELECTOR: &str = "alpha.jobset.sigs.k8s.io/node-selector";

/// LeaderWorkerSet: label of pods, the set.
pub const LWS_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// LeaderWorkerSet: label of pods, the group.
pub const LWS_GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// LeaderWorkerSet: label of pods, the place in the group; 0 leads.
pub const LWS_WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// LeaderWorkerSet: annotation of pods, pods of a group.
pub const LWS_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// LeaderWorkerSet: annotation, one group per domain of this label key.
pub const LWS_EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";
/// LeaderWorkerSet: annotation, one subgroup per domain of this label key.
pub const LWS_SUBGROUP_EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology";

/// Kubeflow training-operator: label of pods, `master` or `worker`.
pub const KUBEFLOW_REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
/// Kubeflow training-operator: label of pods, the place in the role.
pub const KUBEFLOW_REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
/// MPI operator: label of pods, `launcher` or `worker`.
pub const KUBEFLOW_JOB_ROLE: &str = "training.kubeflow.org/job-role";

/// KubeRay: label of the cluster, asks for gang scheduling.
pub const RAY_GANG: &str = "ray.io/gang-scheduling-enabled";
/// KubeRay: label of pods, the group.
pub const RAY_GROUP: &str = "ray.io/group";
/// KubeRay: label of pods, `head` or `worker`.
pub const RAY_NODE_TYPE: &str = "ray.io/node-type";
/// KubeRay: label of pods, the replica within the group.
pub const RAY_REPLICA_INDEX: &str = "ray.io/worker-group-replica-index";
/// KubeRay: label of pods, the host within the replica.
pub const RAY_HOST_INDEX: &str = "ray.io/replica-host-index";

/// Coscheduling: label of pods, the PodGroup.
pub const COSCHEDULING_POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";
/// Coscheduling before PodGroups: label of pods, the group.
pub const COSCHEDULING_OLD_NAME: &str = "pod-group.scheduling.sigs.k8s.io/name";
/// Coscheduling before PodGroups: label of pods, members needed.
pub const COSCHEDULING_OLD_MIN: &str = "pod-group.scheduling.sigs.k8s.io/min-available";

/// Kueue: label or annotation of plain pods, the group.
pub const KUEUE_POD_GROUP: &str = "kueue.x-k8s.io/pod-group-name";
/// Kueue: annotation of plain pods, members.
pub const KUEUE_POD_GROUP_TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Kueue: label of plain pods, the rank.
pub const KUEUE_POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
/// Kueue: annotation of plain pods, the label that has the rank instead.
pub const KUEUE_POD_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// Kueue: annotation of pods, where ranks begin.
pub const KUEUE_POD_INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
/// Kueue: annotation of pods, the Workload.
pub const KUEUE_WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// Kueue: label of pods, the pod set.
pub const KUEUE_POD_SET: &str = "kueue.x-k8s.io/podset";
/// Kueue: annotation of pods, required level.
pub const KUEUE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
/// Kueue: annotation of pods, preferred level.
pub const KUEUE_PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// Kueue: annotation of pods, together but wherever there is capacity.
pub const KUEUE_UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// Kueue: annotation of pods, level of each slice.
pub const KUEUE_SLICE_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// Kueue: annotation of pods, members of each slice.
pub const KUEUE_SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// Kueue: annotation of pods, nested slices as JSON.
pub const KUEUE_SLICE_CONSTRAINTS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";

/// Volcano: annotations of pods that name the PodGroup.
pub const VOLCANO_GROUPS: [&str; 2] = ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"];
/// Volcano: annotation of owners, members needed.
pub const VOLCANO_MIN_MEMBER: &str = "scheduling.volcano.sh/group-min-member";
/// Volcano: label or annotation of pods, the task.
pub const VOLCANO_TASK: &str = "volcano.sh/task-spec";
/// KAI: annotation of pods, the PodGroup.
pub const KAI_POD_GROUP: &str = "pod-group-name";
/// KAI: annotation, members needed.
pub const KAI_MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
/// KAI: annotation, level that all members share.
pub const KAI_REQUIRED_TOPOLOGY: &str = "kai.scheduler/topology-required-placement";
/// KAI: annotation, level that is tried first.
pub const KAI_PREFERRED_TOPOLOGY: &str = "kai.scheduler/topology-preferred-placement";
/// KAI: annotation, members of each segment.
pub const KAI_SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
/// KAI: annotation, level of each segment.
pub const KAI_SEGMENT_TOPOLOGY: &str = "kai.scheduler/segment-topology-required-placement";
/// KAI: field of a PodGroup, for people.
pub const KAI_TOPOLOGY: &str = "podgroups.scheduling.run.ai spec.topologyConstraint";
/// Volcano: field of a PodGroup or Job, for people.
pub const VOLCANO_TOPOLOGY: &str = "podgroups.scheduling.volcano.sh spec.networkTopology";
/// Volcano: field of a PodGroup, for people.
pub const VOLCANO_SUBGROUPS: &str = "podgroups.scheduling.volcano.sh spec.subGroupPolicy";
/// Volcano: field of a Job's task, for people.
pub const VOLCANO_PARTITIONS: &str = "jobs.batch.volcano.sh spec.tasks[].partitionPolicy";
/// YuniKorn: label of pods, the application.
pub const YUNIKORN_APP: &str = "yunikorn.apache.org/app-id";
/// YuniKorn: label of pods, the application, before.
pub const YUNIKORN_OLD_APP: &str = "applicationId";
/// YuniKorn: annotation of the first pod, the task groups as JSON.
pub const YUNIKORN_TASK_GROUPS: &str = "yunikorn.apache.org/task-groups";
/// YuniKorn: annotation of pods, the task group.
pub const YUNIKORN_TASK_GROUP: &str = "yunikorn.apache.org/task-group-name";
/// Koordinator: annotation of pods, the gang.
pub const KOORDINATOR_NAME: &str = "gang.scheduling.koordinator.sh/name";
/// Koordinator: annotation of pods, members needed.
pub const KOORDINATOR_MIN: &str = "gang.scheduling.koordinator.sh/min-available";
/// Koordinator: annotation of pods and groups, members.
pub const KOORDINATOR_TOTAL: &str = "gang.scheduling.koordinator.sh/total-number";
/// Koordinator: label of pods, the PodGroup.
pub const KOORDINATOR_POD_GROUP: &str = "pod-group.scheduling.sigs.k8s.io";
/// Koordinator: annotation of PodGroups, topology requests by layer as JSON.
pub const KOORDINATOR_TOPOLOGY: &str = "gang.scheduling.koordinator.sh/network-topology-spec";
/// Grove: label of pods, the PodGang.
pub const GROVE_POD_GANG: &str = "grove.io/podgang";

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
/// Whether a label key means something without any catalogue: standard ones, and those of Muster.
#[must_use]
pub fn is_known(key: &str) -> bool {
    let of_zone = [ZONE, REGION, ZONE_ID, EBS_ZONE];
    let standard = [INSTANCE_TYPE, ARCH, OS, HOSTNAME];
    of_zone.contains(&key) || standard.contains(&key) || key.starts_with(PREFIX)
}

/// Karpenter's key of a capacity type.
pub const KARPENTER_CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// What Karpenter's keys of facts of a type begin with.
pub const KARPENTER_INSTANCE: &str = "karpenter.k8s.aws/instance-";
