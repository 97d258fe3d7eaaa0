//! A virtual EC2: what it has, what it launched, and when that can be seen. Written from what AWS documents.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{Change, Look, Made, Sight};
use muster_core::ec2::{CallError, classify};
use muster_core::ec2::{FleetError, LaunchAnswer, LaunchParameters, LaunchWay, LaunchedInstance};
use muster_core::ec2::{GroupState, Instance, InstanceState, PlacementGroup, StateReason};
use muster_core::ec2::{ResourceKind, TAG_BATCH, TAG_CLUSTER_UID, Tags};
use muster_core::model::names::InstanceId;
use muster_core::offering::Pool;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

pub(super) const CLUSTER_UID: &str = "cluster-uid";

/// An instance, and when what can be known of it.
#[derive(Debug)]
pub(super) struct Vm {
    pub(super) instance: Instance,
    /// Instances that one execution of a launch call made.
    pub(super) launch: u32,
    pub(super) spine: usize,
    pub(super) reservation: Option<String>,
    by_id: Timestamp,
    by_tag: Timestamp,
    runs: Timestamp,
    ended: Option<Timestamp>,
    terminated: Option<Timestamp>,
    /// The state before its end began, and until when it is still described.
    stale: Option<(InstanceState, Timestamp)>,
}

impl Vm {
    /// Whether it is or will be serving.
    pub(super) fn live(&self) -> bool {
        self.instance.state.live()
    }
}

/// One execution of a launch call.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) batch: String,
    pub(super) attempt: u32,
    pub(super) count: u32,
    /// The call arrived when its batch had given the attempt up.
    pub(super) late: bool,
}

#[derive(Debug)]
struct Group {
    seen: PlacementGroup,
    available: Timestamp,
}

/// What a reservation holds.
#[derive(Debug)]
pub(super) struct Hosts {
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) group: Option<String>,
    pub(super) total: u32,
}

/// How EC2 behaves in one history.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// Longest time until something new is described, in seconds.
    pub(super) lag: i64,
    /// Share of launches whose answer is not what was asked for.
    pub(super) contradicts: f64,
    /// Share of replays answered without ids.
    pub(super) forgets: f64,
    /// Longest time from `shutting-down` to `terminated`, in seconds.
    pub(super) ends_within: i64,
    /// Instances, those shutting down included.
    pub(super) quota: usize,
    pub(super) fleets: usize,
    pub(super) groups: usize,
}

/// The account.
#[derive(Debug)]
pub(super) struct Ec2 {
    pub(super) now: Timestamp,
    pub(super) habits: Habits,
    /// Instances of this type end as they boot.
    pub(super) ends: Option<String>,
    /// Free hosts by type and zone, spine by spine.
    pub(super) free: BTreeMap<(String, String), Vec<u32>>,
    pub(super) vms: BTreeMap<InstanceId, Vm>,
    pub(super) launches: Vec<Launch>,
    pub(super) reservations: BTreeMap<String, Hosts>,
    groups: BTreeMap<String, Group>,
    templates: BTreeMap<String, (String, Tags)>,
    pub(super) tokens: BTreeMap<String, (LaunchParameters, LaunchAnswer)>,
    fleets: BTreeMap<String, BTreeSet<InstanceId>>,
    /// What must never happen, if it has.
    pub(super) wrong: Option<String>,
    next: u32,
    /// How many calls came that change something.
    pub(super) changes: usize,
    /// How often EC2 did what is rare.
    pub(super) rare: BTreeMap<&'static str, u32>,
}

/// An error as EC2 sends it.
pub(super) fn error(operation: &str, code: Option<&str>, status: Option<u16>) -> CallError {
    CallError {
        operation: operation.to_owned(),
        kind: classify(code, status),
        code: code.map(str::to_owned),
        message: code.unwrap_or("timed out").to_owned(),
        http_status: status,
        request_id: None,
    }
}

fn refuse<T>(operation: &str, code: &str) -> Result<T, CallError> {
    Err(error(operation, Some(code), Some(400)))
}

/// EC2's name of the call that a change is.
pub(super) fn operation(change: &Change) -> &'static str {
    match change {
        Change::CreateGroup { .. } => "CreatePlacementGroup",
        Change::DeleteGroup(_) => "DeletePlacementGroup",
        Change::CreateTemplate(_) => "CreateLaunchTemplate",
        Change::DeleteTemplates(_) => "DeleteLaunchTemplate",
        Change::Launch { parameters, .. } => match parameters.way {
            LaunchWay::Fleet => "CreateFleet",
            LaunchWay::Run => "RunInstances",
        },
        Change::Terminate(_) => "TerminateInstances",
        Change::DeleteFinishedFleets => "DeleteFleets",
    }
}

impl Ec2 {
    pub(super) fn new(now: Timestamp, habits: Habits) -> Self {
        Self {
            now,
            habits,
            ends: None,
            free: BTreeMap::new(),
            vms: BTreeMap::new(),
            launches: Vec::new(),
            reservations: BTreeMap::new(),
            groups: BTreeMap::new(),
            templates: BTreeMap::new(),
            tokens: BTreeMap::new(),
            fleets: BTreeMap::new(),
            wrong: None,
            next: 0,
            changes: 0,
            rare: BTreeMap::new(),
        }
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(super) fn rare(&mut self, what: &'static str) {
        *self.rare.entry(what).or_default() += 1;
    }

    fn after(&self, rng: &mut ChaCha8Rng, seconds: i64) -> Timestamp {
        self.now + SignedDuration::from_millis(rng.random_range(0..=seconds * 1000))
    }

    /// A group of somebody else, under a name of ours or with a reservation in it.
    pub(super) fn foreign_group(&mut self, name: &str) {
        let seen = PlacementGroup {
            name: name.to_owned(),
            id: format!("pg-{name}"),
            state: GroupState::Available,
            strategy: "cluster".to_owned(),
            tags: Tags::new(),
        };
        self.groups.insert(name.to_owned(), Group { seen, available: self.now });
    }

    /// Time passes: instances start and end.
    pub(super) fn pass_time(&mut self, now: Timestamp) {
        self.now = now;
        for vm in self.vms.values_mut() {
            if vm.ended.is_some_and(|at| at <= now) && vm.instance.state == InstanceState::ShuttingDown {
                vm.instance.state = InstanceState::Terminated;
                vm.terminated = Some(now);
                if vm.reservation.is_none() {
                    let key = (vm.instance.instance_type.clone(), vm.instance.zone.clone());
                    let spines = self.free.entry(key).or_default();
                    spines.resize(spines.len().max(vm.spine + 1), 0);
                    spines[vm.spine] += 1;
                }
            }
            if vm.instance.state == InstanceState::Pending && vm.runs <= now {
                vm.instance.state = InstanceState::Running;
                if self.ends.as_ref() == Some(&vm.instance.instance_type) {
                    let (code, message) = ("Client.InternalError".to_owned(), String::new());
                    vm.instance.state = InstanceState::ShuttingDown;
                    vm.instance.state_reason = Some(StateReason { code, message });
                    (vm.instance.ended, vm.ended) = (Some(now), Some(now));
                }
            }
        }
    }

    /// When something happens by itself next.
    pub(super) fn next_event(&self) -> Option<Timestamp> {
        let of = |vm: &Vm| match vm.instance.state {
            InstanceState::Pending => Some(vm.runs),
            InstanceState::ShuttingDown => vm.ended,
            _ => None,
        };
        self.vms.values().filter_map(of).min()
    }

    /// Begins the end of an instance, whoever wants it.
    pub(super) fn end(&mut self, id: &InstanceId, code: &str, rng: &mut ChaCha8Rng) {
        let ended = self.after(rng, self.habits.ends_within);
        let stale = self.after(rng, self.habits.lag.min(3));
        let Some(vm) = self.vms.get_mut(id) else { return };
        if matches!(vm.instance.state, InstanceState::ShuttingDown | InstanceState::Terminated) {
            return;
        }
        vm.stale = Some((vm.instance.state, stale));
        vm.instance.state = InstanceState::ShuttingDown;
        vm.instance.state_reason = Some(StateReason { code: code.to_owned(), message: String::new() });
        vm.instance.ended = Some(self.now);
        vm.ended = Some(ended);
    }

    // ---- Changes ---------------------------------------------------------------------------------------------------

    /// Carries out one change.
    pub(super) fn carry_out(&mut self, change: &Change, rng: &mut ChaCha8Rng) -> Result<Made, CallError> {
        self.changes += 1;
        let operation = operation(change);
        match change {
            Change::CreateGroup { name, tags } => {
                if self.groups.contains_key(name) {
                    return refuse(operation, "InvalidPlacementGroup.Duplicate");
                }
                if self.groups.len() >= self.habits.groups {
                    self.rare("too many groups");
                    return refuse(operation, "PlacementGroupLimitExceeded");
                }
                let seen = PlacementGroup {
                    name: name.clone(),
                    id: format!("pg-{}", self.number()),
                    state: GroupState::Pending,
                    strategy: "cluster".to_owned(),
                    tags: tags.clone(),
                };
                let available = self.after(rng, 3);
                self.groups.insert(name.clone(), Group { seen, available });
                Ok(Made::Nothing)
            }
            Change::DeleteGroup(name) => {
                let Some(group) = self.groups.get(name) else { return Ok(Made::Nothing) };
                if !ours(&group.seen.tags) {
                    self.wrong = Some(format!("the group {name} is deleted, which is not ours"));
                }
                let inside = |vm: &&Vm| vm.instance.placement_group.as_ref() == Some(name);
                if self.vms.values().filter(inside).any(|vm| vm.terminated.is_none()) {
                    self.rare("group in use");
                    return refuse(operation, "InvalidPlacementGroup.InUse");
                }
                self.groups.remove(name);
                Ok(Made::Nothing)
            }
            Change::CreateTemplate(spec) => {
                let name = spec.name();
                if let Some(id) = self.templates.iter().find(|(_, (known, _))| *known == name).map(|(id, _)| id.clone())
                {
                    return Ok(Made::Template { id, version: 1 });
                }
                let id = format!("lt-{}", self.number());
                self.templates.insert(id.clone(), (name, spec.template_tags.clone()));
                Ok(Made::Template { id, version: 1 })
            }
            Change::DeleteTemplates(tags) => {
                self.templates.retain(|_, (_, known)| !tags.own(known));
                Ok(Made::Nothing)
            }
            Change::Launch { parameters, .. } => self.launch(parameters, rng).map(Made::Launched),
            Change::Terminate(ids) => {
                for id in ids {
                    // An id that is not visible yet is excluded, and the call sent again with the rest.
                    let Some(vm) = self.vms.get(id).filter(|vm| vm.by_id <= self.now) else { continue };
                    if !ours(&vm.instance.tags) {
                        self.wrong = Some(format!("{id} is terminated, which is not ours"));
                    }
                    self.end(id, "Client.UserInitiatedShutdown", rng);
                }
                Ok(Made::Nothing)
            }
            Change::DeleteFinishedFleets => {
                let before = self.fleets.len();
                let vms = &self.vms;
                self.fleets.retain(|_, ids| ids.iter().any(|id| vms[id].terminated.is_none()));
                Ok(Made::Fleets(before - self.fleets.len()))
            }
        }
    }

    fn launch(&mut self, parameters: &LaunchParameters, rng: &mut ChaCha8Rng) -> Result<LaunchAnswer, CallError> {
        let fleet = parameters.way == LaunchWay::Fleet;
        let operation = if fleet { "CreateFleet" } else { "RunInstances" };
        if let Some((known, answer)) = self.tokens.get(&parameters.token) {
            if known != parameters {
                self.wrong = Some("a token is sent again with other parameters".to_owned());
                return refuse(operation, "IdempotentParameterMismatch");
            }
            let mut answer = answer.clone();
            let gone = answer.instances.iter().all(|one| self.vms[&one.id].ended.is_some());
            if gone && !fleet {
                self.rare("token spent");
                return refuse(operation, "IdempotentInstanceTerminated");
            }
            if rng.random_bool(self.habits.forgets) {
                self.rare("a replay answered without ids");
                answer.instances.clear();
            }
            return Ok(answer);
        }
        if !self.templates.contains_key(&parameters.template_id) {
            return self.refuse_launch(parameters, "InvalidLaunchTemplateId.NotFound", 400);
        }
        if let Some(group) = &parameters.placement_group {
            if self.groups.get(group).is_none_or(|group| group.available > self.now) {
                return self.refuse_launch(parameters, "InvalidPlacementGroup.Unknown", 400);
            }
            let inside = |vm: &Vm| vm.instance.placement_group.as_ref() == Some(group) && vm.terminated.is_none();
            if self.vms.values().any(|vm| inside(vm) && vm.instance.zone != parameters.zone) {
                self.rare("group bound to another zone");
                return self.refuse_launch(parameters, "InsufficientInstanceCapacity", 500);
            }
        }
        let wanted = usize::try_from(parameters.count).unwrap();
        if self.vms.values().filter(|vm| vm.terminated.is_none()).count() + wanted > self.habits.quota {
            self.rare("quota");
            return self.refuse_launch(parameters, "VcpuLimitExceeded", 400);
        }
        if fleet && self.fleets.len() >= self.habits.fleets {
            self.rare("too many fleets");
            return Err(error(operation, Some("MaxFleetCountExceeded"), Some(400)));
        }
        self.place(parameters, rng)
    }

    /// A refusal: an item of a fleet's answer, or an exception.
    fn refuse_launch(
        &mut self,
        parameters: &LaunchParameters,
        code: &str,
        status: u16,
    ) -> Result<LaunchAnswer, CallError> {
        if parameters.way == LaunchWay::Run {
            return Err(error("RunInstances", Some(code), Some(status)));
        }
        let id = format!("fleet-{}", self.number());
        self.fleets.insert(id.clone(), BTreeSet::new());
        let item = |pool: Pool| FleetError {
            code: code.to_owned(),
            message: String::new(),
            instance_type: Some(pool.instance_type),
            zone: Some(pool.zone),
        };
        // Sometimes there is no item at all.
        let none = status == 500 && self.next.is_multiple_of(7);
        let errors = if none { Vec::new() } else { parameters.pools().into_iter().map(item).collect() };
        let answer = LaunchAnswer { fleet_id: Some(id), request_id: None, instances: Vec::new(), errors };
        self.tokens.insert(parameters.token.clone(), (parameters.clone(), answer.clone()));
        Ok(answer)
    }

    /// What EC2 makes of a fleet that may be several: the first in some order that has all, or else the one that has most.
    fn choose(&mut self, parameters: &LaunchParameters, rng: &mut ChaCha8Rng) -> (String, String) {
        let mut pools: Vec<(String, String)> =
            parameters.pools().into_iter().map(|pool| (pool.instance_type, pool.zone)).collect();
        if pools.len() > 1 {
            let first = rng.random_range(0..pools.len());
            pools.rotate_left(first);
            self.rare("one of several overrides");
        }
        let has = |pool: &(String, String)| self.free.get(pool).map_or(0, |spines| spines.iter().sum::<u32>());
        let has = |pool: &(String, String)| has(pool).min(parameters.count);
        let most = pools.iter().map(has).max().unwrap_or(0);
        pools.into_iter().find(|pool| has(pool) == most).unwrap()
    }

    fn place(&mut self, asked: &LaunchParameters, rng: &mut ChaCha8Rng) -> Result<LaunchAnswer, CallError> {
        let key = self.choose(asked, rng);
        let parameters = &LaunchParameters { instance_type: key.0.clone(), zone: key.1.clone(), ..asked.clone() };
        let into = parameters.reservation.as_ref().map(|target| target.id.clone());
        let mut capacity = match &into {
            Some(id) => {
                let used =
                    self.vms.values().filter(|vm| vm.reservation.as_ref() == Some(id) && vm.terminated.is_none());
                let used = u32::try_from(used.count()).unwrap();
                let hosts = &self.reservations[id];
                if hosts.group != parameters.placement_group {
                    self.rare("a reservation outside of the group");
                    return self.refuse_launch(asked, "InsufficientInstanceCapacity", 500);
                }
                if hosts.total < used + parameters.count {
                    self.rare("reservation full");
                    return self.refuse_launch(asked, "ReservationCapacityExceeded", 400);
                }
                vec![hosts.total - used]
            }
            None => self.free.get(&key).cloned().unwrap_or_default(),
        };
        let all: u32 = capacity.iter().sum();
        let mut count = parameters.count;
        if parameters.partial {
            count = count.min(all);
        }
        if all < count || count == 0 {
            self.rare("no capacity");
            return self.refuse_launch(asked, "InsufficientInstanceCapacity", 500);
        }
        let mut zone = parameters.zone.clone();
        if rng.random_bool(self.habits.contradicts) {
            match rng.random_range(0..3) {
                0 if count > 1 => {
                    self.rare("fewer than asked for");
                    count = rng.random_range(1..count);
                }
                1 if all > count && into.is_none() => {
                    self.rare("more than asked for");
                    count += 1;
                }
                _ => {
                    self.rare("in another zone");
                    zone = "zone-x".to_owned();
                }
            }
        }
        let launch = u32::try_from(self.launches.len()).unwrap();
        let mut instances = Vec::new();
        for _ in 0..count {
            // A group lies on the emptiest spine, and on the next once that is full.
            let fullest = if parameters.placement_group.is_some() {
                (0..capacity.len()).max_by_key(|spine| capacity[*spine]).unwrap()
            } else {
                (0..capacity.len()).find(|spine| capacity[*spine] > 0).unwrap()
            };
            capacity[fullest] -= 1;
            instances.push(self.boot(parameters, launch, fullest, &zone, into.as_ref(), rng));
        }
        if into.is_none() && zone == parameters.zone {
            self.free.insert(key, capacity);
        }
        self.launches.push(Launch {
            batch: parameters.tags.batch_uid.clone(),
            attempt: parameters.tags.attempt,
            count: parameters.count,
            late: false,
        });
        let fleet_id = (parameters.way == LaunchWay::Fleet).then(|| format!("fleet-{}", self.number()));
        if let Some(fleet) = &fleet_id {
            self.fleets.insert(fleet.clone(), instances.iter().map(|one| one.id.clone()).collect());
        }
        let answer = LaunchAnswer { fleet_id, request_id: None, instances, errors: Vec::new() };
        self.tokens.insert(asked.token.clone(), (asked.clone(), answer.clone()));
        Ok(answer)
    }

    fn boot(
        &mut self,
        parameters: &LaunchParameters,
        launch: u32,
        spine: usize,
        zone: &str,
        into: Option<&String>,
        rng: &mut ChaCha8Rng,
    ) -> LaunchedInstance {
        let id = InstanceId::from(format!("i-{:04}", self.number()));
        let lag = self.habits.lag;
        let instance = Instance {
            id: id.clone(),
            state: InstanceState::Pending,
            state_reason: None,
            instance_type: parameters.instance_type.clone(),
            zone: zone.to_owned(),
            private_dns_name: None,
            launch_time: Some(self.now),
            tags: parameters.tags.of(ResourceKind::Instance),
            placement_group: parameters.placement_group.clone(),
            placement_group_id: parameters.placement_group.as_ref().map(|name| format!("pg-{name}")),
            image_id: "ami-1".to_owned(),
            subnet_id: Some(parameters.subnet_id.clone()),
            ended: None,
        };
        let vm = Vm {
            instance,
            launch,
            spine,
            reservation: into.cloned(),
            by_id: self.after(rng, lag),
            by_tag: self.after(rng, lag),
            runs: self.after(rng, 20),
            ended: None,
            terminated: None,
            stale: None,
        };
        self.vms.insert(id.clone(), vm);
        LaunchedInstance { id, instance_type: parameters.instance_type.clone(), zone: zone.to_owned() }
    }

    // ---- Looks -----------------------------------------------------------------------------------------------------

    fn described(&self, vm: &Vm) -> Instance {
        let mut instance = vm.instance.clone();
        if let Some((state, _)) = vm.stale.filter(|(_, until)| *until > self.now) {
            instance.state = state;
            instance.ended = None;
        }
        instance
    }

    fn described_all(&self, which: impl Fn(&Vm) -> bool) -> Vec<Instance> {
        // EC2 forgets what ended long ago.
        let forgotten =
            |vm: &Vm| vm.terminated.is_some_and(|at| self.now.duration_since(at) > SignedDuration::from_mins(10));
        self.vms.values().filter(|vm| which(vm) && !forgotten(vm)).map(|vm| self.described(vm)).collect()
    }

    /// Answers one look at EC2.
    pub(super) fn look(&self, look: &Look) -> Result<Sight, CallError> {
        Ok(match look {
            Look::Instances(ids) => {
                Sight::Instances(self.described_all(|vm| vm.by_id <= self.now && ids.contains(&vm.instance.id)))
            }
            Look::Tagged(tags) => {
                let carries = |vm: &Vm| tags.iter().all(|(key, value)| vm.instance.tags.get(key) == Some(value));
                Sight::Instances(self.described_all(|vm| vm.by_tag <= self.now && carries(vm)))
            }
            Look::Fleet(id) => Sight::Fleet(self.fleets.get(id).map(|ids| {
                let instances = ids.iter().map(|id| {
                    let instance = &self.vms[id].instance;
                    let (instance_type, zone) = (instance.instance_type.clone(), instance.zone.clone());
                    LaunchedInstance { id: id.clone(), instance_type, zone }
                });
                LaunchAnswer {
                    fleet_id: Some(id.clone()),
                    request_id: None,
                    instances: instances.collect(),
                    errors: Vec::new(),
                }
            })),
            Look::Group(name) => Sight::Group(self.groups.get(name).map(|group| {
                let available = group.available <= self.now;
                let state = if available { GroupState::Available } else { GroupState::Pending };
                PlacementGroup { state, ..group.seen.clone() }
            })),
            Look::Topology { ids, .. } => {
                let running = ids
                    .iter()
                    .filter_map(|id| self.vms.get(id))
                    .filter(|vm| vm.instance.state == InstanceState::Running && vm.by_id <= self.now);
                let place = |vm: &Vm| {
                    let zone = &vm.instance.zone;
                    (vm.instance.id.clone(), vec![format!("core-{zone}"), format!("{zone}-{}", vm.spine)])
                };
                Sight::Topology(running.map(place).collect())
            }
            Look::Console(id) => Sight::Console(self.vms.contains_key(id).then(|| "login:".to_owned())),
            Look::Owner(_) | Look::Reservations(_) | Look::IntolerantDaemonSets(_) | Look::Occupied(_) => Sight::Read,
        })
    }

    /// Everything of ours, for the collector.
    pub(super) fn account(&self) -> muster_core::batch::Account {
        let mine = |vm: &Vm| ours(&vm.instance.tags) && vm.by_tag <= self.now;
        let template = |(id, (name, tags)): (&String, &(String, Tags))| muster_core::ec2::LaunchTemplate {
            id: id.clone(),
            name: name.clone(),
            latest_version: 1,
            tags: tags.clone(),
        };
        muster_core::batch::Account {
            instances: self.described_all(mine),
            groups: self.groups.values().map(|group| group.seen.clone()).filter(|group| ours(&group.tags)).collect(),
            templates: self.templates.iter().map(template).collect(),
        }
    }

    /// Deletes a template by its id, as the collector does.
    pub(super) fn delete_template(&mut self, id: &str) {
        self.templates.remove(id);
    }

    /// What of ours is left, for people.
    pub(super) fn left(&self) -> Vec<String> {
        let vms =
            self.vms.values().filter(|vm| vm.terminated.is_none()).map(|vm| {
                format!("{} of {:?}, {:?}", vm.instance.id, vm.instance.tags.get(TAG_BATCH), vm.instance.state)
            });
        let groups = self.groups.values().filter(|group| ours(&group.seen.tags)).map(|group| group.seen.name.clone());
        vms.chain(groups).chain(self.templates.keys().cloned()).collect()
    }
}

pub(super) fn ours(tags: &Tags) -> bool {
    tags.get(TAG_CLUSTER_UID).map(String::as_str) == Some(CLUSTER_UID) && tags.contains_key(TAG_BATCH)
}
