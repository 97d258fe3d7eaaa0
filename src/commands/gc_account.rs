//! `muster gc --account`: everything of one cluster that AWS still has, by its tags and AWS permissions alone. The cluster may
//! be gone.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use muster_core::ec2::{ErrorClass, Instance, InstanceState, TAG_BATCH, TAG_CLUSTER_UID, Tags};
use serde::Serialize;

use crate::cloud::Cloud;

/// Between two looks at instances that are being terminated.
const LOOK: Duration = Duration::from_secs(5);

/// What there is of a cluster, in order of id and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// UID of the namespace `kube-system` of the cluster.
    pub cluster_uid: String,
    /// Instances that are not terminated.
    pub instances: Vec<Billed>,
    /// Names of placement groups.
    pub placement_groups: Vec<String>,
    /// Launch templates: names by id.
    pub launch_templates: BTreeMap<String, String>,
}

/// An instance that EC2 bills for, or that is on its way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Billed {
    /// Id.
    pub id: String,
    /// Type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// State.
    pub state: InstanceState,
    /// UID of its NodeBatch.
    pub batch: String,
    /// When it was launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launched: Option<Timestamp>,
}

impl Account {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.placement_groups.is_empty() && self.launch_templates.is_empty()
    }
}

/// Lists what carries the tags of the cluster.
///
/// Errors: AWS's.
pub async fn list(ec2: &Cloud, cluster_uid: &str) -> anyhow::Result<Account> {
    let ours = Tags::from([(TAG_CLUSTER_UID.to_owned(), cluster_uid.to_owned())]);
    let instances = ec2.instances_by_tags(&ours).await.context("list instances")?;
    let groups = ec2.placement_groups(&ours).await.context("list placement groups")?;
    let templates = ec2.launch_templates(&ours).await.context("list launch templates")?;
    Ok(Account {
        cluster_uid: cluster_uid.to_owned(),
        instances: instances.iter().filter_map(billed).collect(),
        // What carries one tag of the two is somebody else's.
        placement_groups: groups
            .into_iter()
            .filter(|group| group.tags.contains_key(TAG_BATCH))
            .map(|group| group.name)
            .collect(),
        launch_templates: templates.into_iter().map(|template| (template.id, template.name)).collect(),
    })
}

fn billed(instance: &Instance) -> Option<Billed> {
    let batch = instance.tags.get(TAG_BATCH)?.clone();
    (instance.state != InstanceState::Terminated).then(|| Billed {
        id: instance.id.as_str().to_owned(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        state: instance.state,
        batch,
        launched: instance.launch_time,
    })
}

/// Terminates the instances, waits until they are, and deletes what they needed; what is left is the answer. To do it again is
/// no mistake: it goes on where it ended.
///
/// Errors: AWS's; what was done stays done.
pub async fn collect(ec2: &Cloud, cluster_uid: &str, wait: Duration) -> anyhow::Result<Account> {
    let found = list(ec2, cluster_uid).await?;
    let ids: Vec<_> = found.instances.iter().map(|one| one.id.as_str().into()).collect();
    if !ids.is_empty() {
        ec2.terminate_instances(&ids).await.context("terminate instances")?;
    }
    let ended = tokio::time::timeout(wait, async {
        loop {
            let left = list(ec2, cluster_uid).await?;
            if left.instances.is_empty() {
                return anyhow::Ok(left);
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    // A placement group cannot be deleted before its instances are terminated.
    let Ok(left) = ended.await else { return list(ec2, cluster_uid).await };
    let left = left?;
    for name in &left.placement_groups {
        match ec2.delete_placement_group(name).await {
            Err(error) if error.kind != ErrorClass::InUse => {
                return Err(anyhow::Error::new(error).context(format!("delete placement group {name}")));
            }
            Ok(()) | Err(_) => {}
        }
    }
    for id in left.launch_templates.keys() {
        ec2.delete_launch_template(id).await.with_context(|| format!("delete launch template {id}"))?;
    }
    list(ec2, cluster_uid).await
}
