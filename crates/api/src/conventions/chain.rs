//! A pod and its controller chain, nearest owner first.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use muster_core::model::gang::{Owner, RawTopologyRequest};

use super::MissingOwner;
use super::objects::{Kind, Object, Objects, Ref};

/// Longest chain of owners that is followed: anybody may write owner references, in a circle too.
const MAX_OWNERS: usize = 8;

/// A pod and its owners as far as Muster reads them.
pub(super) struct Chain<'a> {
    /// The pod.
    pub(super) pod: &'a Pod,
    /// Owners of kinds that Muster reads, nearest first; one of another kind ends the chain.
    pub(super) owners: Vec<&'a Object>,
    /// The outermost owner, also of a kind Muster does not read.
    pub(super) root: Option<Owner>,
    objects: &'a dyn Objects,
    reads: RefCell<BTreeSet<Ref>>,
    missing: RefCell<Option<MissingOwner>>,
}

impl std::fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").field("owners", &self.owners).field("root", &self.root).finish_non_exhaustive()
    }
}

impl<'a> Chain<'a> {
    /// Follows the controllers of a pod.
    ///
    /// Errors: an owner of a kind Muster reads that is not known, with what was read so far.
    pub(super) fn resolve(pod: &'a Pod, objects: &'a dyn Objects) -> Result<Self, Box<(MissingOwner, BTreeSet<Ref>)>> {
        let mut chain = Self {
            pod,
            owners: Vec::new(),
            root: None,
            objects,
            reads: RefCell::default(),
            missing: RefCell::default(),
        };
        let mut controller = controller_of(&pod.metadata);
        while let Some(reference) = controller {
            chain.root = Some(owner(reference));
            let kind = Kind::of(&reference.api_version, &reference.kind);
            if kind.is_none() || chain.owners.len() == MAX_OWNERS {
                break;
            }
            chain.reads.borrow_mut().insert(Ref::Uid(reference.uid.clone()));
            // Owners live in the namespace of what they own; a UID of another namespace is a claim that anybody can write.
            let of_namespace = |object: &&Object| {
                Some(object.kind) == kind && namespace_of(&object.metadata) == namespace_of(&pod.metadata)
            };
            let Some(object) = objects.by_uid(&reference.uid).filter(of_namespace) else {
                let missing = MissingOwner {
                    namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                    api_version: reference.api_version.clone(),
                    kind: reference.kind.clone(),
                    name: reference.name.clone(),
                    uid: reference.uid.clone(),
                };
                return Err(Box::new((missing, chain.reads.into_inner())));
            };
            chain.owners.push(object);
            controller = controller_of(&object.metadata);
        }
        Ok(chain)
    }

    /// An object in the pod's namespace that the pod names.
    #[must_use]
    pub(super) fn named(&self, kind: Kind, name: &str) -> Option<&'a Object> {
        let namespace = self.namespace();
        self.reads.borrow_mut().insert(Ref::Named(kind, namespace.to_owned(), name.to_owned()));
        self.objects.by_name(kind, namespace, name)
    }

    /// An object that must be known before anything is settled.
    pub(super) fn needed(&self, kind: Kind, name: &str) -> Option<&'a Object> {
        let found = self.named(kind, name);
        if found.is_none() {
            let served = kind.served();
            let version = served.versions.first().copied().unwrap_or_default();
            self.missing.borrow_mut().get_or_insert(MissingOwner {
                namespace: self.namespace().to_owned(),
                api_version: format!("{}/{version}", served.group),
                kind: served.kind.to_owned(),
                name: name.to_owned(),
                uid: String::new(),
            });
        }
        found
    }

    /// The first object that was needed and is not known.
    pub(super) fn missing(&self) -> Option<MissingOwner> {
        self.missing.borrow().clone()
    }

    /// Everything that was looked at.
    pub(super) fn into_reads(self) -> BTreeSet<Ref> {
        self.reads.into_inner()
    }

    /// The pod's namespace.
    #[must_use]
    pub(super) fn namespace(&self) -> &'a str {
        namespace_of(&self.pod.metadata)
    }

    /// A label of the pod.
    #[must_use]
    pub(super) fn label(&self, key: &str) -> Option<&'a str> {
        self.pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// An annotation of the pod.
    #[must_use]
    pub(super) fn own_annotation(&self, key: &str) -> Option<&'a str> {
        self.pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// A label of the pod, or an annotation with the same key.
    #[must_use]
    pub(super) fn either(&self, key: &str) -> Option<&'a str> {
        self.label(key).or_else(|| self.own_annotation(key))
    }

    /// An annotation of ours: read on the pod first, then on its owners, nearest first.
    #[must_use]
    pub(super) fn annotation(&self, key: &'static str) -> Option<RawTopologyRequest> {
        let of_owners = || self.owners.iter().find_map(|object| object.annotation(key));
        let value = self.own_annotation(key).or_else(of_owners)?;
        Some(RawTopologyRequest { value: Arc::from(value), key })
    }

    /// The nearest owner of a kind.
    #[must_use]
    pub(super) fn owner(&self, kind: Kind) -> Option<&'a Object> {
        self.owners.iter().copied().find(|object| object.kind == kind)
    }
}

fn namespace_of(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or("default")
}

fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

fn owner(reference: &OwnerReference) -> Owner {
    Owner {
        api_version: Arc::from(reference.api_version.as_str()),
        kind: Arc::from(reference.kind.as_str()),
        name: Arc::from(reference.name.as_str()),
        uid: Arc::from(reference.uid.as_str()),
    }
}
