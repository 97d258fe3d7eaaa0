//! Which crash and which fault met which effect in which phase, and how often.

use std::collections::BTreeMap;

use muster_core::batch::{Change, Converge, Look};
use muster_core::model::batch::BatchPhase;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Kinds of what a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    Write,
    CreateGroup,
    DeleteGroup,
    CreateTemplate,
    DeleteTemplates,
    Launch,
    Terminate,
    DeleteFleets,
    Taint,
    Hold,
    Unhold,
    Label,
    DeleteNode,
    Evict,
    BlockPool,
    CountProbe,
    UnblockPool,
    Book,
    Remove,
    Instances,
    Tagged,
    Fleet,
    Group,
    Topology,
    Owner,
    Reservations,
    DaemonSets,
}

impl Effect {
    pub(super) fn of_change(change: &Change) -> Self {
        match change {
            Change::CreateGroup { .. } => Self::CreateGroup,
            Change::DeleteGroup(_) => Self::DeleteGroup,
            Change::CreateTemplate(_) => Self::CreateTemplate,
            Change::DeleteTemplates(_) => Self::DeleteTemplates,
            Change::Launch { .. } => Self::Launch,
            Change::Terminate(_) => Self::Terminate,
            Change::DeleteFinishedFleets => Self::DeleteFleets,
        }
    }

    pub(super) fn of_converge(edit: &Converge) -> Self {
        match edit {
            Converge::Taint { .. } | Converge::Untaint { .. } => Self::Taint,
            Converge::Hold { .. } => Self::Hold,
            Converge::Unhold { .. } => Self::Unhold,
            Converge::Label { .. } => Self::Label,
            Converge::DeleteNode { .. } => Self::DeleteNode,
            Converge::Evict { .. } => Self::Evict,
            Converge::BlockPool { .. } => Self::BlockPool,
            Converge::CountProbe { .. } => Self::CountProbe,
            Converge::UnblockPool(_) => Self::UnblockPool,
            Converge::Book(_) => Self::Book,
            Converge::Remove => Self::Remove,
        }
    }

    pub(super) fn of_look(look: &Look) -> Self {
        match look {
            Look::Instances(_) => Self::Instances,
            Look::Tagged(_) => Self::Tagged,
            Look::Fleet(_) => Self::Fleet,
            Look::Group(_) => Self::Group,
            Look::Topology { .. } | Look::Console(_) => Self::Topology,
            Look::Owner(_) => Self::Owner,
            Look::Reservations(_) => Self::Reservations,
            Look::IntolerantDaemonSets(_) | Look::Occupied(_) => Self::DaemonSets,
        }
    }

    /// What can go wrong with it. A write is conditional, so it alone conflicts; what only reads cannot be carried out
    /// without an answer; and the API server neither throttles nor denies, since that is not distinguished from a refusal.
    fn faults(self) -> &'static [Fault] {
        use Fault::{Conflict, Denied, Lost, None, Refused, Throttled};
        match self {
            Self::Write => &[None, Conflict, Refused, Lost],
            Self::CreateGroup
            | Self::DeleteGroup
            | Self::CreateTemplate
            | Self::DeleteTemplates
            | Self::Launch
            | Self::Terminate
            | Self::DeleteFleets => &[None, Refused, Lost, Throttled, Denied],
            Self::Taint
            | Self::Hold
            | Self::Unhold
            | Self::Label
            | Self::DeleteNode
            | Self::Evict
            | Self::BlockPool
            | Self::CountProbe
            | Self::UnblockPool
            | Self::Book
            | Self::Remove => &[None, Refused, Lost],
            Self::Instances | Self::Tagged | Self::Fleet | Self::Group | Self::Topology | Self::Reservations => {
                &[None, Refused, Throttled, Denied]
            }
            Self::Owner | Self::DaemonSets => &[None, Refused],
        }
    }

    /// Every crash with every fault that is possible together: what crashes before the call has no fault, and what is
    /// still on its way when the process ends arrives as it is. Only changes travel: a write of a process without the
    /// lease is refused by its version, and nobody waits for an answer to a look any more.
    pub(super) fn cells(self) -> Vec<(Crash, Fault)> {
        let mut cells = vec![(Crash::Before, Fault::None)];
        if self >= Self::CreateGroup && self <= Self::DeleteFleets {
            cells.push((Crash::OnItsWay, Fault::None));
        }
        for crash in [Crash::None, Crash::After] {
            cells.extend(self.faults().iter().map(|fault| (crash, *fault)));
        }
        cells
    }
}

/// Where the process ends, or loses the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Crash {
    None,
    /// Before the call is sent.
    Before,
    /// After the answer came, before anybody used it.
    After,
    /// After the call was sent; it arrives later.
    OnItsWay,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    None,
    /// Somebody else wrote first.
    Conflict,
    /// Not carried out, no answer.
    Refused,
    /// Carried out, no answer.
    Lost,
    Throttled,
    Denied,
}

/// Which effects occur in which phase. What is neither here nor in [`ANY_PHASE`] is impossible, and found out if it
/// occurs after all.
pub(super) const PAIRS: &[(BatchPhase, &[Effect])] = {
    use BatchPhase::*;
    use Effect::*;
    &[
        (Pending, &[Write, DeleteTemplates, CountProbe, Owner, Reservations]),
        (
            Launching,
            &[
                Write,
                CreateGroup,
                DeleteGroup,
                CreateTemplate,
                Launch,
                Terminate,
                DeleteFleets,
                Instances,
                Tagged,
                Fleet,
                Group,
                Owner,
            ],
        ),
        (Launched, &[Write, Instances, Owner]),
        (Joining, &[Write, Label, UnblockPool, Instances, Owner]),
        (Replacing, &[Write, Launch, Terminate, Taint, DeleteNode, Instances, Tagged, Fleet]),
        (Ready, &[Write, Unhold]),
        (InUse, &[Write, Evict]),
        (Idle, &[Write]),
        (Draining, &[Write, Taint]),
        (
            Terminating,
            &[Write, DeleteGroup, DeleteTemplates, Terminate, Instances, Tagged, Group, DeleteNode, Book, Remove],
        ),
    ]
};

/// What precedes every phase: lost instances are terminated, their nodes tainted and deleted, and an owner is looked up
/// that may be gone. The same lines whatever the phase, so that phases in which they are rare are counted together. So is
/// what is judged alike in `Launched` and `Joining`, holds of nodes that wait for their gang, and pods of no gang, who are ended alike wherever they are in the way.
const ANY_PHASE: &[(BatchPhase, &[Effect])] = {
    use BatchPhase::*;
    use Effect::*;
    &[
        (Pending, &[Terminate, Taint, DeleteNode, Instances]),
        (Launching, &[Taint, DeleteNode]),
        (Launched, &[Terminate, Taint, DeleteNode, Topology, BlockPool, DaemonSets]),
        (Joining, &[Hold, Terminate, Taint, DeleteNode, Topology, BlockPool, DaemonSets]),
        (Replacing, &[Owner, Evict]),
        (Ready, &[Hold, Terminate, Taint, DeleteNode, Instances, Owner]),
        (InUse, &[Terminate, Taint, DeleteNode, Instances, DaemonSets]),
        (Idle, &[Terminate, Taint, DeleteNode, Instances, Evict]),
        (Draining, &[Terminate, DeleteNode, Instances, Evict, DaemonSets]),
    ]
};

fn listed(table: &[(BatchPhase, &[Effect])], phase: BatchPhase, effect: Effect) -> bool {
    table.iter().any(|(of, effects)| *of == phase && effects.contains(&effect))
}

type Key = (BatchPhase, Effect, Crash, Fault);

/// Counts over all histories.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    cells: BTreeMap<Key, u64>,
    pub(super) events: BTreeMap<&'static str, u64>,
    pub(super) steps: u64,
}

/// How often each weather was met.
type Cells = BTreeMap<(Crash, Fault), u64>;
/// Phase (`None`: all in which the effect is rare), effect, how often, and the rarest of its cells with its count.
type Row = (Option<BatchPhase>, Effect, u64, u64, (Crash, Fault));

impl Coverage {
    pub(super) fn count(&mut self, key: Key) {
        *self.cells.entry(key).or_default() += 1;
    }

    pub(super) fn event(&mut self, what: &'static str) {
        *self.events.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (key, count) in &other.cells {
            *self.cells.entry(*key).or_default() += count;
        }
        for (what, count) in &other.events {
            *self.events.entry(what).or_default() += count;
        }
        self.steps += other.steps;
    }

    /// One line per phase and effect, `None` for all phases in which it is rare: how often, and the rarest of its cells.
    pub(super) fn table(&self) -> Vec<Row> {
        let mut rows: BTreeMap<(Option<BatchPhase>, Effect), Cells> = BTreeMap::new();
        for (phase, effects) in PAIRS {
            for effect in *effects {
                rows.insert((Some(*phase), *effect), BTreeMap::new());
            }
        }
        for ((phase, effect, crash, fault), count) in &self.cells {
            let row = (!listed(ANY_PHASE, *phase, *effect)).then_some(*phase);
            *rows.entry((row, *effect)).or_default().entry((*crash, *fault)).or_default() += count;
        }
        let line = |((phase, effect), cells): ((Option<BatchPhase>, Effect), Cells)| {
            let of = |cell: (Crash, Fault)| (cells.get(&cell).copied().unwrap_or(0), cell);
            let (least, cell) = effect.cells().into_iter().map(of).min().unwrap();
            (phase, effect, cells.values().sum(), least, cell)
        };
        rows.into_iter().map(line).collect()
    }

    /// Pairs that occurred although they are not in the tables.
    pub(super) fn unforeseen(&self) -> Vec<String> {
        let known = |phase, effect| listed(PAIRS, phase, effect) || listed(ANY_PHASE, phase, effect);
        let mut found: Vec<String> = self
            .cells
            .keys()
            .filter(|(phase, effect, _, _)| !known(*phase, *effect))
            .map(|(phase, effect, _, _)| format!("{phase:?} {effect:?}"))
            .collect();
        found.dedup();
        found
    }
}

/// Whether few histories come to this effect, or each comes to it seldom.
fn is_rare(phase: BatchPhase, effect: Effect) -> bool {
    use Effect::{BlockPool, CountProbe, DaemonSets, DeleteFleets, DeleteNode, Evict, Fleet, Topology, UnblockPool};
    listed(ANY_PHASE, phase, effect) && (effect != Topology || phase == BatchPhase::Joining)
        || matches!(effect, BlockPool | CountProbe | UnblockPool | DaemonSets | DeleteFleets | Evict)
        || phase == BatchPhase::Replacing && matches!(effect, Fleet | DeleteNode)
}

/// Draws crashes and faults: each effect of a phase meets many of them when it first occurs in a history, and few later.
#[derive(Debug, Default)]
pub(super) struct Dice {
    /// What rare effects meet goes round over the histories, so that nothing is left to chance.
    turn: usize,
    visits: BTreeMap<(BatchPhase, Effect), u32>,
    pub(super) calm: bool,
}

impl Dice {
    /// Those of one history in a row of them.
    pub(super) fn of(turn: usize) -> Self {
        Self { turn, ..Self::default() }
    }

    pub(super) fn draw(&mut self, phase: BatchPhase, effect: Effect, rng: &mut ChaCha8Rng) -> (Crash, Fault) {
        let visits = self.visits.entry((phase, effect)).or_default();
        *visits += 1;
        let often = match (is_rare(phase, effect), *visits) {
            (true, 1..=10) => 0.9,
            (false, 1..=3) => 0.45,
            _ => 0.02,
        };
        if self.calm || !rng.random_bool(often) {
            return (Crash::None, Fault::None);
        }
        let cells = effect.cells();
        if is_rare(phase, effect) {
            let visit = usize::try_from(*visits).unwrap();
            return cells[(self.turn + visit) % cells.len()];
        }
        cells[rng.random_range(0..cells.len())]
    }
}
