//! Where pods that counters concern go: cell by cell, into what is free of a node as it is, else where the price rises least.
//!
//! What is free is indexed per cell, so that a pod looks at the nodes that have enough and not at all of them.

use rustc_hash::FxHashMap;

use super::state::{Fitted, State};

/// Nodes of a cell of which it is asked how their price would rise: so many that were opened last, and so many of the first
/// that do not refuse the class for good.
const LAST: usize = 8;
const EARLY: usize = 24;
/// Nodes that are looked at to find the early ones.
const LOOKED_AT: usize = 64;

/// Nodes that are asked whether they take a pod of another node, per cell.
const TAKERS: usize = 12;

/// A tree over the nodes of a cell with the most that is free below each of its nodes, resource by resource.
#[derive(Debug, Default)]
struct Free {
    resources: usize,
    /// Leaves; a power of two.
    size: usize,
    tree: Vec<i64>,
    /// The slot of each leaf that is in use.
    slots: Vec<usize>,
}

impl Free {
    fn push(&mut self, slot: usize) -> usize {
        let at = self.slots.len();
        self.slots.push(slot);
        if at >= self.size {
            let known: Vec<Vec<i64>> = (0..at).map(|leaf| self.of(self.size + leaf).to_vec()).collect();
            self.size = (self.size * 2).max(64);
            self.tree = vec![-1; 2 * self.size * self.resources];
            known.iter().enumerate().for_each(|(leaf, free)| self.set(leaf, free));
        }
        at
    }

    fn of(&self, node: usize) -> &[i64] {
        &self.tree[node * self.resources..(node + 1) * self.resources]
    }

    fn set(&mut self, leaf: usize, free: &[i64]) {
        let mut node = self.size + leaf;
        self.tree[node * self.resources..(node + 1) * self.resources].copy_from_slice(free);
        while node > 1 {
            node /= 2;
            for resource in 0..self.resources {
                let (left, right) = (2 * node * self.resources + resource, (2 * node + 1) * self.resources + resource);
                self.tree[node * self.resources + resource] = self.tree[left].max(self.tree[right]);
            }
        }
    }

    /// The first leaf from `from` on that has as much.
    fn first(&self, from: usize, need: &[i64]) -> Option<usize> {
        if from >= self.slots.len() {
            return None;
        }
        let enough = |node: usize| self.of(node).iter().zip(need).all(|(free, need)| need <= free || *need <= 0);
        let mut node = self.size + from;
        loop {
            if enough(node) {
                // Down to the first leaf below; where both halves together seemed to have it and neither has it, on.
                while node < self.size && enough(2 * node) | enough(2 * node + 1) {
                    node = if enough(2 * node) { 2 * node } else { 2 * node + 1 };
                }
                if node >= self.size {
                    let leaf = node - self.size;
                    return (leaf < self.slots.len()).then_some(leaf);
                }
            }
            // The next one to the right that starts after everything looked at.
            while node % 2 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
    }
}

/// The index of all new nodes.
#[derive(Debug)]
pub(super) struct Field {
    cells: Vec<Free>,
    /// Slot → cell and leaf.
    leaves: FxHashMap<usize, (usize, usize)>,
    /// Class and cell → leaves before this one refuse the class whatever becomes of them.
    refused: FxHashMap<(usize, usize), usize>,
}

impl Field {
    /// Of all new nodes there are.
    pub(super) fn new(state: &State<'_, '_>) -> Self {
        let resources = state.compiled.resources.len();
        let free = || Free { resources, ..Free::default() };
        let mut field = Self {
            cells: (0..state.topology.cells.len().max(1)).map(|_| free()).collect(),
            leaves: FxHashMap::default(),
            refused: FxHashMap::default(),
        };
        for at in state.compiled.problem.nodes.len()..state.slots.len() {
            field.update(state, at);
        }
        field
    }

    /// Takes note of what a node has become.
    pub(super) fn update(&mut self, state: &State<'_, '_>, at: usize) {
        let slot = &state.slots[at];
        let cell = state.topology.cell_of.get(slot.offer).copied().unwrap_or(0);
        let nothing = vec![-1; state.compiled.resources.len()];
        if let Some((known, leaf)) = self.leaves.get(&at).copied()
            && known != cell
        {
            self.cells[known].set(leaf, &nothing);
            self.leaves.remove(&at);
        }
        let (_, leaf) = match self.leaves.get(&at).copied() {
            Some(known) => known,
            None => {
                let leaf = self.cells[cell].push(at);
                self.leaves.insert(at, (cell, leaf));
                (cell, leaf)
            }
        };
        let free: Vec<i64> = if slot.counts.is_empty() {
            nothing
        } else {
            state.compiled.avail[slot.offer].iter().zip(&slot.load).map(|(avail, load)| avail - load).collect()
        };
        self.cells[cell].set(leaf, &free);
    }

    /// Puts a pod of a class that counters concern on a new node, open or not; `false` if none takes it.
    pub(super) fn seat(&mut self, state: &mut State<'_, '_>, class: usize) -> Option<usize> {
        let cells = state.cells_for(class);
        let found = cells.iter().find_map(|cell| self.unfilled(state, class, *cell));
        let found = found.or_else(|| {
            let mut best: Option<Fitted> = None;
            for cell in &cells {
                let opened = state.opened_in(class, *cell);
                let grown = self.growing(state, class, *cell).min_by_key(|one| one.rise);
                for one in [grown, opened].into_iter().flatten() {
                    if best.as_ref().is_none_or(|best| one.rise < best.rise) {
                        best = Some(one);
                    }
                }
            }
            best
        })?;
        let at = state.put(class, found);
        self.update(state, at);
        Some(at)
    }

    /// A new node of the cells that takes one more pod as it is, other than `except`; of some of them the one that it leaves
    /// the least to spare.
    pub(super) fn taker(
        &self,
        state: &mut State<'_, '_>,
        class: usize,
        cells: &[usize],
        except: usize,
    ) -> Option<Fitted> {
        let weight = |state: &State<'_, '_>, at: usize| {
            state.compiled.problem.pools[state.compiled.offer(state.slots[at].offer).pool].weight
        };
        let mut best: Option<(i128, Fitted)> = None;
        for cell in cells {
            let free = &self.cells[*cell];
            let (mut from, mut tries) = (0, 0);
            while let Some(leaf) = free.first(from, &state.compiled.requests[class]).filter(|_| tries < TAKERS) {
                (from, tries) = (leaf + 1, tries + 1);
                let at = free.slots[leaf];
                if at == except || weight(state, at) != weight(state, except) {
                    continue;
                }
                let now = state.slots[except].offer;
                let stays = |fitted: &Fitted| state.topology.is_alike(class, now, fitted.offer);
                let fitted = state.grows(at, class).filter(|fitted| fitted.rise == 0);
                let Some(fitted) = fitted.filter(stays) else { continue };
                let spare = free.of(free.size + leaf).iter().zip(&state.compiled.avail[state.slots[at].offer]);
                let spare: i128 =
                    spare.map(|(free, avail)| i128::from(*free) * 1_000_000 / i128::from(*avail.max(&1))).sum();
                if best.as_ref().is_none_or(|(known, _)| spare < *known) {
                    best = Some((spare, fitted));
                }
            }
        }
        best.map(|(_, fitted)| fitted)
    }

    /// How some nodes of the cell would take the pod.
    fn growing(&self, state: &mut State<'_, '_>, class: usize, cell: usize) -> impl Iterator<Item = Fitted> + use<> {
        let slots = &self.cells[cell].slots;
        let start = self.refused.get(&(class, cell)).copied().unwrap_or(0).min(slots.len());
        let early = slots[start..].iter().take(LOOKED_AT);
        let early = early.filter(|at| state.compiled.together(class, &state.slots[**at].counts, None)).take(EARLY);
        let mut found: Vec<usize> = early.chain(slots.iter().rev().take(LAST)).copied().collect();
        found.dedup();
        let found: Vec<Fitted> = found.into_iter().filter_map(|at| state.grows(at, class)).collect();
        found.into_iter()
    }

    /// The first node of the cell that takes the pod as it is.
    fn unfilled(&mut self, state: &mut State<'_, '_>, class: usize, cell: usize) -> Option<Fitted> {
        let start = self.refused.get(&(class, cell)).copied().unwrap_or(0);
        let (mut from, mut prefix) = (start, start);
        let free = &self.cells[cell];
        // What keeps pods off each other's nodes never goes away.
        while let Some(slot) = free.slots.get(prefix)
            && !state.compiled.together(class, &state.slots[*slot].counts, None)
        {
            prefix += 1;
        }
        from = from.max(prefix);
        let mut found = None;
        while let Some(leaf) = free.first(from, &state.compiled.requests[class]) {
            if let Some(fitted) = state.grows(free.slots[leaf], class).filter(|fitted| fitted.rise == 0) {
                found = Some(fitted);
                break;
            }
            from = leaf + 1;
        }
        self.refused.insert((class, cell), prefix);
        found
    }
}
