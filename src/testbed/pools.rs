//! NodePool and EC2NodeClass of the demo and the suites, as a user would write them.

use kube::api::PostParams;
use kube::{Api, Client};
use muster_api::crd::{EC2NodeClass, NodePool};
use serde_json::json;

use super::TestbedError;

/// Instance profile of the class, and in the simulator its role.
pub const INSTANCE_PROFILE: &str = "muster-node";

/// The class and the pool: p5.48xlarge, on demand, in placement groups, in the simulator's network.
///
/// Errors: none for what is written here; a type that changed its shape would be one.
pub fn p5(consolidate_after: &str) -> Result<(EC2NodeClass, NodePool), TestbedError> {
    let malformed = |error: serde_json::Error| TestbedError::Malformed {
        what: "pool of the testbed".to_owned(),
        problem: error.to_string(),
    };
    let class = serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "gpu"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [
                {"id": "subnet-0000000000000000a"},
                {"id": "subnet-0000000000000000b"},
                {"id": "subnet-0000000000000000c"},
            ],
            "securityGroupSelectorTerms": [{"id": "sg-00000000000000001"}],
            "instanceProfile": INSTANCE_PROFILE,
        },
    }))
    .map_err(malformed)?;
    let pool = serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "h100"},
        "spec": {
            "limits": {"nodes": 64},
            "template": {"spec": {
                "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "gpu"},
                "requirements": [
                    {"key": "muster.dev/instance-family", "operator": "In", "values": ["p5"]},
                    {"key": "muster.dev/capacity-type", "operator": "In", "values": ["on-demand"]},
                ],
            }},
            "placement": {"placementGroup": "required"},
            "disruption": {"consolidateAfter": consolidate_after},
        },
    }))
    .map_err(malformed)?;
    Ok((class, pool))
}

/// Creates both.
pub async fn create(client: &Client, class: &EC2NodeClass, pool: &NodePool) -> Result<(), TestbedError> {
    let params = PostParams::default();
    Api::<EC2NodeClass>::all(client.clone())
        .create(&params, class)
        .await
        .map_err(TestbedError::api("create an EC2NodeClass"))?;
    Api::<NodePool>::all(client.clone()).create(&params, pool).await.map_err(TestbedError::api("create a NodePool"))?;
    Ok(())
}
