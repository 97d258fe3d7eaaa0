//! Volumes that drivers attach to one node: each once, however many pods use its claim there, as `NodeVolumeLimits` counts.

use std::collections::BTreeMap;

use crate::model::gang::Pod;
use crate::model::names::ObjectKey;
use crate::model::resources::Resources;

/// The claims of one node with how many pods use each there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached(BTreeMap<ObjectKey, u32>);

impl Attached {
    /// A pod comes that holds so much, which is in the sum already: volumes that are there are taken off it, and those that it does
    /// not hold are added.
    pub fn come(&mut self, pod: &Pod, held: &Resources, sum: &mut Resources) {
        for (claim, resource, is_held) in volumes(pod, held) {
            let users = self.0.entry(claim).or_default();
            *users += 1;
            match (is_held, *users) {
                (true, 2..) => change(sum, resource, -1),
                (false, 1) => change(sum, resource, 1),
                (true | false, _) => {}
            }
        }
    }

    /// A pod goes that held so much, which is off the sum already.
    pub fn go(&mut self, pod: &Pod, held: &Resources, sum: &mut Resources) {
        for (claim, resource, is_held) in volumes(pod, held) {
            let Some(users) = self.0.get_mut(&claim) else { continue };
            *users = users.saturating_sub(1);
            match (is_held, *users) {
                (true, 1..) => change(sum, resource, 1),
                (false, 0) => change(sum, resource, -1),
                (true | false, _) => {}
            }
            if *users == 0 {
                self.0.remove(&claim);
            }
        }
    }

    /// The claims whose volumes are attached.
    pub fn claims(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.keys()
    }
}

/// The volumes of a pod, each with its resource, and whether what the pod holds has one for it. Of members of a gang that share a
/// claim none does.
fn volumes<'a>(pod: &'a Pod, held: &'a Resources) -> impl Iterator<Item = (ObjectKey, &'a str, bool)> {
    pod.attachments().map(move |one| {
        let resource = one.resource.as_str();
        let alike = pod.attachments().filter(|other| other.requested && other.resource == one.resource).count();
        let is_held = one.requested && usize::try_from(held.get(resource)).is_ok_and(|held| held >= alike);
        (one.claim, resource, is_held)
    })
}

fn change(sum: &mut Resources, resource: &str, by: i64) {
    let changed = sum.get(resource).saturating_add(by);
    sum.set(resource, changed);
}
