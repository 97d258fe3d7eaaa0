//! What is planned as a gang: pods, or a ProvisioningRequest, and what each says of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_core::gang::{RequestError, Turn};
use muster_core::model::gang::{Gang, Invalid, Phase, RawTopologyRequests, Recognised, Source};
use muster_core::model::names::{ObjectKey, PodUid};
use muster_core::reason::Why;

use super::requests::Request;
use crate::dump::Dump;
use crate::gangs::{Found, Known};

/// Something to plan as a gang.
pub(super) enum Work {
    /// Pods.
    Pods(Box<Pods>),
    /// A ProvisioningRequest.
    Request(Box<Request>),
}

/// A gang of pods with what stands beside it in the dump.
pub(super) struct Pods {
    /// The gang.
    pub(super) found: Found,
    /// Values of the pending taint that are its own.
    pub(super) pending: Vec<Arc<str>>,
    /// Whether it has a Gang object.
    exists: bool,
    /// When that was created.
    created: Option<Timestamp>,
}

impl Work {
    /// A gang of pods, with what the dump's other objects say of it.
    pub(super) fn of_pods(found: Found, dump: &Dump) -> Self {
        let key = &found.stated.key;
        let named = |metadata: &ObjectMeta, name: &str| {
            metadata.namespace.as_deref() == Some(&*key.namespace) && metadata.name.as_deref() == Some(name)
        };
        let object = dump.gangs.iter().find(|gang| named(&gang.metadata, &key.name));
        let booking = found.stated.booking.as_ref();
        let booking = booking.and_then(|name| dump.requests.iter().find(|request| named(&request.metadata, name)));
        let uids = [
            object.and_then(|object| object.metadata.uid.as_deref()),
            booking.and_then(|booking| booking.metadata.uid.as_deref()),
        ];
        let pending = uids.into_iter().flatten().map(Arc::from).collect();
        let created = object.and_then(|object| object.metadata.creation_timestamp.as_ref()).map(|time| time.0);
        Self::Pods(Box::new(Pods { found, pending, exists: object.is_some(), created }))
    }

    /// Gangs are planned in the server's order. One that has an object is as old as that.
    pub(super) fn turn(&self) -> Turn {
        match self {
            Self::Pods(pods) => {
                let Found { stated, priority, created, .. } = &pods.found;
                Turn::new(*priority, pods.created.or(*created), stated.key.clone())
            }
            Self::Request(request) => Turn::new(0, request.created, request.key.clone()),
        }
    }

    /// Namespace, name and source.
    pub(super) fn name(&self) -> (String, String, &'static str) {
        match self {
            Self::Pods(pods) => {
                let Recognised { key, source, .. } = &*pods.found.stated;
                (key.namespace.to_string(), source.identity.to_string(), source.convention)
            }
            Self::Request(request) => {
                let key = &request.key;
                (key.namespace.to_string(), key.name.to_string(), "provisioning-request")
            }
        }
    }

    /// Name of the object that stands for it.
    pub(super) fn object(&self) -> String {
        match self {
            Self::Pods(pods) => pods.found.stated.key.name.to_string(),
            Self::Request(request) => request.key.name.to_string(),
        }
    }

    /// Whether the dump has that object.
    pub(super) fn exists(&self) -> bool {
        match self {
            Self::Pods(pods) => pods.exists,
            Self::Request(_) => true,
        }
    }

    /// Names of its live pods.
    pub(super) fn pods(&self) -> Vec<String> {
        let live = self.found().into_iter().flat_map(|found| found.members.values());
        live.filter(|known| known.exists).map(|known| known.core.key.name.to_string()).collect()
    }

    /// The gang, if it is one of pods.
    pub(super) fn found(&self) -> Option<&Found> {
        match self {
            Self::Pods(pods) => Some(&pods.found),
            Self::Request(_) => None,
        }
    }

    /// A member.
    pub(super) fn member(&self, uid: Option<&PodUid>) -> Option<&Known> {
        self.found()?.members.get(uid?)
    }
}

/// Why there is nothing to plan.
pub(super) fn refused(error: RequestError) -> Why {
    match error {
        RequestError::Invalid(invalid) => Why::Invalid(invalid),
        RequestError::Collecting { seen, needed, size } => Why::Collecting { seen, needed, size, kept: false },
        RequestError::SizeUnknown { seen } => Why::SizeUnknown { seen, kept: false },
        RequestError::ForeignGate { pod, gate } => Why::ForeignGate { pod, gate, kept: false },
        RequestError::Volumes { pod, awaits } => Why::Volumes { pod, awaits, kept: false },
    }
}

/// The placement group a gang asks for.
pub(super) fn placement_group(topology_requests: &RawTopologyRequests) -> Option<Arc<str>> {
    topology_requests.placement_group.as_ref().map(|topology_request| Arc::clone(&topology_request.value))
}

/// What a ProvisioningRequest says, as if its pods had reported it.
pub(super) fn recognised(
    key: &ObjectKey,
    topology_requests: &RawTopologyRequests,
    invalid: Option<Invalid>,
) -> Recognised {
    Recognised {
        key: key.clone(),
        source: Source { convention: "provisioning-request", identity: Arc::clone(&key.name), owner: None },
        size: Some(0),
        min: None,
        roles: Vec::new(),
        topology_requests: topology_requests.clone(),
        invalid,
        booking: None,
        restart_would_fail: None,
        conflict: None,
    }
}

/// The durable state a gang would have.
pub(super) fn pseudo(stated: &Recognised, started: bool) -> Gang {
    Gang {
        key: stated.key.clone(),
        uid: "".into(),
        resource_version: "".into(),
        phase: Some(if started { Phase::Bound } else { Phase::Collecting }),
        epoch: 0,
        round: 0,
        since: None,
        minimum: 0,
        minimums: BTreeMap::new(),
        running: None,
        notes: BTreeMap::new(),
        places: Vec::new(),
        shape: None,
        levels: Vec::new(),
        held: None,
        batch: None,
        waiting: None,
        members: "".into(),
        created: None,
        deleting: false,
    }
}
