//! Alerts of `manifests/observability`: what a person sees, why it is so, and what to do.

use super::{Of, Row};

/// Every alert that is about no code, event or condition alone.
pub(super) const ALERTS: [Row; 20] = [
    (
        "MusterNoLeader",
        Of::Alert,
        "No replica, or more than one, holds the lease for two minutes.",
        "The Pods do not run or cannot reach the API server, or the lease cannot be written.",
        &[
            "kubectl -n muster-system get pods,lease, then the log of both replicas.",
            "With two holders: their clocks differ; mend the clock.",
        ],
    ),
    (
        "MusterStaleWatch",
        Of::Alert,
        "kube-scheduler gets errors for pods of gangs, and nothing is planned.",
        "A watch was silent for longer than state.maxAge: the API server is overloaded or unreachable from that replica.",
        &[
            "readyz of the replica names the kind.",
            "Look at the API server's flow control and at the network of the node.",
        ],
    ),
    (
        "MusterRefusedPlan",
        Of::Alert,
        "A gang waits with PlanRejected.",
        "The checker refused a plan: a bug of Muster.",
        &["Report it with the log line and muster record."],
    ),
    (
        "MusterLostBinding",
        Of::Alert,
        "A pod was answered as bound and has no node.",
        "A Binding was lost between API server and Muster: a bug, or an API server restored from a backup.",
        &["Restart kube-scheduler: until then it holds the capacity of the pod.", "Report it with the log."],
    ),
    (
        "MusterGangStartSlow",
        Of::Alert,
        "Gangs take long from their last member until all are bound.",
        "Capacity, slow boots, or members that kube-scheduler refuses; the label source says where nodes came from.",
        &[
            "For existing: look at MusterStuckMembers and MusterExtenderErrors.",
            "For the others: muster_nodebatch_ready_duration_seconds and the attempts of the NodeBatches.",
        ],
    ),
    (
        "MusterGangWaitsLong",
        Of::Alert,
        "A gang waits for more than an hour.",
        "muster_gangs_waiting has the reason.",
        &["muster top, then muster explain gang NAME: its remedies are numbered, easiest first."],
    ),
    (
        "MusterStuckMembers",
        Of::Alert,
        "Released members sit in kube-scheduler's queue for minutes.",
        "kube-scheduler refuses the node they were planned for, or does not look at them again.",
        &[
            "kubectl describe pod MEMBER: FailedScheduling has its reason.",
            "Check that both replicas of kube-scheduler have the shipped configuration: muster check-config.",
        ],
    ),
    (
        "MusterExtenderErrors",
        Of::Alert,
        "Calls of kube-scheduler to Muster end with errors or are shed.",
        "A stale watch, or more calls at once than are answered.",
        &[
            "The log names the verb and the error.",
            "For shed: more CPU for Muster, or fewer pods of the profile without a gate.",
        ],
    ),
    (
        "MusterLateCalls",
        Of::Alert,
        "Calls that change something are not answered in time.",
        "The API server or EC2 is slow or not reached.",
        &["The label step names the call; look at the API server's latency, or at the network to EC2."],
    ),
    (
        "MusterLaunchesFail",
        Of::Alert,
        "Every launch of the last hour failed.",
        "Insufficient capacity, a quota, or something in class or pool that EC2 refuses.",
        &[
            "muster_ec2_errors_total has the codes, kubectl describe nodebatch the messages.",
            "Allow more types, zones and capacity types.",
        ],
    ),
    (
        "MusterEC2Errors",
        Of::Alert,
        "Many calls to EC2 fail for another reason than capacity.",
        "Permissions, throttling by other programs of the account, or an outage.",
        &["muster_ec2_errors_total has the codes; muster doctor tries every call out."],
    ),
    (
        "MusterInterruptionsUnread",
        Of::Alert,
        "Messages of the queue of interruptions cannot be read.",
        "Something else than the EventBridge rules sends to the queue.",
        &["Look at the policy of the queue; cloudformation/muster.yaml has the right one."],
    ),
    (
        "MusterInterruptionQueueDown",
        Of::Alert,
        "The queue of interruptions is not found, or does not answer, for ten minutes.",
        "The name is wrong, a permission is missing, or SQS is not reached. Notices are not read; the status of instances is \
         polled meanwhile, which sees their end, and no warning before it.",
        &[
            "muster doctor asks for the queue, and says what answers.",
            "ec2.interruptionQueue of the configuration is its name, in the Region of the cluster.",
        ],
    ),
    (
        "MusterIdleNodes",
        Of::Alert,
        "Nearly a third of the dollars of a NodePool serve no gang.",
        "Nodes stay for consolidateAfter once their gang ended.",
        &["Lower consolidateAfter of the NodePool, or start the next gang sooner."],
    ),
    (
        "MusterStrandedDollars",
        Of::Alert,
        "Dollars go to nodes that no gang runs on.",
        "By cause: joins that take long or fail, rolled back launches, replacements, warm nodes, interruptions.",
        &["For join: look at JoinTimeout and DevicesMissing.", "For rollback: reserve capacity, or allow more zones."],
    ),
    (
        "MusterCertificateUnusable",
        Of::Alert,
        "The certificate of the extender was replaced by one that cannot be used.",
        "Key and certificate do not belong together, or a file is cut.",
        &["The log names the file; renew the Secret. The certificate before serves until it expires."],
    ),
    (
        "MusterCertificateExpires",
        Of::Alert,
        "The certificate of the extender ends within a week.",
        "Whoever issues it did not renew it, or the renewed one did not reach the Pod.",
        &[
            "Renew the Secret: Muster reads it again by itself.",
            "With cert-manager: kubectl -n muster-system describe certificate has the reason.",
        ],
    ),
    (
        "MusterPricesStale",
        Of::Alert,
        "Purchases are compared by old prices.",
        "Spot prices cannot be read from EC2, or the list of on-demand prices that this version brings is older than a year.",
        &[
            "For spot: muster doctor tries ec2:DescribeSpotPriceHistory; look at the network to EC2.",
            "For on-demand: take a newer version, or set prices in the configuration.",
        ],
    ),
    (
        "MusterNodePoolNotReady",
        Of::Alert,
        "NodePools or EC2NodeClasses have Ready=False for a quarter of an hour: nothing is provisioned for them.",
        "A field cannot be used, a permission is missing, no subnet or image was found, or their device plugins cannot run.",
        &[
            "kubectl get nodepools,ec2nodeclasses: the condition Ready has reason and message.",
            "muster doctor names what is wrong in the account, with the command that mends it.",
        ],
    ),
    (
        "MusterUnlistedKind",
        Of::Alert,
        "Pods of a kind of owners or groups are left as they are.",
        "The API server answers lists or watches of the kind with errors, as while its webhook or its controller is broken, or since the permission was withdrawn.",
        &[
            "kubectl get the kind: the error is the same. Mend its API service or conversion webhook, or apply manifests/rbac.yaml again.",
        ],
    ),
];
