//! What every domain holds: free slots, bound members, whether its accelerators are untouched. Rolled up once per call.

use crate::fit::Misfit;
use crate::plan::Host;
use crate::pod::Shape;
use crate::topology::Tree;

/// Roll-ups per domain. Shapes: `[level][domain]`, as [`Tree::level`].
#[derive(Debug)]
pub(super) struct Room {
    /// Members the domain can still take.
    pub(super) slots: Vec<Vec<u64>>,
    /// Members bound inside it.
    pub(super) bound: Vec<Vec<u32>>,
    /// No accelerator that the gang's shape requests is in use in it; always true for a shape that requests none.
    pub(super) whole: Vec<Vec<bool>>,
}

impl Room {
    /// Rolls up the roles' one shape. Shapes: `slots` and `bound` have one entry per host, in the order of `hosts`.
    pub(super) fn new(
        tree: &Tree,
        hosts: &[Host],
        shape: &Shape,
        slots: &[Result<u32, Misfit>],
        bound: &[u32],
    ) -> Self {
        let accelerators: Vec<&str> = accelerators(shape).collect();
        let depth = tree.depth();
        let mut room =
            Self { slots: vec![Vec::new(); depth], bound: vec![Vec::new(); depth], whole: vec![Vec::new(); depth] };
        let last = depth.saturating_sub(1);
        for &host in tree.hosts() {
            let used = &hosts[host].usage.requested;
            room.slots[last].push(slots[host].as_ref().map_or(0, |slots| u64::from(*slots)));
            room.bound[last].push(bound[host]);
            room.whole[last].push(accelerators.iter().all(|name| used.get(name) <= 0));
        }
        for level in (0..last).rev() {
            for domain in tree.level(level) {
                let children = domain.children.clone();
                let slots = room.slots[level + 1][children.clone()].iter().sum();
                let bound = room.bound[level + 1][children.clone()].iter().sum();
                let whole = room.whole[level + 1][children].iter().all(|whole| *whole);
                room.slots[level].push(slots);
                room.bound[level].push(bound);
                room.whole[level].push(whole);
            }
        }
        room
    }

    /// Members that all hosts together can still take.
    pub(super) fn total(&self) -> u64 {
        self.slots.first().map_or(0, |slots| slots.iter().sum())
    }
}

/// The extended resources a shape requests, by Kubernetes' rule: a qualified name outside `kubernetes.io`.
fn accelerators(shape: &Shape) -> impl Iterator<Item = &str> {
    let names = shape.requests.iter().filter(|(_, amount)| *amount > 0).map(|(name, _)| name.as_str());
    names.filter(|name| name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests."))
}
