//! ProvisioningRequests of our class: a gang whose pods do not exist yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::crd::{ProvisioningRequest, is_true};
use muster_api::{conventions, convert, keys};
use muster_core::model::gang::{Invalid, RawTopologyRequest, RawTopologyRequests};
use muster_core::model::names::ObjectKey;
use muster_core::model::pod::Shape;
use muster_core::model::ranks::MAX_PLACES;

use crate::document::{Code, Reason};
use crate::dump::Dump;
use crate::gangs::Members;
use crate::reasons::described;

/// A request that is neither answered nor used.
#[derive(Debug)]
pub(super) struct Request {
    /// Namespace and name.
    pub(super) key: ObjectKey,
    /// When it was made.
    pub(super) created: Option<Timestamp>,
    /// Its topology requests.
    pub(super) topology_requests: RawTopologyRequests,
    /// A topology request that cannot be read.
    pub(super) invalid: Option<Invalid>,
    /// How many pods of what shape, or why that is not known.
    pub(super) wanted: Result<(usize, Shape), Reason>,
}

/// The open requests; those of other classes are reported.
pub(super) fn find(dump: &mut Dump, members: &Members) -> Vec<Request> {
    let booking = |stated: &muster_core::model::gang::Recognised| {
        Some(ObjectKey::new(Arc::clone(&stated.key.namespace), Arc::clone(stated.booking.as_ref()?)))
    };
    let used: BTreeSet<ObjectKey> = members.gangs.iter().filter_map(|gang| booking(&gang.stated)).collect();
    let mut found = Vec::new();
    let mut foreign = Vec::new();
    for request in &dump.requests {
        let name = request.metadata.name.as_deref().unwrap_or_default();
        let key = ObjectKey::new(request.metadata.namespace.as_deref().unwrap_or_default(), name);
        if request.spec.provisioning_class_name != keys::PROVISIONING_CLASS {
            let why = format!("spec.provisioningClassName: `{}` is not ours", request.spec.provisioning_class_name);
            foreign.push((name.to_owned(), why));
            continue;
        }
        let conditions = request.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ended = ["Provisioned", "Failed", "BookingExpired"].iter().any(|kind| is_true(conditions, kind));
        if ended || request.metadata.deletion_timestamp.is_some() || used.contains(&key) {
            continue;
        }
        let topology_request = |key: &'static str| {
            request.spec.parameters.get(key).map(|value| RawTopologyRequest { value: value.as_str().into(), key })
        };
        let mut invalid = None;
        let topology_requests = conventions::read_topology_requests(&topology_request, &mut invalid);
        found.push(Request {
            wanted: wanted(dump, &key, request),
            key,
            created: request.metadata.creation_timestamp.as_ref().map(|time| time.0),
            topology_requests,
            invalid,
        });
    }
    for (name, why) in foreign {
        dump.ignore("ProvisioningRequest".to_owned(), name, why);
    }
    found
}

fn wanted(dump: &Dump, key: &ObjectKey, request: &ProvisioningRequest) -> Result<(usize, Shape), Reason> {
    let [set] = request.spec.pod_sets.as_slice() else {
        let message = format!("spec.podSets: {} sets; exactly one is supported", request.spec.pod_sets.len());
        return Err(described(Code::NotSupported, message));
    };
    let count = usize::try_from(set.count).ok().filter(|count| (1..=MAX_PLACES).contains(count)).ok_or_else(|| {
        described(Code::BadNumber, format!("spec.podSets[0].count: {} is not 1 to {MAX_PLACES}", set.count))
    })?;
    let name = set.pod_template_ref.name.as_str();
    let found = dump.templates.iter().find(|template| {
        template.metadata.name.as_deref() == Some(name)
            && template.metadata.namespace.as_deref() == Some(&*key.namespace)
    });
    let Some(template) = found.and_then(|template| template.template.as_ref()) else {
        let message = format!("spec.podSets[0].podTemplateRef: PodTemplate {name} is not in the dump");
        return Err(described(Code::TemplateNotFound, message));
    };
    let shape = convert::shape_of_template(&key.namespace, template)
        .map_err(|error| described(Code::BadPod, format!("PodTemplate {name}: {}: {}", error.field, error.source)))?;
    Ok((count, shape))
}
