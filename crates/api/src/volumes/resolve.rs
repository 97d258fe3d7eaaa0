//! What the claims of one pod come to.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use muster_core::model::gang::{Claims, Taken, Unclaimed};
use muster_core::model::names::ObjectKey;
use muster_core::model::pod::{Operator, Requirement, SelectorTerm};
use muster_core::model::resources::{ATTACHABLE_VOLUMES, LOCAL_VOLUMES, Resources};

use super::objects::{Claim, Volume};
use super::{Volumes, key};

/// Most volumes of a claim that are kept one by one.
const DISTINCT: usize = 256;

/// The claims that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    pod: String,
    claims: Vec<(ObjectKey, Kind)>,
}

/// Where a claim comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The pod names it.
    Named,
    /// It is made for the pod and goes with it.
    Ephemeral,
}

impl Used {
    /// Reads the volumes of a pod; `None` if it uses no claim.
    #[must_use]
    pub fn read(pod: &k8s::Pod) -> Option<Self> {
        let own = key(&pod.metadata);
        let volumes = pod.spec.as_ref()?.volumes.iter().flatten();
        let claims = volumes.filter_map(|volume| {
            let (name, kind) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(claim), _) => (claim.claim_name.clone(), Kind::Named),
                // Source: `ephemeral.VolumeClaimName` of `k8s.io/component-helpers`.
                (None, Some(_)) => (format!("{}-{}", own.name, volume.name), Kind::Ephemeral),
                (None, None) => return None,
            };
            Some((ObjectKey::new(&*own.namespace, name), kind))
        });
        let mut claims: Vec<(ObjectKey, Kind)> = claims.collect();
        let mut seen = BTreeSet::new();
        claims.retain(|(claim, _)| seen.insert(claim.clone()));
        (!claims.is_empty()).then(|| Self { pod: pod.metadata.uid.clone().unwrap_or_default(), claims })
    }

    /// Of a pod that is still to be made, the claims that do not come with it.
    #[must_use]
    pub fn before_pod(pod: &k8s::Pod) -> Option<Self> {
        let mut used = Self::read(pod)?;
        used.claims.retain(|(_, kind)| *kind == Kind::Named);
        (!used.claims.is_empty()).then_some(used)
    }

    /// The claims.
    pub fn claims(&self) -> impl Iterator<Item = &ObjectKey> {
        self.claims.iter().map(|(claim, _)| claim)
    }
}

/// What the claims of one pod come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Where the volumes can be reached: all must hold, the terms of each are ORed.
    pub reach: Vec<Vec<SelectorTerm>>,
    /// Volumes that the pod takes of its node, as resources.
    pub requests: Resources,
    /// Those of them that it holds there once it is bound.
    pub attached: Resources,
    /// What no shape can say.
    pub claims: Claims,
    /// What is not modelled.
    pub unsupported: Vec<Arc<str>>,
}

impl Volumes {
    /// What the claims of a pod come to.
    #[must_use]
    pub fn needs(&self, used: &Used) -> Needs {
        let mut needs = Needs::default();
        for (claim, kind) in &used.claims {
            if let Err(awaits) = self.add(used, claim, *kind, &mut needs) {
                let Claims { awaits: first, .. } = &mut needs.claims;
                first.get_or_insert_with(|| Arc::from(awaits));
            }
        }
        needs.reach.sort();
        needs.reach.dedup();
        needs
    }

    /// Adds one claim.
    ///
    /// Errors: what kube-scheduler waits for.
    fn add(&self, used: &Used, key: &ObjectKey, kind: Kind, needs: &mut Needs) -> Result<(), String> {
        let name = &key.name;
        let Some(claim) = self.claims.get(key) else {
            return Err(match kind {
                Kind::Named => format!("PersistentVolumeClaim {name} does not exist"),
                Kind::Ephemeral => format!("PersistentVolumeClaim {name} of its ephemeral volume is still to be made"),
            });
        };
        match kind {
            Kind::Ephemeral if !claim.owners.contains(&used.pod) => {
                return Err(format!("PersistentVolumeClaim {name} of its ephemeral volume belongs to somebody else"));
            }
            Kind::Ephemeral | Kind::Named => {}
        }
        if claim.deleting {
            return Err(format!("PersistentVolumeClaim {name} is being deleted"));
        }
        if claim.lost {
            return Err(format!("PersistentVolumeClaim {name} has lost its volume"));
        }
        if claim.is_of_one_pod() {
            needs.claims.one_pod.push(Arc::clone(name));
        } else if !claim.is_shared() {
            needs.claims.one_node.push(Arc::clone(name));
        }
        let bound = match &claim.volume {
            // kube-scheduler lets no pod with it anywhere, whatever its class: a controller binds it, or nobody does, as where
            // the volume is another claim's.
            Some(volume) if !claim.bound => {
                return Err(format!(
                    "PersistentVolumeClaim {name} is not bound yet to PersistentVolume {volume}, which it names"
                ));
            }
            Some(volume) => Some(self.volumes.get(volume).ok_or_else(|| {
                format!("PersistentVolumeClaim {name} is bound to PersistentVolume {volume}, which does not exist")
            })?),
            None => self.volume_for(key, claim),
        };
        let driver = match bound {
            Some(volume) => {
                needs.reach.extend(volume.reach.iter().cloned());
                volume.driver.as_ref()
            }
            None => self.unbound(key, claim, needs)?,
        };
        let Some(driver) = driver else { return Ok(()) };
        let resource = format!("{ATTACHABLE_VOLUMES}{driver}");
        if claim.is_of_one_pod() || !claim.is_shared() {
            for resources in [&mut needs.requests, &mut needs.attached] {
                resources.set(resource.as_str(), resources.get(&resource).saturating_add(1));
            }
            if !claim.is_of_one_pod() {
                needs.claims.attached.insert(Arc::clone(name), resource.as_str().into());
            }
        } else {
            // Most pods of a node share it, and each would ask for one.
            needs.claims.shared.insert(Arc::clone(name), resource.as_str().into());
        }
        Ok(())
    }

    /// The volume that names a claim which names none, if kube-scheduler takes it for the claim's.
    fn volume_for(&self, key: &ObjectKey, claim: &Claim) -> Option<&Volume> {
        let waits = self.classes.get(&claim.class).is_some_and(|class| class.waits);
        let mut named = self.named.get(key).into_iter().flatten().filter_map(|volume| self.volumes.get(volume));
        named.find(|volume| match &volume.claim {
            Some((_, uid)) if uid.is_empty() => waits && claim.suits(volume),
            // kube-scheduler writes the volume first; the claim follows.
            Some((_, uid)) => *uid == claim.uid,
            None => false,
        })
    }

    /// Adds a claim that is not bound, and names the driver that will attach its volume.
    fn unbound(&self, key: &ObjectKey, claim: &Claim, needs: &mut Needs) -> Result<Option<&String>, String> {
        let (name, class_name) = (&key.name, &claim.class);
        let Some(class) = self.classes.get(class_name) else {
            let unbound = format!("PersistentVolumeClaim {name} is not bound yet");
            return Err(match &**class_name {
                "" => unbound,
                missing => format!("{unbound}, and its StorageClass {missing} does not exist"),
            });
        };
        if !class.waits {
            return Err(format!("PersistentVolumeClaim {name} is not bound yet"));
        }
        if let Some(node) = &claim.selected_node {
            let field = Requirement {
                key: Arc::from("metadata.name"),
                operator: Operator::In,
                values: vec![Arc::from(node.as_str())],
            };
            needs.reach.push(vec![SelectorTerm { expressions: Vec::new(), fields: vec![field] }]);
            return Ok(class.provisioner.as_ref());
        }
        let of_class = self.free.get(class_name).into_iter().flatten();
        let free: Vec<(&String, &Volume)> = of_class.filter_map(|name| self.volumes.get_key_value(name)).collect();
        let mut taken: Vec<(&String, &Volume)> = free.iter().copied().filter(|(_, one)| claim.takes(one)).collect();
        // The smallest first, as kube-scheduler takes them.
        taken.sort_by_key(|(name, volume)| (volume.size, *name));
        let mut terms: Vec<SelectorTerm> = match (&class.provisioner, &class.allowed) {
            (Some(_), None) => return Ok(class.provisioner.as_ref()),
            (Some(_), Some(allowed)) => allowed.clone(),
            (None, _) if taken.is_empty() => {
                return Err(format!(
                    "no PersistentVolume of StorageClass {class_name} that would do for PersistentVolumeClaim {name} is \
                     available, and nobody makes one"
                ));
            }
            (None, _) => {
                let volumes = u32::try_from(taken.len()).unwrap_or(u32::MAX);
                let (class, claim) = (Arc::from(class_name.as_str()), Arc::clone(name));
                let all_local = taken.iter().all(|(_, volume)| volume.hostnames().next().is_some());
                let counted = all_local && taken.len() == free.len();
                let unclaimed = |(name, volume): &(&String, &Volume)| {
                    let (volume, reach) = (Arc::from(name.as_str()), volume.reach.clone());
                    Unclaimed { volume, reach }
                };
                let one_by_one = !counted && taken.len() <= DISTINCT;
                let among = if one_by_one { taken.iter().map(unclaimed).collect() } else { Vec::new() };
                needs.claims.taken.push(Taken { class, claim, volumes, among });
                if all_local {
                    // So many are on each node: no more members than that go there.
                    let resource = format!("{LOCAL_VOLUMES}{class_name}");
                    needs.requests.set(resource.as_str(), needs.requests.get(&resource).saturating_add(1));
                    if counted {
                        return Ok(None);
                    }
                }
                Vec::new()
            }
        };
        for (_, volume) in &taken {
            match volume.reach.as_slice() {
                // It can be reached from everywhere.
                [] => return Ok(class.provisioner.as_ref()),
                [one] => terms.extend(one.iter().cloned()),
                [first, rest @ ..] => terms.extend(rest.iter().fold(first.clone(), |all, more| both(&all, more))),
            }
        }
        terms.sort();
        terms.dedup();
        needs.reach.push(terms);
        Ok(class.provisioner.as_ref())
    }
}

/// Terms that hold where one of each list does.
fn both(one: &[SelectorTerm], other: &[SelectorTerm]) -> Vec<SelectorTerm> {
    let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
    pairs
        .map(|(one, other)| SelectorTerm {
            expressions: one.expressions.iter().chain(&other.expressions).cloned().collect(),
            fields: one.fields.iter().chain(&other.fields).cloned().collect(),
        })
        .collect()
}
