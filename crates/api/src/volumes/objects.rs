//! What is kept of claims, volumes, classes and CSINodes: the fields that kube-scheduler decides by.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use muster_core::model::names::ObjectKey;
use muster_core::model::pod::{Operator, Requirement, SelectorTerm};
use muster_core::model::units::Quantity;

use crate::convert::selectors;
use crate::keys::HOSTNAME;

/// Where a class stood before there was a field for it.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// A claim and its volume are bound to each other. A claim that only names a volume may never be.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The node for which a claim is being provisioned.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes nobody makes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// EBS as it was called before CSI, and the driver that stands in for it.
const OLD_EBS: &str = "kubernetes.io/aws-ebs";
const EBS: &str = "ebs.csi.aws.com";
/// Labels of a volume that its node must share, if the node has any of them: new name, old name.
const ZONES: [(&str, &str); 2] = [
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
];

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    pub(super) uid: String,
    /// UIDs of the owners.
    pub(super) owners: Vec<String>,
    /// The class; empty without any.
    pub(super) class: String,
    /// The volume that it is bound to, or names itself.
    pub(super) volume: Option<String>,
    /// It is bound to that volume, and not only names it.
    pub(super) bound: bool,
    /// The node for which it is being provisioned.
    pub(super) selected_node: Option<String>,
    pub(super) deleting: bool,
    /// Its volume is gone.
    pub(super) lost: bool,
    modes: Vec<String>,
    size: Quantity,
    selector: Option<LabelSelector>,
    block: bool,
    attributes: String,
}

impl Claim {
    pub(super) fn read(claim: &k8s::PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let annotation = |key: &str| claim.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let requests = spec.resources.and_then(|resources| resources.requests);
        Self {
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            owners: claim.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
            class: annotation(OLD_CLASS).or(spec.storage_class_name).unwrap_or_default(),
            volume: spec.volume_name.filter(|name| !name.is_empty()),
            bound: annotation(BIND_COMPLETED).is_some(),
            selected_node: annotation(SELECTED_NODE),
            deleting: claim.metadata.deletion_timestamp.is_some(),
            lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
            modes: spec.access_modes.unwrap_or_default(),
            size: storage(requests.as_ref()),
            selector: spec.selector,
            block: spec.volume_mode.as_deref() == Some("Block"),
            attributes: spec.volume_attributes_class_name.unwrap_or_default(),
        }
    }

    /// Whether pods of several nodes may use it at a time.
    pub(super) fn is_shared(&self) -> bool {
        self.modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
    }

    /// Whether one pod alone may use it at a time.
    pub(super) fn is_of_one_pod(&self) -> bool {
        self.modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }

    /// Whether an unclaimed volume of its class would do for it. Source: `FindMatchingVolume` of
    /// `k8s.io/component-helpers` v0.37.
    pub(super) fn takes(&self, volume: &Volume) -> bool {
        let selected = self.selector.as_ref().is_none_or(|selector| selectors::selects(Some(selector), &volume.labels));
        volume.is_free() && self.suits(volume) && selected && self.modes.iter().all(|mode| volume.modes.contains(mode))
    }

    /// Whether a volume that names it would be bound to it, whatever its UID. Source: the same; neither selector nor access modes
    /// are asked of such a volume.
    pub(super) fn suits(&self, volume: &Volume) -> bool {
        volume.available
            && volume.class == self.class
            && volume.size >= self.size
            && volume.block == self.block
            && volume.attributes == self.attributes
    }
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// The class; empty without any.
    pub(super) class: String,
    /// The claim that it is for, and the claim's UID, empty where any of that name will do.
    pub(super) claim: Option<(ObjectKey, String)>,
    /// Where it can be reached: all must hold, the terms of each are ORed.
    pub(super) reach: Vec<Vec<SelectorTerm>>,
    /// The CSI driver that attaches it.
    pub(super) driver: Option<String>,
    labels: BTreeMap<String, String>,
    available: bool,
    modes: Vec<String>,
    pub(super) size: Quantity,
    block: bool,
    attributes: String,
}

impl Volume {
    pub(super) fn read(volume: &k8s::PersistentVolume) -> Self {
        let metadata = &volume.metadata;
        let spec = volume.spec.clone().unwrap_or_default();
        let annotations = metadata.annotations.as_ref();
        let labels = metadata.labels.clone().unwrap_or_default();
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let mut reach: Vec<Vec<SelectorTerm>> = required.map(selectors::terms).into_iter().collect();
        reach.extend(zone_terms(&labels));
        let old_ebs = spec.aws_elastic_block_store.is_some().then(|| EBS.to_owned());
        Self {
            class: annotations
                .and_then(|all| all.get(OLD_CLASS).cloned())
                .or(spec.storage_class_name)
                .unwrap_or_default(),
            claim: spec.claim_ref.map(|claim| {
                let key = ObjectKey::new(claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
                (key, claim.uid.unwrap_or_default())
            }),
            reach,
            driver: spec.csi.map(|csi| csi.driver).or(old_ebs),
            labels,
            available: phase == Some("Available") && metadata.deletion_timestamp.is_none(),
            modes: spec.access_modes.unwrap_or_default(),
            size: storage(spec.capacity.as_ref()),
            block: spec.volume_mode.as_deref() == Some("Block"),
            attributes: spec.volume_attributes_class_name.unwrap_or_default(),
        }
    }

    /// Whether a claim may take it.
    pub(super) fn is_free(&self) -> bool {
        self.available && self.claim.is_none()
    }

    /// The hostnames of the nodes that reach it; none unless every way to it names some.
    pub(super) fn hostnames(&self) -> impl Iterator<Item = &str> {
        let named = |requirement: &&Requirement| &*requirement.key == HOSTNAME && requirement.operator == Operator::In;
        let terms = self
            .reach
            .first()
            .filter(|terms| terms.iter().all(|term| term.expressions.iter().any(|requirement| named(&requirement))));
        let requirements = terms.into_iter().flatten().flat_map(|term| &term.expressions).filter(named);
        requirements.flat_map(|requirement| requirement.values.iter().map(|value| &**value))
    }
}

/// `VolumeZone`: a node that carries any label of zone or region must have the volume's.
fn zone_terms(labels: &BTreeMap<String, String>) -> impl Iterator<Item = Vec<SelectorTerm>> {
    let is = |key: &str, operator, values| Requirement { key: key.into(), operator, values };
    let keys = ZONES.iter().flat_map(|(new, old)| [(*new, *new), (*old, *new)]);
    keys.filter_map(move |(key, new)| {
        let values: Vec<_> = labels.get(key)?.split("__").map(|value| value.trim().into()).collect();
        let term = |expressions| SelectorTerm { expressions, fields: Vec::new() };
        let mut terms = vec![term(vec![is(key, Operator::In, values.clone())])];
        if key != new {
            terms.push(term(vec![is(key, Operator::DoesNotExist, Vec::new()), is(new, Operator::In, values)]));
        }
        let none = ZONES.iter().flat_map(|(new, old)| [*new, *old]);
        terms.push(term(none.map(|key| is(key, Operator::DoesNotExist, Vec::new())).collect()));
        Some(terms)
    })
}

/// A StorageClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// Volumes are chosen or made once a pod has a node.
    pub(super) waits: bool,
    /// The driver that makes volumes; `None`: nobody does.
    pub(super) provisioner: Option<String>,
    /// Where volumes may be made; `None`: anywhere.
    pub(super) allowed: Option<Vec<SelectorTerm>>,
}

impl Class {
    pub(super) fn read(class: &StorageClass) -> Self {
        let provisioner = if class.provisioner == OLD_EBS { EBS } else { &class.provisioner };
        let provisioner = Some(provisioner).filter(|name| !name.is_empty() && *name != NO_PROVISIONER);
        let terms = class.allowed_topologies.iter().flatten().filter_map(|term| {
            let expressions = term.match_label_expressions.iter().flatten().map(|requirement| Requirement {
                key: requirement.key.as_str().into(),
                operator: Operator::In,
                values: requirement.values.iter().map(|value| value.as_str().into()).collect(),
            });
            let expressions: Vec<Requirement> = expressions.collect();
            // A term without requirements allows nothing.
            (!expressions.is_empty()).then_some(SelectorTerm { expressions, fields: Vec::new() })
        });
        let limited = class.allowed_topologies.as_ref().is_some_and(|terms| !terms.is_empty());
        Self {
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            provisioner: provisioner.map(str::to_owned),
            allowed: limited.then(|| terms.collect()),
        }
    }
}

/// How many volumes a node takes, by driver; drivers without a limit are excluded.
pub(super) fn limits(node: &CSINode) -> impl Iterator<Item = (String, i64)> {
    node.spec.drivers.iter().filter_map(|driver| {
        let most = driver.allocatable.as_ref()?.count?;
        Some((driver.name.clone(), i64::from(most)))
    })
}

fn storage(list: Option<&BTreeMap<String, Text>>) -> Quantity {
    list.and_then(|list| list.get("storage")?.0.parse().ok()).unwrap_or(Quantity::ZERO)
}
