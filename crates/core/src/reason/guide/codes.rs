//! Every code: what a person sees, why it is so, and what to do.

use super::{Entry, Of, entry};
use crate::reason::Code;

impl Code {
    /// What a person is to know of it.
    #[must_use]
    pub fn guide(self) -> Entry {
        let (see, why, todo) = self.parts();
        entry(self.as_str(), Of::Reason, see, why, todo)
    }

    /// What is seen, why, and what to do.
    fn parts(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::DoesNotFit => (
                "The gang waits. The message names the domain with most capacity and how many members are missing there.",
                "No domain of the required level has capacity for all members at once, and no NodePool can provide what is missing.",
                &[
                    "Run muster explain gang NAME and carry out the first numbered remedy you can live with: each is proven by planning again.",
                    "If nothing is urgent, wait: what ends by itself is named in the message.",
                ],
            ),
            Self::Unlabelled => (
                "Nodes are excluded because they lack a topology label.",
                "The gang requires a level, and a node without the label of that level stands in no domain of it.",
                &[
                    "Label the nodes with the key in the message; on EC2 the cloud controller does so.",
                    "Or ask for a level whose label the nodes have.",
                ],
            ),
            Self::Cordoned => (
                "Nodes are excluded because they are cordoned.",
                "Somebody, or a drain, has set spec.unschedulable on them.",
                &["kubectl uncordon NODE, once what it was cordoned for is over."],
            ),
            Self::NotReady => (
                "Nodes are excluded because they are not Ready.",
                "Their kubelet does not report, or has not finished joining.",
                &[
                    "kubectl describe node NODE: the condition Ready says why.",
                    "A node that has just joined becomes Ready by itself within minutes.",
                ],
            ),
            Self::Taint => (
                "Nodes are excluded because of a taint.",
                "The members do not tolerate it, or the nodes are held for another gang until it runs there.",
                &[
                    "Nothing, where nodes are held: they open by themselves, or go with the batch that launched them.",
                    "Add the toleration for the taint in the message to the Pod template.",
                    "Or remove the taint: kubectl taint node NODE KEY-.",
                ],
            ),
            Self::Selector => (
                "Nodes are excluded because they do not match.",
                "nodeSelector or required node affinity of the members names labels that the nodes do not have.",
                &[
                    "Compare the selector of the Pod template with kubectl get nodes --show-labels, and correct one of them.",
                ],
            ),
            Self::Volume => (
                "Nodes are excluded because of a volume.",
                "A PersistentVolume of a member can be used from some nodes or zones only.",
                &[
                    "kubectl get pv NAME -o yaml: spec.nodeAffinity says where.",
                    "Use a volume that every zone reaches, or require the zone of the volume.",
                ],
            ),
            Self::Port => (
                "Nodes are excluded because a host port is taken.",
                "Another pod on the node uses a hostPort that a member asks for.",
                &["Do without the hostPort, or move the pod that holds it."],
            ),
            Self::Insufficient => (
                "Nodes are excluded because they have too little of a resource.",
                "What is allocatable, less the requests of the pods that run there, does not hold one member.",
                &[
                    "Lower the request, or end pods on the nodes.",
                    "If a device plugin does not run, the node has none of its devices: look at the DaemonSet.",
                ],
            ),
            Self::Occupied => (
                "Nodes are excluded because of the pods on them.",
                "Required anti-affinity, or a domain that is to be the gang's alone.",
                &["End or move these pods, or ask for no exclusive domain."],
            ),
            Self::Terminating => (
                "Capacity is held by pods that are being deleted.",
                "A pod holds its requests until its containers have ended.",
                &[
                    "Wait for the grace period of these pods.",
                    "If one does not go, look at its finalizers and its node.",
                ],
            ),
            Self::Assigned => (
                "Capacity is assigned to other gangs.",
                "A gang that was planned earlier, or has a higher priority, has it and is about to start there.",
                &["Wait for the gangs in the message, or give this one a higher PriorityClass."],
            ),
            Self::Unsupported => (
                "The gang is not planned.",
                "Its pods carry a constraint that is not supported; a plan that ignored it would be wrong.",
                &["Remove the constraint in the message, or express it by a topology request."],
            ),
            Self::MixedShapes => (
                "The gang is not planned.",
                "Its members ask for different things and its topology request needs one shape, or there are more shapes than are planned together.",
                &[
                    "Give the members the same requests, or remove the part of the topology request that the message names.",
                ],
            ),
            Self::Undecided => (
                "The gang waits although nothing proves that it does not fit.",
                "For members of several shapes the search ended within its budget without a placement.",
                &["Add capacity, or ask for fewer different shapes."],
            ),
            Self::MinimumAboveCount => (
                "The gang is not planned.",
                "Its minimum is above the number of its members, so it could never start.",
                &["Lower the minimum, or raise the number of members."],
            ),
            Self::Slices => (
                "The gang is not planned.",
                "Its slices do not cut a gang of this size.",
                &["Choose a number of members that the size of a slice divides."],
            ),
            Self::BoundOutside => (
                "The rest of a running gang is not placed.",
                "A running member stands outside the domain the gang requires, so the others cannot stand with it.",
                &["Delete that member so that it is placed again, or wait until its node is back."],
            ),
            Self::Collecting => (
                "The gang waits for its own pods.",
                "Fewer members exist than it needs. The owner has not created them yet, or may not: quota, admission, an image of the owner's controller.",
                &[
                    "kubectl describe the owner: its events say why pods are missing.",
                    "If the gang is to start with fewer, set the annotation muster.dev/gang-min on the pods.",
                ],
            ),
            Self::SizeUnknown => (
                "The gang waits although its pods are there.",
                "Neither size nor minimum of the gang is known.",
                &["Set the annotation muster.dev/gang-size on the pods, or let a Job own them."],
            ),
            Self::Suspended => (
                "The gang waits.",
                "Its owner is suspended: by a person, or by a queue such as Kueue.",
                &["Resume the owner, or look at its Workload if a queue suspended it."],
            ),
            Self::ForeignGate => (
                "The gang waits.",
                "A scheduling gate that is not Muster's holds a member.",
                &["Find who sets the gate in the message; Muster plans once it is gone."],
            ),
            Self::VolumesNotReady => (
                "The gang waits for a volume.",
                "A PersistentVolumeClaim of a member does not exist, is not bound, or has no volume to take.",
                &["kubectl describe pvc NAME: the claim in the message says what it waits for."],
            ),
            Self::Joining => (
                "The gang waits for nodes that are on their way.",
                "It fits once they are Ready, so nothing more is provisioned.",
                &["Wait: ten minutes after the nodes registered, others are provisioned."],
            ),
            Self::Provisioning => (
                "The gang waits for nodes of its own.",
                "A NodeBatch launches them; the message is that of the NodeBatch.",
                &["kubectl describe nodebatch NAME lists every attempt with EC2's answer."],
            ),
            Self::InsufficientCapacity => (
                "The gang waits; every launch was refused.",
                "EC2 has no capacity for the types, zones and capacity types that the NodePools allow.",
                &[
                    "Wait: the message has the time of the next try.",
                    "Allow more instance types, zones or capacity types in the NodePool, or use a reservation.",
                ],
            ),
            Self::NodesExcluded => (
                "The gang waits although there is capacity.",
                "The capacity is on nodes that kube-scheduler refused lately for a reason of its own, and they are excluded for a while.",
                &[
                    "Look at the event SchedulerRefused on the Gang: it quotes kube-scheduler.",
                    "Wait for watch.excludeTtl, or remove the cause.",
                ],
            ),
            Self::Booking => (
                "The gang waits for booked nodes.",
                "Its pods consume a ProvisioningRequest whose nodes are not there yet.",
                &["kubectl describe provisioningrequest NAME."],
            ),
            Self::TemplateNotFound => (
                "The gang cannot be expanded.",
                "A PodTemplate, or the runtime of a TrainJob, is missing.",
                &["Create the object in the message, or correct the reference to it."],
            ),
            Self::NoPool => (
                "The gang waits, and nothing is provisioned for it.",
                "There is no NodePool, none is ready, or none can hold the gang; the message says why for each.",
                &[
                    "Carry out the change that muster explain gang NAME numbers first.",
                    "kubectl get nodepools: a pool that is not Ready says why in its conditions.",
                ],
            ),
            Self::NoType => (
                "Nothing is provisioned from a NodePool.",
                "No instance type that it allows holds one member beside the DaemonSets.",
                &["Allow a larger instance type in the NodePool, or lower the requests of the members."],
            ),
            Self::BatchTooLarge => (
                "Nothing is provisioned.",
                "More nodes are needed than one NodeBatch may have.",
                &["Allow larger instance types, so that fewer nodes do."],
            ),
            Self::LimitReached => (
                "Nothing is provisioned from a NodePool.",
                "A limit of the NodePool, or provisioner.maxUsdPerHour, would be passed.",
                &["Raise the limit in the message to the number it names, or let something else end first."],
            ),
            Self::PriceUnknown => (
                "Nothing of a type is provisioned.",
                "No price is known for it, and nothing is launched that cannot be counted.",
                &["Set prices.TYPE.usdPerHour in Muster's configuration."],
            ),
            Self::NotSold => (
                "Nothing of a type is provisioned.",
                "EC2 does not offer it in the zones, or on the capacity types, of the NodePool.",
                &["Allow other zones or capacity types in the NodePool, and subnets there in its EC2NodeClass."],
            ),
            Self::Reservation => (
                "Nothing is launched into a reservation.",
                "No capacity reservation of the EC2NodeClass has enough free instances of the type now.",
                &["Wait until its instances are free, enlarge it, or allow on-demand beside reserved."],
            ),
            Self::Addresses => (
                "Nothing is provisioned in a zone.",
                "No subnet of the EC2NodeClass has enough free addresses for the nodes.",
                &["Add a subnet to the EC2NodeClass, or free addresses."],
            ),
            Self::Quota => (
                "Nothing is provisioned for a while.",
                "EC2 refused a launch for another reason than capacity, such as a quota of the account.",
                &["The message has EC2's code: raise the quota in Service Quotas, or correct what it names."],
            ),
            Self::PlacementGroup => (
                "Nothing is provisioned from a NodePool.",
                "NodePool and gang disagree about the placement group.",
                &["Change placementGroup of the NodePool, or the annotation of the gang."],
            ),
            Self::MixedWithRunning => (
                "Nothing is provisioned beside the running members.",
                "Where new nodes stand below the zone is known only once they run, so they cannot be proven to stand with the running members.",
                &["Ask for no level below the zone, or let the gang start again as a whole."],
            ),
            Self::MemberLost => (
                "A running gang has fewer members than its minimum.",
                "A member failed, was deleted, or lost its node, and no capacity is there for another.",
                &[
                    "Nothing at first: the rest is evicted and the gang starts again as a whole. The message says what was lost.",
                ],
            ),
            Self::Evicting => (
                "Members of a running gang are evicted.",
                "A member is lost and the minimum with it; the rest would wait for it for ever.",
                &[
                    "Nothing: the gang starts again once its pods are back.",
                    "If an eviction is refused, look at PodDisruptionBudgets.",
                ],
            ),
            Self::Restarting => (
                "The gang was evicted and has not started again.",
                "Its owner has not created all pods again. Its capacity is kept for five minutes.",
                &["kubectl describe the owner: a backoffLimit that is used up creates no pods. See RestartWouldFail."],
            ),
            Self::PlanExpired => (
                "Released members were not bound in time; the gang is planned again after a pause.",
                "kube-scheduler did not have all of them ready to bind within release.expiry.",
                &[
                    "kubectl describe pod MEMBER: FailedScheduling says what kube-scheduler objects to. Check that kube-scheduler runs.",
                ],
            ),
            Self::SchedulerRefused => (
                "kube-scheduler refuses a member on the node it was planned for.",
                "It has a reason that Muster does not model; the message quotes it.",
                &[
                    "Remove the cause in the message. After three refusals with one text the gang waits for watch.excludeTtl.",
                ],
            ),
            Self::SchedulerError => (
                "A call of kube-scheduler to Muster failed for a member.",
                "As after members waited in vain for the others to be ready to bind, or while Muster was restarted.",
                &["Nothing if it passes within a minute. Else look at the logs of both containers."],
            ),
            Self::UnknownLevel => (
                "The gang is not planned.",
                "Its topology request names a level that is not configured.",
                &["Use one of the levels in the message, or add it to topology.levels."],
            ),
            Self::BadNumber => (
                "The gang is not planned.",
                "An annotation holds something that is no number, or one out of range.",
                &["Correct the annotation in the message."],
            ),
            Self::BadValue => (
                "The gang is not planned.",
                "An annotation holds a value that is not one of those allowed.",
                &["Use one of the values in the message."],
            ),
            Self::IncompleteTopologyRequest => (
                "The gang is not planned.",
                "One of two annotations that belong together is missing.",
                &["Add the annotation in the message, or remove the other."],
            ),
            Self::ConflictingTopologyRequests => (
                "The gang is not planned.",
                "Members of two roles ask for different things where only one can hold.",
                &["Make the annotations of the roles in the message equal."],
            ),
            Self::BadName => (
                "The gang is not planned.",
                "The name of the gang, of a role or of a group cannot be used.",
                &["Use a name of at most 63 lower-case letters, digits and dashes."],
            ),
            Self::BadPod => (
                "The gang is not planned.",
                "The requests or constraints of a pod cannot be read.",
                &["Correct the field in the message."],
            ),
            Self::TooManyMembers => {
                ("The gang is not planned.", "It has more than 5,000 members, or more than 64 roles.", &["Split it."])
            }
            Self::SequentialCreation => (
                "The gang would never be complete.",
                "Its owner creates its pods one after another and waits for each to run.",
                &["Change the field in the message, as podManagementPolicy: Parallel of a StatefulSet."],
            ),
            Self::NotSupported => (
                "The gang is not planned.",
                "A topology request of another system is in a form that is not supported.",
                &["The message names the way out."],
            ),
            Self::PlanRejected => (
                "The gang waits, and muster_refused_plans_total rises.",
                "The checker refused a plan: a bug of Muster. Nothing was carried out.",
                &["Report it with the log line; muster record writes what is needed to see it again."],
            ),
        }
    }
}
