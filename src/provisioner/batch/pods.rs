//! Nodes for pods of no gang: reads what waits, asks the round what follows, creates its NodeBatches and reports to the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{BatchOffer, Fill, NodeBatch, NodeBatchSpec, NodePool, SchedulerRefused, is_true};
use muster_api::{batch_state, keys, pool_state};
use muster_core::batch::reserves;
use muster_core::ec2::CapacityType;
use muster_core::gang::GangEvent;
use muster_core::model::batch::{Batch, BatchMember, BatchPhase, MemberState};
use muster_core::model::money::usd;
use muster_core::model::names::PodUid;
use muster_core::offering::Ledger;
use muster_core::ordinary::{
    self, Announced, Cause, Crowd, Disputes, Fruitless, InVain, Launch, Outcome, Placed, Purchases, Refusal, Round,
    SchedulerRefusals, Seen, Unseen, Window,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::effects::absent;
use super::ladders::{Ladders, Read};
use crate::clock::now_real;
use crate::cluster::{SeenBatch, State};
use crate::provisioner::Context;
use crate::provisioner::pool::{PAUSED, class_of, ledger, offers, reservations};
use crate::step::{Step, step};

/// Events about one launch: a crowd of pods that are served by the same needs no event each.
const EVENTS: usize = 20;

/// What is remembered between rounds for as long as this replica leads.
#[derive(Debug)]
pub(in crate::provisioner) struct Pods {
    window: Window,
    unseen: Unseen,
    /// What was reported to the pods for which there was nothing.
    announced: Announced,
    /// What became of purchases. `None`: what the statuses of the pools say has not been read since the lease was won.
    purchases: Option<Purchases>,
    /// What became of launches that brought no node. `None`: what the pools' conditions say has not been read yet.
    fruitless: Option<Fruitless>,
    /// Pods for which there is capacity and that kube-scheduler puts nowhere.
    disputes: Disputes,
    /// UIDs of each pool and its class when purchases were last looked at.
    objects: BTreeMap<Arc<str>, [Option<String>; 2]>,
    /// What the statuses say of it, as far as this process wrote or read them.
    written: BTreeMap<Arc<str>, SchedulerRefused>,
    /// The pods that waited when they were last looked through.
    crowd: Crowd,
    /// What was read of them for the last round.
    ladders: Ladders,
    /// How long it took to find out whether a round is due.
    took: Duration,
}

impl Pods {
    /// Of a replica that has just won the lease.
    pub(in crate::provisioner) fn new(context: &Context) -> Self {
        let window = Window::new(context.options.batch_idle, context.options.batch_max);
        Self {
            window,
            unseen: Unseen::default(),
            announced: Announced::default(),
            purchases: None,
            fruitless: None,
            disputes: Disputes::default(),
            objects: BTreeMap::new(),
            written: BTreeMap::new(),
            crowd: Crowd::default(),
            ladders: Ladders::default(),
            took: Duration::ZERO,
        }
    }

    /// For how long pods are collected yet, if nothing changes any more; `None` while there are none to collect, or nobody looked
    /// when it was over.
    pub(in crate::provisioner) fn closes_in(&self) -> Option<Duration> {
        let left = self.window.closes()?.duration_since(now_real());
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    /// Whether pods are collected, or were and nobody looked when it was over.
    pub(in crate::provisioner) fn collects(&self) -> bool {
        self.window.closes().is_some()
    }

    /// How long it took, the last time, to find out whether a round is due.
    pub(in crate::provisioner) fn took(&self) -> Duration {
        self.took
    }

    /// Makes a round if one is due.
    pub(in crate::provisioner) async fn reconcile(
        &mut self,
        context: &Arc<Context>,
        state: &Arc<State>,
        term: &CancellationToken,
    ) -> anyhow::Result<()> {
        // Whoever has no pool has chosen to provision in another way.
        if state.pools.is_empty() || context.catalogue.load().types.is_empty() {
            // Whoever waits once there is one is collected from then on.
            self.window = Window::new(context.options.batch_idle, context.options.batch_max);
            return Ok(());
        }
        self.unseen.shown(|name| state.batches.contains_key(name));
        let began = Instant::now();
        let found = self.look(context, state);
        let refusals = self.purchases.as_ref().map(Purchases::refusals).cloned().unwrap_or_default();
        let fruitless = self.look_at_launches(context, state);
        let usable = offers::usable(context, state);
        let now = context.clock.now();
        let disputed = self.disputes.open(now_real());
        let known =
            Learnt { refusals: &refusals, refused: refusals.waiting(now), paused: fruitless.pausing(now), disputed };
        let (crowd, count) = self.crowd.look(&state.snapshot.pods);
        let seen = digest(state, &usable, &known, crowd);
        // Whoever has a place on a node may lose it again, and nothing of that is in the digest.
        let due = self.window.is_due(now_real(), seen, count > 0);
        self.took = began.elapsed();
        // Written down before anything follows from it: no restart begins to count again. What cannot be written is known for as
        // long as this replica leads, and holds up nobody.
        self.write_down(context, state, &found).await;
        if !due || term.is_cancelled() {
            return Ok(());
        }
        let waiting = waiting(state);
        if waiting.is_empty() {
            context.metrics.pods(&Outcome::default());
            return Ok(());
        }
        self.assume(context, state).await?;
        let unseen = self.unseen.batches().filter(|batch| !state.batches.contains_key(&batch.name));
        let batches: Vec<_> = state.batches.values().map(SeenBatch::batch).chain(unseen).cloned().collect();
        let pools: Vec<String> = usable.into_iter().collect();
        reservations::refresh(context, &pools, state).await;
        let inputs = ledger::inputs(context, state, batches.iter().map(AsRef::as_ref));
        let mut left = Ledger::beside_all(&inputs);
        let offers::Offers { pools, most, offers } = offers::read(context, state, &left);
        let (ladders, count, mut outcome) = {
            let (context, state, disputes) = (Arc::clone(context), Arc::clone(state), self.disputes.clone());
            // A plan for thousands of pods takes its time; nobody else of this runtime waits for it.
            let mut ladders = std::mem::take(&mut self.ladders);
            let round = move || {
                let preferred = ordinary::any_rather_keeps_off(&state.snapshot, &offers);
                let pods =
                    waiting.iter().filter_map(|uid| Some((state.snapshot.pods.get(uid)?, state.unbound.get(uid)?)));
                let Read { waiting, refused } = ladders.read(pods, &state.namespaces, preferred);
                let count = waiting.len();
                let mut outcome = ordinary::plan(&Round {
                    waiting,
                    snapshot: &state.snapshot,
                    batches,
                    pools,
                    most,
                    offers,
                    accelerators: &state.snapshot.accelerators,
                    refusals: &refusals,
                    fruitless: &fruitless,
                    disputes: &disputes,
                    now: context.clock.now(),
                    now_real: now_real(),
                });
                outcome.refused.extend(refused);
                (ladders, count, outcome)
            };
            tokio::task::spawn_blocking(round).await.context("plan pods of no gang")?
        };
        self.ladders = ladders;
        let launches = std::mem::take(&mut outcome.launches);
        for launch in launches {
            if term.is_cancelled() {
                return Ok(());
            }
            if let Some(launch) = within(context, state, &mut left, launch, &mut outcome.refused) {
                if let Err(error) = self.make(context, state, &launch).await {
                    // Nobody knows whether it was made: the next round lists them first.
                    self.unseen.unanswered();
                    return Err(error);
                }
                outcome.launches.push(launch);
            }
        }
        context.metrics.pods(&outcome);
        info!(
            waiting = count,
            launches = outcome.launches.len(),
            joining = outcome.joining,
            placed = outcome.placed,
            refused = outcome.refused.len(),
            "round of pods"
        );
        self.report(context, state, &outcome).await;
        self.dispute(context, state, &outcome).await;
        Ok(())
    }

    /// Takes note of pods that kube-scheduler will not accept on nodes that stand, and reports to some of them; the next round launches
    /// for them.
    async fn dispute(&mut self, context: &Context, state: &State, outcome: &Outcome) {
        let lost = self.disputes.look(&outcome.standing, &state.snapshot, now_real());
        for Placed { pod, node, .. } in lost.iter().take(EVENTS) {
            let Some(object) = state.unbound.get(pod) else { continue };
            let message = format!(
                "node {} has the capacity for it, and kube-scheduler does not accept it there: it is provisioned for{}",
                node.as_str(),
                stated(state, pod)
            );
            let event = GangEvent { reason: Cause::SchedulerRefused.as_str(), message, warning: true };
            context.events.publish(&**object, &event).await;
        }
        if !lost.is_empty() {
            warn!(pods = lost.len(), "kube-scheduler does not accept some pods on nodes with capacity for them");
        }
    }

    /// Looks which launches brought no node.
    fn look_at_launches(&mut self, context: &Context, state: &State) -> Fruitless {
        let now = context.clock.now();
        let pauses =
            |pool: &Arc<NodePool>| pool.status.as_ref().is_some_and(|status| is_true(&status.conditions, PAUSED));
        let fruitless = self.fruitless.get_or_insert_with(|| {
            let pausing = state.pools.iter().filter(|(_, pool)| pauses(pool));
            Fruitless::taken_over(pausing.map(|(name, _)| name.as_str().into()), now)
        });
        let names = state.pools.keys().map(|name| name.as_str().into()).collect();
        fruitless.look(state.batches.values().map(|seen| &**seen.batch()), &names, now);
        let says = |name: &String| Some((name.clone(), fruitless.says(name)?));
        context.pause(state.pools.keys().filter_map(says).collect());
        fruitless.clone()
    }

    /// Looks what became of purchases. Those that no pod came to.
    fn look(&mut self, context: &Context, state: &State) -> Vec<InVain> {
        if self.purchases.is_none() {
            let stated =
                |pool: &Arc<NodePool>| pool.status.as_ref().and_then(|status| status.scheduler_refused.clone());
            self.written =
                state.pools.iter().filter_map(|(name, pool)| Some((name.as_str().into(), stated(pool)?))).collect();
            let known =
                self.written.iter().map(|(name, stated)| (Arc::clone(name), pool_state::read(stated))).collect();
            self.purchases = Some(Purchases::new(SchedulerRefusals::new(known)));
        }
        let Some(purchases) = &mut self.purchases else { return Vec::new() };
        let class = |pool: &NodePool| class_of(state, pool).map(|class| &class.metadata);
        let generations = |pool: &NodePool| {
            let class = class(pool).and_then(|class| class.generation);
            (pool.metadata.generation.unwrap_or_default(), class.unwrap_or_default())
        };
        let objects = |pool: &NodePool| [pool.metadata.uid.clone(), class(pool).and_then(|class| class.uid.clone())];
        let objects: BTreeMap<Arc<str>, _> =
            state.pools.iter().map(|(name, pool)| (name.as_str().into(), objects(pool))).collect();
        // What was made again under its name begins at the same generation, and nothing of what was in vain is about it.
        let before = std::mem::replace(&mut self.objects, objects);
        let is_another = |name: &str| before.get(name).is_some_and(|before| self.objects.get(name) != Some(before));
        purchases.look(&Seen {
            batches: state.batches.values().map(|seen| &**seen.batch()).collect(),
            snapshot: &state.snapshot,
            generations: state
                .pools
                .iter()
                .filter(|(name, _)| !is_another(name))
                .map(|(name, pool)| (name.as_str().into(), generations(pool)))
                .collect(),
            now: context.clock.now(),
            now_real: now_real(),
        })
    }

    /// Reports which purchases were in vain, and writes it into the statuses of their pools.
    async fn write_down(&mut self, context: &Context, state: &State, found: &[InVain]) {
        let Some(purchases) = &self.purchases else { return };
        for one in found {
            let InVain { batch, instance_type, in_a_row, .. } = one;
            warn!(
                pool = &*one.pool,
                batch,
                instance_type = &**instance_type,
                in_a_row,
                "nodes are not used by their pods"
            );
            if let Some(pool) = state.pools.get(&*one.pool) {
                let reason = Cause::SchedulerRefused.as_str();
                let event = GangEvent { reason, message: one.to_string(), warning: true };
                context.events.publish(&**pool, &event).await;
            }
        }
        for name in state.pools.keys() {
            let says = purchases.refusals().of(name).and_then(pool_state::write);
            if self.written.get(&**name) == says.as_ref() {
                continue;
            }
            let pools: Api<NodePool> = Api::all(context.client.clone());
            let patch = Patch::Merge(json!({"status": {"schedulerRefused": says}}));
            let wrote = step(Step::WriteStatus, pools.patch_status(name, &PatchParams::default(), &patch)).await;
            if let Err(error) = absent(wrote) {
                let error = error.to_string();
                debug!(pool = name, error, "that purchases were in vain is not written down, tried again");
                continue;
            }
            match says {
                Some(says) => self.written.insert(name.as_str().into(), says),
                None => self.written.remove(&**name),
            };
        }
    }

    /// Takes note of NodeBatches that the watch does not show. After the lease was won all of them are listed: a former holder may
    /// have made one a moment ago. So are they where the watch does not show one for long.
    async fn assume(&mut self, context: &Context, state: &State) -> anyhow::Result<()> {
        let now = now_real();
        if !self.unseen.is_due(now) {
            return Ok(());
        }
        let batches: Api<NodeBatch> = Api::all(context.client.clone());
        let all = batches.list(&ListParams::default()).await.context("list NodeBatches")?;
        let unseen = all.into_iter().filter(|batch| !state.batches.contains_key(&batch.name_any()));
        self.unseen.listed(unseen.map(|batch| Arc::new(batch_state::read(&batch))), now);
        Ok(())
    }

    /// Creates the NodeBatch of a launch. One of the same name is for the same pods and the same offer.
    async fn make(&mut self, context: &Context, state: &State, launch: &Launch) -> anyhow::Result<()> {
        let batches: Api<NodeBatch> = Api::all(context.client.clone());
        let object = object(context, state, launch);
        let created = match step(Step::CreateBatch, batches.create(&PostParams::default(), &object)).await {
            Ok(created) => {
                info!(
                    batch = launch.name,
                    count = launch.count,
                    instance_type = &*launch.instance_type,
                    zone = &*launch.zone,
                    pods = launch.pods.len(),
                    "batch for pods created"
                );
                created
            }
            Err(kube::Error::Api(answer)) if answer.code == 409 => {
                batches.get(&launch.name).await.with_context(|| format!("read NodeBatch {}", launch.name))?
            }
            Err(error) => return Err(anyhow::Error::new(error).context(format!("create NodeBatch {}", launch.name))),
        };
        self.unseen.made(Arc::new(batch_state::read(&created)), now_real());
        Ok(())
    }

    /// Tells some of the pods what is done for them, or why nothing is.
    async fn report(&mut self, context: &Context, state: &State, outcome: &Outcome) {
        for launch in &outcome.launches {
            let message = format!(
                "provisioning {} {} {} in {} for {} pods, {}/h",
                launch.count,
                launch.instance_type,
                launch.capacity_type,
                launch.zone,
                launch.pods.len(),
                usd(launch.price)
            );
            let event = GangEvent { reason: "Nominated", message, warning: false };
            for pod in launch.pods.iter().filter_map(|uid| state.unbound.get(uid)).take(EVENTS) {
                context.events.publish(&**pod, &event).await;
            }
        }
        let maker = |pod: &PodUid| {
            let owners = state.unbound.get(pod)?.metadata.owner_references.as_ref()?;
            owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| Arc::from(owner.uid.as_str()))
        };
        let news = self.announced.choose(&outcome.refused, maker, now_real());
        if !news.is_empty() {
            warn!(pods = outcome.refused.len(), "nothing can be launched for some pods");
        }
        for Refusal { pod, cause, why } in news {
            let Some(object) = state.unbound.get(pod) else { continue };
            let mut message = why.to_string();
            if *cause == Cause::SchedulerRefused {
                message.push_str(&stated(state, pod));
            }
            let event = GangEvent { reason: cause.as_str(), message, warning: true };
            context.events.publish(&**object, &event).await;
        }
    }
}

/// As much of a launch as the limits, ceilings and subnets leave; what is behind them is refused.
fn within(
    context: &Context,
    state: &State,
    left: &mut Ledger,
    mut launch: Launch,
    refused: &mut Vec<Refusal>,
) -> Option<Launch> {
    let each = ledger::per_node(context, state, &launch.pool, &launch.instance_type)?;
    let most = offers::most_addressed(context, state, left, &launch, each.addresses);
    if launch.capacity_type == CapacityType::Reserved {
        // It was planned as paid for; against ceilings it counts as its batch does.
        let price = context.catalogue.load().prices.price(&launch.instance_type, &launch.zone, CapacityType::Reserved);
        launch.price = price.unwrap_or(0).saturating_mul(u64::from(launch.count));
    }
    if let Some(within) = launch.within(left, &each.amounts.resources, most) {
        if within.count < launch.count {
            let (batch, planned, fits) = (&launch.name, launch.count, within.count);
            debug!(batch, planned, fits, "limits, ceilings and subnets leave less than was planned");
        }
        return Some(within);
    }
    let why: Arc<str> = format!(
        "NodePool {}: {} {} in {} for {}/h would pass a limit or maxUsdPerHour, or no subnet has an address",
        launch.pool,
        launch.count,
        launch.instance_type,
        launch.zone,
        usd(launch.price)
    )
    .into();
    let of = |pod| Refusal { pod, cause: Cause::NoOfferFits, why: Arc::clone(&why) };
    refused.extend(launch.pods.into_iter().map(of));
    None
}

fn object(context: &Context, state: &State, launch: &Launch) -> NodeBatch {
    let types = || std::iter::once(&launch.instance_type).chain(&launch.other_types);
    let offers: Vec<_> = types().map(|name| (&*launch.pool, &**name, launch.count)).collect();
    let takes = |pool: &str, instance_type: &str| {
        ledger::per_node(context, state, pool, instance_type).map(|each| each.amounts.resources)
    };
    let reserved = reserves(offers.into_iter(), takes);
    let offer = |instance_type: &Arc<str>| BatchOffer {
        node_pool: launch.pool.to_string(),
        instance_type: instance_type.to_string(),
        count: launch.count,
    };
    // Where on demand does as well if EC2 has no spot capacity, it is launched at once.
    let capacity_type = (!launch.or_on_demand).then(|| launch.capacity_type.as_str().to_owned());
    let zones = std::iter::once(&launch.zone).chain(&launch.other_zones);
    let mut object = NodeBatch::new(
        &launch.name,
        NodeBatchSpec {
            node_pools: vec![launch.pool.to_string()],
            count: launch.count,
            fill: Fill::Partial,
            gang_ref: None,
            provisioning_request_ref: None,
            offers: types().map(offer).collect(),
            placement_group: Some("none".to_owned()),
            zones: zones.map(ToString::to_string).collect(),
            capacity_type,
            fillings: batch_state::write_fillings(&launch.fillings),
            reserves: batch_state::write_reserves(&reserved),
        },
    );
    object.metadata.finalizers = Some(vec![keys::TERMINATION.to_owned()]);
    object
}

/// Pods to provision for, in planning order: priority, creation, namespace and name.
fn waiting(state: &State) -> Vec<PodUid> {
    let mut waiting: Vec<_> = state.snapshot.pods.unplaced().filter(|pod| ordinary::is_waiting(pod)).collect();
    waiting.sort_by_cached_key(|pod| {
        (std::cmp::Reverse(pod.priority), pod.created.is_none(), pod.created, pod.key.clone())
    });
    waiting.into_iter().map(|pod| pod.uid.clone()).collect()
}

/// What kube-scheduler says of a pod, for the end of a message; nothing if it says nothing.
fn stated(state: &State, pod: &PodUid) -> String {
    let stated = state.snapshot.pods.get(pod).and_then(|pod| pod.unscheduled.as_ref());
    stated.map_or_else(String::new, |(_, stated)| format!("; it says: {stated}"))
}

/// What earlier rounds have taught. A pause that ends calls for a round too.
#[derive(Hash)]
struct Learnt<'a> {
    refusals: &'a SchedulerRefusals,
    /// Classes of pods that nothing is launched for now.
    refused: usize,
    /// Pools that pause now.
    paused: usize,
    /// Classes of pods that kube-scheduler accepts nowhere, and until when that is trusted.
    disputed: Vec<(&'a Arc<str>, Timestamp)>,
}

/// What of a batch may call for another round: what it takes of limits, ceilings and hosts, since where some of it ends somebody else has
/// its place; and how far it is, if its nodes are for pods of no gang.
fn of_batch(batch: &Batch) -> impl Hash + '_ {
    let Batch { spec, status, deleting, .. } = batch;
    let runs = |all: &[BatchMember]| all.iter().filter(|one| one.state != MemberState::Gone).count();
    let far = (status.phase, status.instances.len(), *deleting);
    let ends = matches!(status.phase, BatchPhase::Draining | BatchPhase::Terminating);
    let takes = (&status.node_pool, ends, status.count, runs(&status.instances), runs(&status.replaced));
    (spec.partial.then_some(far), takes)
}

/// Everything whose change may call for another round, as one number; `crowd` is that of the pods to provision for.
fn digest(state: &State, usable: &BTreeSet<String>, known: &Learnt<'_>, crowd: u64) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    (known, crowd).hash(&mut hasher);
    usable.hash(&mut hasher);
    for (name, pool) in state.pools.iter() {
        (name, pool.metadata.generation).hash(&mut hasher);
    }
    for (name, seen) in state.batches.iter() {
        (name, of_batch(seen.batch())).hash(&mut hasher);
    }
    // Labels that a namespaceSelector may ask for: another map is published where one of them changed.
    Arc::as_ptr(&state.namespaces).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use muster_core::model::batch::{BatchSpec, BatchStatus};
    use muster_core::model::names::InstanceId;

    use super::*;

    fn batch(partial: bool, change: impl FnOnce(&mut Batch)) -> u64 {
        let member = |id: &str| BatchMember::new(InstanceId::from(id), 1, MemberState::Ready);
        let (instances, replaced) = (vec![member("i-1")], vec![member("i-2")]);
        let status = BatchStatus { phase: BatchPhase::InUse, count: 1, instances, replaced, ..BatchStatus::default() };
        let mut batch = Batch {
            name: "b".to_owned(),
            uid: String::new(),
            created: None,
            deleting: false,
            spec: Arc::new(BatchSpec { partial, ..BatchSpec::default() }),
            status,
            newer: None,
        };
        change(&mut batch);
        let mut hasher = std::hash::DefaultHasher::new();
        of_batch(&batch).hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn a_node_that_has_ended_calls_for_a_round_whomever_it_was_for() {
        for partial in [true, false] {
            let before = batch(partial, |_| {});
            assert_ne!(
                batch(partial, |one| one.status.replaced.clear()),
                before,
                "it was taken out of the count before"
            );
            assert_ne!(batch(partial, |one| one.status.replaced[0].state = MemberState::Gone), before);
            assert_ne!(batch(partial, |one| one.status.instances[0].state = MemberState::Gone), before);
            assert_ne!(batch(partial, |one| one.status.count = 2), before);
            assert_ne!(batch(partial, |one| one.status.phase = BatchPhase::Terminating), before);
            assert_ne!(batch(partial, |one| one.status.node_pool = Some("other".to_owned())), before);
        }
    }

    #[test]
    fn a_limit_that_was_raised_calls_for_a_round() {
        let refusals = SchedulerRefusals::default();
        let usable = BTreeSet::from(["general".to_owned()]);
        let state = State::default();
        let of = |generation: i64| {
            let reference = serde_json::json!({"group": "muster.dev", "kind": "EC2NodeClass", "name": "any"});
            let spec = serde_json::json!({"template": {"spec": {"nodeClassRef": reference}}});
            let mut pool = NodePool::new("general", serde_json::from_value(spec).unwrap());
            pool.metadata.generation = Some(generation);
            let pools = Arc::new(BTreeMap::from([("general".to_owned(), Arc::new(pool))]));
            let known = Learnt { refusals: &refusals, refused: 0, paused: 0, disputed: Vec::new() };
            digest(&State { pools, ..state.clone() }, &usable, &known, 1)
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn how_far_nodes_of_a_gang_are_calls_for_no_round() {
        let launched = |one: &mut Batch| one.status.phase = BatchPhase::Launched;
        assert_eq!(batch(false, launched), batch(false, |_| {}));
        assert_ne!(batch(true, launched), batch(true, |_| {}));
        assert_ne!(batch(true, |one| one.deleting = true), batch(true, |_| {}), "its places are nobody's");
    }
}
