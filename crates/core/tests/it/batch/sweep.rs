//! The collector's round over the virtual account: what no batch knows goes, what a batch misses is reported.

use jiff::SignedDuration;
use muster_core::batch::{Change, Collection, KnownBatch, KnownNode, Report, collect};
use muster_core::model::batch::{Loss, LossCause};

use super::ec2::CLUSTER_UID;
use super::history::History;

/// One round.
pub(super) fn round(sim: &mut History) {
    let account = sim.ec2.account();
    let batches: Vec<KnownBatch> = sim.cluster.batches.values().map(|(_, batch)| KnownBatch::of(batch)).collect();
    let node = |(name, machine): (&String, &super::cluster::Machine)| KnownNode {
        name: name.as_str().into(),
        instance: machine.id.clone(),
    };
    let nodes: Vec<KnownNode> = sim.cluster.machines.iter().map(node).collect();
    let findings = collect(&Collection {
        cluster_uid: CLUSTER_UID,
        account: &account,
        batches: &batches,
        nodes: &nodes,
        grace: SignedDuration::from_secs(120),
        now: sim.now,
    });
    if !findings.instances.is_empty() {
        sim.coverage.event("orphans are collected");
        let change = Change::Terminate(findings.instances.into_iter().collect());
        let _ = sim.change(&change);
    }
    for (batch, lost) in findings.lost {
        sim.coverage.event("a missing instance is reported");
        let loss = Loss {
            cause: LossCause::Missing,
            message: "gone".to_owned(),
            noticed: sim.now,
            act_at: sim.now,
            deadline: None,
        };
        let losses = lost.into_iter().map(|id| (id, loss.clone())).collect();
        sim.reports.push((batch, Report { losses, reason: "InstancesLost", ..Report::default() }));
    }
    for (node, id) in findings.nodes {
        if sim.cluster.machine_of(node.as_str(), &id).is_some() {
            sim.cluster.delete_node(node.as_str());
        }
    }
    for group in findings.groups {
        let _ = sim.change(&Change::DeleteGroup(group));
    }
    for template in findings.templates {
        sim.ec2.delete_template(&template);
    }
}
