//! Memory that nodes turn out to have. EC2 advertises what the machine has; firmware, hypervisor and the kernel of the image
//! take some of it, and how much is only seen once a node of the type has registered with the image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use crate::model::batch::BatchStatus;
use crate::model::names::NodeName;
use crate::model::snapshot::NodeEntry;

/// A kind of nodes that all have the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Build<'a> {
    /// Instance type.
    pub instance_type: &'a str,
    /// Image, `ami-…`.
    pub image: &'a str,
}

/// Bytes that the kernels of running nodes have, by instance type and image; the least of each.
#[must_use]
pub fn memory_seen<'a>(
    batches: impl Iterator<Item = &'a BatchStatus>,
    nodes: &OrdMap<NodeName, Arc<NodeEntry>>,
) -> BTreeMap<Build<'a>, i64> {
    let mut seen = BTreeMap::new();
    for status in batches {
        for member in &status.instances {
            let node = member.node.as_deref().and_then(|name| nodes.get(name)).map(|entry| &entry.node);
            let Some(node) = node.filter(|node| node.is_of(&member.id)) else { continue };
            let launched = status.attempts.iter().find(|attempt| attempt.number == member.attempt);
            let Some((attempt, memory)) = launched.zip(node.memory.filter(|memory| *memory > 0)) else { continue };
            let Some(image) = attempt.image.as_deref() else { continue };
            let build = Build { instance_type: &attempt.instance_type, image };
            seen.entry(build).and_modify(|least| *least = memory.min(*least)).or_insert(memory);
        }
    }
    seen
}

/// What is known once `seen` was. Only nodes with an image that new nodes boot teach anything: another image has another kernel. The
/// least counts, so that nodes that come and go change nothing. What was known with an image of before goes once the type is known
/// with one of now: an image that is missing for the moment may come back.
#[must_use]
pub fn memory_known<'a>(
    before: BTreeMap<Build<'a>, i64>,
    seen: &BTreeMap<Build<'a>, i64>,
    images: &BTreeSet<&str>,
) -> BTreeMap<Build<'a>, i64> {
    let mut known = before;
    for (build, memory) in seen.iter().filter(|(build, _)| images.contains(build.image)) {
        known.entry(*build).and_modify(|least| *least = *memory.min(least)).or_insert(*memory);
    }
    let current: BTreeSet<&str> =
        known.keys().filter(|build| images.contains(build.image)).map(|build| build.instance_type).collect();
    known.retain(|build, _| images.contains(build.image) || !current.contains(build.instance_type));
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&'static str, &'static str, i64)]) -> BTreeMap<Build<'static>, i64> {
        all.iter().map(|(instance_type, image, memory)| (Build { instance_type, image }, *memory)).collect()
    }

    #[test]
    fn the_least_of_a_type_with_an_image_stays_known_until_the_type_is_known_with_another_image_of_the_class() {
        let now = BTreeSet::from(["ami-2"]);
        let before = of(&[("a", "ami-1", 10), ("a", "ami-2", 9), ("c", "ami-1", 8)]);
        let known = memory_known(before, &of(&[("b", "ami-2", 7), ("b", "ami-1", 6)]), &now);
        assert_eq!(known, of(&[("a", "ami-2", 9), ("b", "ami-2", 7), ("c", "ami-1", 8)]));
        let more = memory_known(known.clone(), &of(&[("b", "ami-2", 8)]), &now);
        assert_eq!(more, known, "a node with more changes nothing");
        let less = memory_known(known.clone(), &of(&[("b", "ami-2", 6)]), &now);
        assert_eq!(less, of(&[("a", "ami-2", 9), ("b", "ami-2", 6), ("c", "ami-1", 8)]));
        assert_eq!(memory_known(known.clone(), &BTreeMap::new(), &now), known, "the nodes are gone");
        assert_eq!(memory_known(known.clone(), &BTreeMap::new(), &BTreeSet::new()), known, "no image was found");
        let later = memory_known(known, &of(&[("c", "ami-2", 5)]), &now);
        assert_eq!(later, of(&[("a", "ami-2", 9), ("b", "ami-2", 7), ("c", "ami-2", 5)]));
    }
}
