//! ProvisioningRequests of class `atomic.muster.dev`: the standard inbound door, answered with a booked NodeBatch.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplate;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{
    BatchOffer, Fill, GangRef, NodeBatch, NodeBatchSpec, ProvisioningRequest, ProvisioningRequestStatus, is_true,
    set_condition,
};
use muster_api::{convert, keys};
use muster_core::cycle::{batch_name, offers_for};
use muster_core::names::ObjectKey;
use muster_core::plan::{GangRequest, Role, RolePlace, Wishes};
use muster_core::pod::Toleration;
use serde_json::json;
use tracing::info;

use super::Context;
use crate::clock::now_real;
use crate::cluster::State;
use crate::step::{Step, step};

const ACCEPTED: &str = "Accepted";
const PROVISIONED: &str = "Provisioned";
const FAILED: &str = "Failed";

/// Looks at every request of our class.
pub(super) async fn reconcile(context: &Context, state: &State) -> anyhow::Result<()> {
    for (key, request) in state.requests.iter() {
        if request.metadata.deletion_timestamp.is_none() {
            answer(context, state, key, request).await?;
        }
    }
    Ok(())
}

async fn answer(
    context: &Context,
    state: &State,
    key: &ObjectKey,
    request: &Arc<ProvisioningRequest>,
) -> anyhow::Result<()> {
    let mut status = request.status.clone().unwrap_or_default();
    if is_true(&status.conditions, FAILED) {
        return Ok(());
    }
    let name = batch_name(request.metadata.uid.as_deref().unwrap_or_default(), 1);
    let now = now_real();
    match state.batches.get(&name) {
        None if is_true(&status.conditions, ACCEPTED) => {
            // The batch ended: its nodes were given back.
            if is_true(&status.conditions, PROVISIONED) {
                set_condition(
                    &mut status.conditions,
                    "BookingExpired",
                    true,
                    "BookingExpired",
                    "the booked nodes were given back",
                    now,
                );
            }
        }
        None => match plan(context, key, request).await? {
            Ok(spec) => {
                let batches: Api<NodeBatch> = Api::all(context.client.clone());
                let mut batch = NodeBatch::new(&name, spec);
                batch.metadata.finalizers = Some(vec![keys::TERMINATION.to_owned()]);
                match step(Step::CreateBatch, batches.create(&PostParams::default(), &batch)).await {
                    Ok(_) => info!(request = %key, batch = name, "booking"),
                    Err(kube::Error::Api(answer)) if answer.code == 409 => {}
                    Err(error) => return Err(error.into()),
                }
                set_condition(&mut status.conditions, ACCEPTED, true, "Accepted", "a NodeBatch is being bought", now);
                set_condition(&mut status.conditions, PROVISIONED, false, "Pending", "", now);
            }
            Err((reason, message)) => {
                let terminal = reason == "BadRequest";
                set_condition(&mut status.conditions, ACCEPTED, false, reason, &message, now);
                if terminal {
                    set_condition(&mut status.conditions, FAILED, true, reason, &message, now);
                }
            }
        },
        Some(batch) => progress(&mut status, request, batch, now),
    }
    write(context, key, request, status).await
}

/// The batch's state as the request's conditions and details.
fn progress(status: &mut ProvisioningRequestStatus, request: &ProvisioningRequest, batch: &NodeBatch, now: Timestamp) {
    let of_batch = batch.status.clone().unwrap_or_default();
    set_condition(&mut status.conditions, ACCEPTED, true, "Accepted", "a NodeBatch is being bought", now);
    let ready = matches!(of_batch.phase.as_str(), "Ready" | "InUse");
    if !ready {
        if !is_true(&status.conditions, PROVISIONED) {
            let message = of_batch.message.unwrap_or_default();
            set_condition(&mut status.conditions, PROVISIONED, false, "Pending", &message, now);
        }
        return;
    }
    set_condition(
        &mut status.conditions,
        PROVISIONED,
        true,
        "CapacityIsProvisioned",
        "all nodes are ready, with their devices",
        now,
    );
    let details = [
        ("BookingUID", request.metadata.uid.clone()),
        ("NodeBatch", Some(batch.name_any())),
        ("NodePool", of_batch.node_pool),
        ("InstanceType", of_batch.instance_type),
        ("Zone", of_batch.zone),
        ("PlacementGroup", of_batch.placement_group),
        ("CapacityType", of_batch.capacity_type),
        ("PricePerHour", of_batch.price_per_hour),
    ];
    for (key, value) in details {
        if let Some(value) = value {
            status.provisioning_class_details.insert(key.to_owned(), value);
        }
    }
}

type Refused = (&'static str, String);

/// The batch that would hold the whole request, or why none does.
async fn plan(
    context: &Context,
    key: &ObjectKey,
    request: &ProvisioningRequest,
) -> anyhow::Result<Result<NodeBatchSpec, Refused>> {
    let [set] = request.spec.pod_sets.as_slice() else {
        let message = format!("spec.podSets: {} sets; exactly one is supported", request.spec.pod_sets.len());
        return Ok(Err(("BadRequest", message)));
    };
    let Ok(count) = usize::try_from(set.count) else {
        return Ok(Err(("BadRequest", format!("spec.podSets[0].count: {} is negative", set.count))));
    };
    if count == 0 || count > muster_core::ranks::MAX_PLACES {
        let message = format!("spec.podSets[0].count: {count} is not 1 to {}", muster_core::ranks::MAX_PLACES);
        return Ok(Err(("BadRequest", message)));
    }
    let templates: Api<PodTemplate> = Api::namespaced(context.client.clone(), &key.namespace);
    let template = set.pod_template_ref.name.as_str();
    let Some(template) = templates.get_opt(template).await? else {
        let message =
            format!("spec.podSets[0].podTemplateRef: PodTemplate {template} does not exist in {}", key.namespace);
        return Ok(Err(("PodTemplateNotFound", message)));
    };
    let shape = match convert::shape_of_template(&key.namespace, &template.template.unwrap_or_default()) {
        Ok(shape) => shape,
        Err(error) => return Ok(Err(("BadRequest", format!("PodTemplate: {error}")))),
    };
    let uid = request.metadata.uid.clone().unwrap_or_default();
    let mut shape = shape;
    shape.tolerations.push(Toleration {
        key: keys::GANG_PENDING.into(),
        exists: false,
        value: uid.as_str().into(),
        effect: None,
    });
    let wanted = GangRequest {
        key: key.clone(),
        roles: vec![Role {
            name: "".into(),
            shape,
            min: u32::try_from(count).unwrap_or(u32::MAX),
            places: vec![RolePlace::default(); count],
        }],
        wishes: Wishes::default(),
    };
    let pools = context.pools.load();
    let (possible, left_out) = offers_for(&wanted, &pools);
    if possible.is_empty() {
        let why = if pools.is_empty() { "no NodePool is ready".to_owned() } else { left_out.join("; ") };
        return Ok(Err(("CapacityIsNotFound", format!("no NodePool can hold the request: {why}"))));
    }
    let mut node_pools: Vec<String> = Vec::new();
    for offer in &possible {
        if !node_pools.iter().any(|pool| **pool == *offer.pool) {
            node_pools.push(offer.pool.to_string());
        }
    }
    Ok(Ok(NodeBatchSpec {
        node_pools,
        count: possible.first().map_or(0, |offer| offer.count),
        fill: Fill::Atomic,
        gang_ref: None,
        provisioning_request_ref: Some(GangRef {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid,
        }),
        offers: possible
            .into_iter()
            .map(|offer| BatchOffer {
                node_pool: offer.pool.to_string(),
                instance_type: offer.instance_type.to_string(),
                count: offer.count,
            })
            .collect(),
        placement_group: request.spec.parameters.get(keys::PLACEMENT_GROUP).cloned(),
    }))
}

async fn write(
    context: &Context,
    key: &ObjectKey,
    request: &ProvisioningRequest,
    status: ProvisioningRequestStatus,
) -> anyhow::Result<()> {
    if request.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let requests: Api<ProvisioningRequest> = Api::namespaced(context.client.clone(), &key.namespace);
    let patch = json!({
        "metadata": {"resourceVersion": request.metadata.resource_version},
        "status": status,
    });
    let written =
        step(Step::WriteStatus, requests.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    match written {
        Ok(_) => Ok(()),
        // Somebody else wrote; the next look decides anew.
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
        Err(error) => Err(error.into()),
    }
}
