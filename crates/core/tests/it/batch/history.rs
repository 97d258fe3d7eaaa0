//! One history: a world, workers that come and go, and everything that can happen to both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{Change, Made, Report};
use muster_core::ec2::CallError;
use muster_core::ec2::NoticeKind;
use muster_core::model::batch::{Batch, BatchPhase, Loss, LossCause};
use muster_core::model::names::InstanceId;
use muster_core::ordinary::SchedulerRefusals;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cluster::Cluster;
use super::coverage::{Coverage, Crash, Dice, Effect, Fault};
use super::ec2::Ec2;
use super::services::Services;
use super::supply::Catalogue;
use super::worker::{Did, Worker};
use super::{checks, draw, sweep};
use crate::world::at;

/// Lines of workers after which a history counts as one that does not end.
const LINES: u64 = 40_000;
/// The same in time.
const HOURS: i64 = 6;

/// One history.
#[derive(Debug)]
pub(super) struct History {
    pub(super) now: Timestamp,
    pub(super) rng: ChaCha8Rng,
    /// Dice for prices and ceilings alone.
    pub(super) dollars: ChaCha8Rng,
    /// Of each launch, what one node of it costs per hour by the status it was sent from, and its pool.
    pub(super) launched_at: BTreeMap<usize, (String, u64)>,
    /// Launches of which some status has listed an instance.
    pub(super) decided: BTreeSet<u32>,
    pub(super) ec2: Ec2,
    pub(super) cluster: Cluster,
    pub(super) catalogue: Catalogue,
    pub(super) coverage: Coverage,
    /// The first thing that must not be, in words.
    pub(super) wrong: Option<String>,
    /// Losses that were reported and whose message is not taken yet.
    pub(super) reports: Vec<(String, Report)>,
    pub(super) dice: Dice,
    /// Status writes by batch.
    pub(super) writes: BTreeMap<String, u32>,
    late: Vec<(Timestamp, Change)>,
    swept: Timestamp,
    trace: bool,
    /// Nothing happens that nobody asked for.
    pub(super) undisturbed: bool,
    /// How far time goes at once, in milliseconds.
    pub(super) pace: std::ops::Range<i64>,
    /// How long a call takes, in milliseconds. A process makes one after the other.
    pub(super) call: std::ops::Range<i64>,
    /// Pods of no gang, if there are any.
    pub(super) services: Option<Box<Services>>,
    /// What the statuses of the pools say of purchases in vain.
    pub(super) refused: SchedulerRefusals,
    /// … and each of them in words.
    pub(super) in_vain: Vec<String>,
    /// Pools whose condition says that they pause.
    pub(super) paused: BTreeSet<Arc<str>>,
    /// Launch calls: when, of which type, and whether EC2 has been sent the same before.
    pub(super) calls: Vec<(Timestamp, String, bool)>,
    /// Pods that kube-scheduler did not accept on a node that stands.
    pub(super) disputed: Vec<String>,
    /// Nodes that batches for pods of no gang were made for.
    pub(super) launched: u64,
}

impl History {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let now = at(0);
        let story = draw::Story::of(seed);
        let mut catalogue = draw::catalogue(draw::pools(story, &mut rng));
        let mut ec2 = Ec2::new(now, draw::habits(story, &mut rng));
        let mut dollars = ChaCha8Rng::seed_from_u64(!seed);
        draw::ceilings(story, &mut catalogue, &mut dollars);
        draw::stock(story, &mut ec2, &catalogue.pools, &mut rng);
        let mut cluster = Cluster::new(now, draw::manners(story, &catalogue.pools, &mut rng));
        draw::wanted(story, &mut cluster, &mut catalogue, &mut ec2, &mut rng);
        let undisturbed = story == draw::Story::Blocked;
        Self { undisturbed, dollars, ..Self::of(seed, (ec2, cluster, catalogue), rng) }
    }

    /// The history of a world that was drawn.
    pub(super) fn of(seed: u64, (ec2, cluster, catalogue): (Ec2, Cluster, Catalogue), rng: ChaCha8Rng) -> Self {
        let now = at(0);
        Self {
            now,
            rng,
            dollars: ChaCha8Rng::seed_from_u64(!seed),
            launched_at: BTreeMap::new(),
            decided: BTreeSet::new(),
            ec2,
            cluster,
            catalogue,
            coverage: Coverage::default(),
            wrong: None,
            reports: Vec::new(),
            dice: Dice::of(usize::try_from(seed).unwrap() / draw::STORIES),
            writes: BTreeMap::new(),
            late: Vec::new(),
            swept: now,
            trace: std::env::var("MUSTER_BATCH_SEED").is_ok(),
            undisturbed: false,
            pace: 1_000..12_000,
            call: 1..200,
            services: None,
            refused: SchedulerRefusals::default(),
            in_vain: Vec::new(),
            paused: BTreeSet::new(),
            calls: Vec::new(),
            disputed: Vec::new(),
            launched: 0,
        }
    }

    /// Draws what happens to an effect, and counts it.
    pub(super) fn draw(&mut self, phase: BatchPhase, effect: Effect) -> (Crash, Fault) {
        let (crash, fault) = self.dice.draw(phase, effect, &mut self.rng);
        self.coverage.count((phase, effect, crash, fault));
        if self.trace && (crash, fault) != (Crash::None, Fault::None) {
            self.tell(|_| format!("{phase:?} {effect:?}: {crash:?}, {fault:?}"));
        }
        (crash, fault)
    }

    /// Says what happens, where one seed is looked at.
    #[expect(clippy::print_stderr, reason = "the course of one history is what a failing seed is run again for")]
    pub(super) fn tell(&self, what: impl FnOnce(&Self) -> String) {
        if self.trace {
            eprintln!("{} {}", self.now.duration_since(at(0)).as_millis(), what(self));
        }
    }

    pub(super) fn fail(&mut self, what: String) {
        if self.wrong.is_none() {
            self.tell(|_| format!("WRONG: {what}"));
            self.wrong = Some(what);
        }
    }

    /// A call takes its time.
    pub(super) fn take_time(&mut self) {
        self.now += SignedDuration::from_millis(self.rng.random_range(self.call.clone()));
        self.ec2.pass_time(self.now);
    }

    /// Carries out a change in EC2.
    pub(super) fn change(&mut self, change: &Change) -> Result<Made, CallError> {
        checks::before_change(self, change);
        if let Change::Launch { parameters, .. } = change {
            let replayed = self.ec2.tokens.contains_key(&parameters.token);
            self.calls.push((self.now, parameters.instance_type.clone(), replayed));
        }
        let before = self.ec2.launches.len();
        let result = self.ec2.carry_out(change, &mut self.rng);
        if self.ec2.launches.len() > before {
            checks::probe(self, change);
            checks::price(self, before, change);
        }
        self.tell(|_| format!("{} -> {result:?}", brief(change)));
        checks::account(self);
        result
    }

    /// The process ended after it had sent this, and it is still on its way.
    pub(super) fn send_late(&mut self, change: Change) {
        let at = self.now + SignedDuration::from_secs(self.rng.random_range(0..40));
        self.late.push((at, change));
    }

    fn arrive(&mut self) {
        let (due, later) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= self.now);
        self.late = later;
        let due: Vec<(Timestamp, Change)> = due;
        for (_, change) in due {
            self.coverage.event("a call arrives after its process ended");
            let before = self.ec2.launches.len();
            let result = self.ec2.carry_out(&change, &mut self.rng);
            self.tell(|_| format!("late: {} -> {result:?}", brief(&change)));
            let open = checks::is_open(self, &change);
            if let Some(launch) = self.ec2.launches.get_mut(before) {
                launch.late = !open;
                self.coverage.event("a launch is carried out late");
                checks::probe(self, &change);
                checks::price(self, before, &change);
            }
            checks::account(self);
        }
    }

    /// A status was written.
    pub(super) fn written(&mut self, name: &str) {
        *self.writes.entry(name.to_owned()).or_default() += 1;
        self.tell(|history| {
            let status = &history.cluster.batches[name].1.status;
            let last = status.last().map(|last| (last.number, last.outcome, last.replaces.len()));
            format!("{name}: {:?} {last:?} {:?} {:?}", status.phase, status.ids(), status.message)
        });
        checks::at_rest(self, name);
    }

    fn chance(&mut self, share: f64) -> bool {
        self.rng.random_bool(share)
    }

    /// Time passes up to `until` or a little less.
    fn pass_time(&mut self, until: Timestamp, worker: Option<&mut Worker>) {
        let step = self.now + SignedDuration::from_millis(self.rng.random_range(self.pace.clone()));
        let next = self.ec2.next_event().map_or(until, |at| at.min(until)).max(self.now);
        self.now = next.min(step).max(self.now + SignedDuration::from_millis(50));
        self.ec2.pass_time(self.now);
        let Self { cluster, ec2, rng, .. } = self;
        cluster.pass_time(self.now, ec2, rng);
        if let Some(mut services) = self.services.take() {
            services.pass_time(self);
            self.services = Some(services);
        }
        self.arrive();
        if !self.dice.calm && !self.undisturbed {
            self.disturb();
        }
        if self.now.duration_since(self.swept) > SignedDuration::from_secs(60) {
            self.swept = self.now;
            if worker.is_some() {
                sweep::round(self);
            }
        }
        if let Some(worker) = worker {
            for (name, report) in std::mem::take(&mut self.reports) {
                worker.memory.entry(name).or_default().reports.push(report);
            }
        }
        checks::account(self);
    }

    /// Something happens that nobody asked for.
    fn disturb(&mut self) {
        if self.chance(0.01) {
            let keys: Vec<_> = self.ec2.free.keys().cloned().collect();
            let key = &keys[self.rng.random_range(0..keys.len())];
            for capacity in self.ec2.free.get_mut(key).unwrap() {
                *capacity = self.rng.random_range(0..7);
            }
        }
        let live: Vec<InstanceId> = self.ec2.vms.iter().filter(|(_, vm)| vm.live()).map(|(id, _)| id.clone()).collect();
        if !live.is_empty() && self.chance(0.008) {
            let id = live[self.rng.random_range(0..live.len())].clone();
            let code =
                ["Server.InsufficientInstanceCapacity", "Server.InternalError", "Client.InvalidSnapshot.NotFound"];
            let code = code[self.rng.random_range(0..3)];
            self.tell(|_| format!("{id} dies: {code}"));
            self.coverage.event("an instance dies");
            self.ec2.end(&id, code, &mut self.rng);
        }
        if !live.is_empty() && self.chance(0.025) {
            let id = live[self.rng.random_range(0..live.len())].clone();
            self.notice(&id);
        }
        if self.chance(0.003)
            && let Some(name) = self.cluster.machines.keys().next().cloned()
        {
            self.tell(|_| format!("Node {name} vanishes"));
            self.coverage.event("a Node vanishes");
            self.cluster.delete_node(&name);
        }
        if self.chance(0.003) {
            self.coverage.event("a person deletes a batch");
            self.delete_one();
        }
        if self.chance(0.004) {
            self.supersede();
        }
        if self.catalogue.has_ceilings() && self.dollars.random_bool(0.02) {
            self.coverage.event("a price changes under a ceiling");
            draw::reprice(&mut self.catalogue, &mut self.dollars);
        }
        if self.chance(0.003) && !self.cluster.blocks.is_empty() {
            self.coverage.event("a person changes a blocked pool");
            self.repair_pools();
        }
    }

    pub(super) fn repair_pools(&mut self) {
        self.catalogue.generation += 1;
        self.cluster.blocks.clear();
        self.cluster.touch();
    }

    fn delete_one(&mut self) {
        let names: Vec<String> = self.cluster.batches.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = &names[self.rng.random_range(0..names.len())];
        self.tell(|_| format!("{name} is deleted"));
        let batch = Batch { deleting: true, ..Batch::clone(&self.cluster.batches[name].1) };
        self.cluster.put(batch);
    }

    /// EC2 gives notice, or the state of the instance tells; the instance ends later.
    fn notice(&mut self, id: &InstanceId) {
        let holds = |batch: &Batch| batch.status.instances.iter().any(|one| one.id == *id);
        let owner = self.cluster.batches.iter().find(|(_, (_, batch))| holds(batch)).map(|(name, _)| name.clone());
        let Some(name) = owner else { return };
        self.coverage.event("a notice");
        self.tell(|_| format!("notice for {id} of {name}"));
        let later = self.now + SignedDuration::from_secs(self.rng.random_range(0..60));
        let loss = Loss {
            cause: LossCause::Notice(NoticeKind::SpotInterruption),
            message: "taken back".to_owned(),
            noticed: self.now,
            act_at: if self.rng.random_bool(0.5) { self.now } else { later },
            deadline: Some(self.now + SignedDuration::from_secs(120)),
        };
        let report = Report { losses: [(id.clone(), loss)].into(), reason: "SpotInterruption", ..Report::default() };
        for _ in 0..self.rng.random_range(1..=2) {
            self.reports.push((name.clone(), report.clone()));
        }
    }

    /// A gang goes on with a later round: another batch.
    fn supersede(&mut self) {
        let names: Vec<String> = self.cluster.actors.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = &names[self.rng.random_range(0..names.len())];
        let actor = self.cluster.actors.get_mut(name).unwrap();
        let next = format!("{name}-2");
        if !actor.gang.places.is_empty() || actor.request.is_some() || self.cluster.batches.contains_key(&next) {
            return;
        }
        let Some((_, batch)) = self.cluster.batches.get(&actor.batch) else { return };
        if !matches!(batch.spec.owner, muster_core::model::batch::Owner::Gang(_)) || actor.batch == next {
            return;
        }
        let batch = draw::batch(&next, muster_core::model::batch::BatchSpec::clone(&batch.spec), self.now);
        actor.batch.clone_from(&next);
        actor.gang.batch = Some(std::sync::Arc::from(next));
        self.coverage.event("a gang goes on with a later batch");
        self.cluster.put(batch);
    }

    /// Everybody ends, and nothing goes wrong any more.
    fn calm_down(&mut self) {
        self.tell(|_| "calm".to_owned());
        self.dice.calm = true;
        self.ec2.habits.contradicts = 0.0;
        self.cluster.manners.foreign_pods = 0.0;
        self.cluster.manners.broken.clear();
        for name in self.cluster.actors.keys().cloned().collect::<Vec<_>>() {
            self.cluster.end(&name, &mut self.rng);
        }
        self.repair_pools();
        // Where idle nodes or pods of others stay for ever, a person ends them.
        let names: Vec<String> = self.cluster.batches.keys().cloned().collect();
        for name in names {
            let batch = Batch { deleting: true, ..Batch::clone(&self.cluster.batches[&name].1) };
            self.cluster.put(batch);
        }
        for pool in &mut self.catalogue.pools {
            pool.foreign.get_or_insert(SignedDuration::from_mins(1));
        }
    }
}

fn brief(change: &Change) -> String {
    match change {
        Change::Launch { parameters, first } => format!(
            "launch {} × {} in {} for {} attempt {} (first: {first}, {})",
            parameters.count,
            parameters.instance_type,
            parameters.zone,
            parameters.tags.batch_uid,
            parameters.tags.attempt,
            &parameters.token[..6]
        ),
        Change::CreateTemplate(_) => "create template".to_owned(),
        Change::CreateGroup { .. }
        | Change::DeleteGroup(_)
        | Change::DeleteTemplates(_)
        | Change::Terminate(_)
        | Change::DeleteFinishedFleets => format!("{change:?}"),
    }
}

/// The process that holds the lease, or when the next one starts.
#[derive(Debug, Default)]
pub(super) struct Lease {
    worker: Option<Worker>,
    starts: Timestamp,
}

impl Lease {
    /// What the process has in memory, in the letters that it takes to write it down; `None` if there is no process.
    pub(super) fn size(&self) -> Option<usize> {
        self.worker.as_ref().map(|worker| format!("{worker:?}").len())
    }
}

impl History {
    /// One line: of the worker, of the time that passes, or of a process that starts.
    pub(super) fn line(&mut self, lease: &mut Lease) {
        let Some(mut active) = lease.worker.take() else {
            if self.now >= lease.starts {
                lease.worker = Some(Worker::start(self.cluster.view()));
            } else {
                self.pass_time(lease.starts, None);
            }
            return;
        };
        if active.view.version != self.cluster.version && self.rng.random_bool(0.2) {
            active.deliver(self.cluster.view());
        }
        let did =
            if self.services.is_some() && self.rng.random_bool(0.5) { active.round(self) } else { active.step(self) };
        match did {
            Did::Something => lease.worker = Some(active),
            Did::Crashed => {
                self.coverage.event("a process ends");
                self.tell(|_| "the process ends".to_owned());
                if let Some(services) = &mut self.services {
                    services.restart();
                }
                lease.starts = self.now + SignedDuration::from_secs(self.rng.random_range(0..20));
            }
            Did::Nothing(until) => {
                self.pass_time(until.max(self.now), Some(&mut active));
                if self.rng.random_bool(0.7) {
                    active.deliver(self.cluster.view());
                }
                lease.worker = Some(active);
            }
        }
    }
}

/// Runs one history. Errors: what must not be, and was.
pub(super) fn run(seed: u64) -> Result<Coverage, String> {
    let mut sim = History::new(seed);
    let mut lease = Lease::default();
    let calm = at(match draw::Story::of(seed) {
        draw::Story::Blocked => sim.rng.random_range(800..1000),
        draw::Story::Anything | draw::Story::Losses => sim.rng.random_range(300..1000),
    });
    let end = at(HOURS * 3600);
    let mut lines = 0;
    let mut quiet = None;
    loop {
        lines += 1;
        if sim.now >= calm && !sim.dice.calm {
            sim.calm_down();
        }
        if let Some(wrong) = sim.wrong.take().or_else(|| sim.ec2.wrong.take()) {
            return Err(wrong);
        }
        if lines > LINES || sim.now > end {
            let batches: Vec<_> = sim.cluster.batches.values().map(|(_, batch)| &batch.status).collect();
            return Err(format!("it does not end: {batches:#?}"));
        }
        if sim.dice.calm && sim.cluster.batches.is_empty() && sim.late.is_empty() {
            let since = *quiet.get_or_insert(sim.now);
            if sim.now.duration_since(since) > SignedDuration::from_mins(20) {
                break;
            }
        }
        sim.line(&mut lease);
    }
    if let Some(unbooked) = sim.cluster.unbooked.take() {
        return Err(unbooked);
    }
    if sim.cluster.booked() != sim.cluster.bills {
        return Err(format!("{} micro-dollars are booked of {}", sim.cluster.booked(), sim.cluster.bills));
    }
    let left = sim.ec2.left();
    if !left.is_empty() {
        return Err(format!("left in EC2: {left:?}"));
    }
    if !sim.cluster.machines.is_empty() {
        return Err(format!("left in the cluster: {:?}", sim.cluster.machines.keys()));
    }
    *sim.coverage.events.entry("a Node has the name of one that is gone").or_default() += u64::from(sim.cluster.reused);
    for (what, count) in std::mem::take(&mut sim.ec2.rare) {
        *sim.coverage.events.entry(what).or_default() += u64::from(count);
    }
    sim.coverage.steps = lines;
    Ok(sim.coverage)
}
