//! The gangs of a dump: live members, members their controller has not created yet, and places that need nobody.

mod jobs;
mod owners;
mod trainjobs;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::conventions::{self, Kind, Object, Objects, Recognition};
use muster_api::dra::{DeviceUse, Devices};
use muster_api::volumes::{Used, Volumes};
use muster_api::{keys, pod_state};
use muster_core::model::gang::{Foreign, Invalid, Membership, Pod as CorePod, RankClaim, Recognised};
use muster_core::model::names::{ObjectKey, PodUid};
use muster_core::reason::Code;

use crate::document::Ignored;
use crate::dump::Dump;

pub(crate) use owners::has_ended;
pub(crate) use trainjobs::expand;

/// A pod that exists, or one that its controller will create.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// As core sees it. Its UID is one of ours where the object has none.
    pub(crate) core: Arc<CorePod>,
    /// The object.
    pub(crate) object: Arc<Pod>,
    /// Whether the object exists.
    pub(crate) exists: bool,
    /// Its UID, if it has one.
    pub(crate) uid: Option<String>,
    /// Its priority.
    pub(crate) priority: i32,
}

/// One gang of the dump.
#[derive(Debug)]
pub(crate) struct Found {
    /// What pods and owners say.
    pub(crate) stated: Arc<Recognised>,
    /// Role of the first pod that was read.
    role: Arc<str>,
    /// Live members and those to come, in order of UID.
    pub(crate) members: BTreeMap<PodUid, Known>,
    /// Roles and ranks whose member has done its work.
    pub(crate) done: BTreeSet<(Arc<str>, u32)>,
    /// Further members that have done their work.
    pub(crate) done_unranked: usize,
    /// Highest priority of a member.
    pub(crate) priority: i32,
    /// The first moment anything of it existed.
    pub(crate) created: Option<Timestamp>,
    /// Kind and name of an owner that is suspended.
    pub(crate) suspended: Option<(String, String)>,
    /// A member that cannot be read.
    pub(crate) fault: Option<Invalid>,
}

/// What the pods of a dump are.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Gangs in planning order.
    pub(crate) gangs: Vec<Found>,
    /// Pods of our profile without a gang, and those of which it is not known.
    pub(crate) others: Vec<Known>,
    /// Every pod that exists.
    pub(crate) all: Vec<Known>,
    /// Owners without pods that ask for no gang: their pods come one by one, if at all.
    pub(crate) ignored: Vec<Ignored>,
}

/// What conventions may read: owners by UID, groups by name.
#[derive(Debug, Default)]
struct Owners {
    by_uid: BTreeMap<String, Object>,
    by_name: BTreeMap<(Kind, String, String), String>,
}

impl Owners {
    fn insert(&mut self, mut object: Object) {
        let (namespace, name) = (object.metadata.namespace.clone().unwrap_or_default(), object.name().to_owned());
        let stand_in = || format!("{}/{namespace}/{name}", object.kind.served().plural);
        let uid = object.metadata.uid.clone().unwrap_or_else(stand_in);
        object.metadata.uid = Some(uid.clone());
        self.by_name.insert((object.kind, namespace, name), uid.clone());
        self.by_uid.insert(uid, object);
    }
}

impl Objects for Owners {
    fn by_uid(&self, uid: &str) -> Option<&Object> {
        self.by_uid.get(uid)
    }

    fn by_name(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.by_uid.get(self.by_name.get(&(kind, namespace.to_owned(), name.to_owned()))?)
    }
}

/// Recognises every pod, adds those to come, and orders the gangs.
pub(crate) fn find(dump: &Dump, scheduler_names: &[String]) -> Members {
    let provisioned = dump.record.as_ref().map_or(&[] as &[String], |record| &record.provisioner_scheduler_names);
    let mut finder = Finder {
        scheduler_names,
        provisioned,
        priorities: &dump.priorities,
        volumes: &dump.volumes,
        devices: &dump.devices,
        owners: Owners::default(),
        gangs: BTreeMap::new(),
        ignored: Vec::new(),
    };
    let mut jobs = known_jobs(dump, scheduler_names);
    for job in owners::jobs(dump) {
        jobs.insert(job.metadata.uid.clone().unwrap_or_default(), job);
    }
    for object in dump.objects.iter().cloned().chain(jobs.values().filter_map(object_of)) {
        finder.owners.insert(object);
    }
    let mut found = Members::default();
    for pod in &dump.pods {
        let known = finder.pod(pod);
        if is_of_its_own(&known) {
            found.others.push(known.clone());
        }
        found.all.push(known);
    }
    for (pod, why) in &dump.unreadable {
        found.others.extend(finder.unreadable(pod, why));
    }
    for job in jobs.values() {
        finder.add_uncreated(job, &found.all);
    }
    finder.add_unmade(dump);
    for gang in dump.gangs.iter().filter(|gang| gang.metadata.deletion_timestamp.is_none()) {
        let key = ObjectKey::new(
            gang.metadata.namespace.as_deref().unwrap_or_default(),
            gang.metadata.name.as_deref().unwrap_or_default(),
        );
        if let Some(found) = finder.gangs.get_mut(&key) {
            found.created = earlier(found.created, created(&gang.metadata));
        }
    }
    found.ignored = finder.ignored;
    let gangs = finder.gangs.into_values();
    found.gangs =
        gangs.filter(|gang| !gang.members.is_empty() || gang.suspended.is_some() || gang.fault.is_some()).collect();
    found.gangs.sort_by(|a, b| {
        let key = |gang: &Found| (Reverse(gang.priority), gang.created.is_none(), gang.created);
        let name = |gang: &Found| (gang.stated.key.namespace.clone(), gang.stated.source.identity.clone());
        key(a).cmp(&key(b)).then_with(|| name(a).cmp(&name(b))).then_with(|| a.stated.key.cmp(&b.stated.key))
    });
    found
}

/// Whether a pod is provisioned for, and by itself.
fn is_of_its_own(known: &Known) -> bool {
    let provisioned_for = known.core.ours || known.core.foreign == Foreign::Provisioned;
    // A static pod belongs to its Node: nobody schedules it.
    let is_static = known.object.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Node");
    provisioned_for && !known.core.daemon && !is_static && known.core.membership.gang().is_none()
}

/// The Jobs of the dump under their UIDs. A pod that names gang and size itself needs nothing of its Job but the name.
fn known_jobs(dump: &Dump, scheduler_names: &[String]) -> BTreeMap<String, Job> {
    let mut jobs = BTreeMap::new();
    for job in &dump.jobs {
        let mut job = job.clone();
        let uid = job.metadata.uid.clone().unwrap_or_else(|| format!("job/{}", dump_name(&job.metadata)));
        job.metadata.uid = Some(uid.clone());
        jobs.insert(uid, job);
    }
    for pod in dump.pods.iter().filter(|pod| is_ours(pod, scheduler_names)) {
        let annotations = pod.metadata.annotations.as_ref();
        let says = |key| annotations.is_some_and(|all| all.contains_key(key));
        if !(says(keys::GANG) && says(keys::GANG_SIZE)) {
            continue;
        }
        for owner in pod.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == "Job") {
            jobs.entry(owner.uid.clone()).or_insert_with(|| Job {
                metadata: ObjectMeta {
                    name: Some(owner.name.clone()),
                    namespace: pod.metadata.namespace.clone(),
                    uid: Some(owner.uid.clone()),
                    ..ObjectMeta::default()
                },
                ..Job::default()
            });
        }
    }
    jobs
}

/// A Job as conventions read it.
fn object_of(job: &Job) -> Option<Object> {
    // A typed object writes its own version and kind.
    Object::read(&serde_json::to_value(job).ok()?)
}

struct Finder<'a> {
    scheduler_names: &'a [String],
    /// Other profiles that are provisioned for.
    provisioned: &'a [String],
    priorities: &'a [PriorityClass],
    volumes: &'a Volumes,
    devices: &'a Devices,
    owners: Owners,
    gangs: BTreeMap<ObjectKey, Found>,
    ignored: Vec<Ignored>,
}

impl Finder<'_> {
    /// Recognises one pod of the dump; a live member joins its gang.
    fn pod(&mut self, pod: &Pod) -> Known {
        let mut object = pod.clone();
        let uid = object.metadata.uid.clone().filter(|uid| !uid.is_empty());
        if uid.is_none() {
            object.metadata.uid = Some(format!("pod/{}", dump_name(&object.metadata)));
        }
        let Recognition { membership, gang, remade, missing: _, reads: _ } = self.recognise(&object);
        let mut core = self.read(&object, membership, Used::read(&object));
        core.remade = remade;
        // A dump is trusted: it opens no node.
        core.daemon |= pod_state::daemon_set(&object).is_some();
        core.foreign = self.foreign(&object);
        if core.foreign == Foreign::OfGang && core.node.is_none() && core.is_live() {
            let (kind, name) = ("Pod".to_owned(), core.key.to_string());
            self.ignored.push(Ignored { kind, name, why: muster_core::ordinary::FOREIGN_MEMBER.to_owned() });
        }
        let core = Arc::new(core);
        let priority = self.priority(object.spec.as_ref());
        let known = Known { core, object: Arc::new(object), exists: true, uid, priority };
        if let Some(stated) = gang {
            self.join(stated, &known);
        }
        known
    }

    /// A pod as core sees it, with what the claims that it uses ask for.
    fn read(&self, object: &Pod, membership: Membership, used: Option<Used>) -> CorePod {
        let mut core = pod_state::read(object, membership, self.scheduler_names);
        if let Some(used) = used {
            self.volumes.complete(&mut core, &used);
        }
        if let Some(used) = DeviceUse::read(object) {
            self.devices.complete(&mut core, &used);
        }
        core
    }

    fn join(&mut self, stated: Arc<Recognised>, known: &Known) {
        let core = &known.core;
        if core.is_live() {
            let moment = core.created.filter(|_| known.exists);
            let gang = self.gang(stated, &core.membership, known.priority, moment);
            gang.members.insert(core.uid.clone(), known.clone());
        } else if core.ended && !core.running {
            let succeeded =
                known.object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
            let gang = self.gang(stated, &core.membership, i32::MIN, core.created);
            match &core.membership {
                Membership::Member { role, rank: RankClaim::Rank(rank), .. } if succeeded => {
                    gang.done.insert((Arc::clone(role), *rank));
                }
                Membership::Member { .. } if succeeded => gang.done_unranked += 1,
                Membership::Member { .. } | Membership::Unknown | Membership::Single => {}
            }
        }
    }

    /// The gang's entry, with what this pod says added to what others reported.
    fn gang(
        &mut self,
        stated: Arc<Recognised>,
        membership: &Membership,
        priority: i32,
        moment: Option<Timestamp>,
    ) -> &mut Found {
        let role = match membership {
            Membership::Member { role, .. } => Arc::clone(role),
            Membership::Unknown | Membership::Single => Arc::from(""),
        };
        if let Some(known) = self.gangs.get_mut(&stated.key)
            && let Some(merged) = conventions::merge([(&known.role, &known.stated), (&role, &stated)].into_iter())
        {
            known.stated = merged;
        }
        let gang = self.gangs.entry(stated.key.clone()).or_insert_with(|| Found {
            stated,
            role,
            members: BTreeMap::new(),
            done: BTreeSet::new(),
            done_unranked: 0,
            priority: i32::MIN,
            created: None,
            suspended: None,
            fault: None,
        });
        gang.priority = gang.priority.max(priority);
        gang.created = earlier(gang.created, moment);
        gang
    }

    /// A member whose requests cannot be read makes its gang invalid: it cannot be planned around. A pod of no gang has no place.
    fn unreadable(&mut self, pod: &Pod, why: &str) -> Option<Known> {
        let priority = self.priority(pod.spec.as_ref());
        let Recognition { membership, gang, .. } = self.recognise(pod);
        if let Some(stated) = gang {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let invalid = Invalid { reason: Code::BadPod, message: format!("pod {name}: {why}") };
            self.gang(stated, &membership, priority, created(&pod.metadata)).fault.get_or_insert(invalid);
            return None;
        }
        let known = self.pod(pod);
        let core = CorePod { shape: Err(why.into()), ..(*known.core).clone() };
        Some(Known { core: Arc::new(core), ..known }).filter(is_of_its_own)
    }

    /// What a pod is to the provisioner whose profile is not ours.
    fn foreign(&self, pod: &Pod) -> Foreign {
        if !pod_state::is_foreign(pod, self.scheduler_names, self.provisioned) {
            return Foreign::Other;
        }
        pod_state::foreign(&conventions::recognise(pod, &self.owners).membership)
    }

    fn recognise(&self, pod: &Pod) -> Recognition {
        if is_ours(pod, self.scheduler_names) {
            return conventions::recognise(pod, &self.owners);
        }
        // A pod that names another scheduler is other people's usage, nothing more.
        Recognition::single(BTreeSet::new())
    }

    /// The priority admission gave the pod, or would give it.
    fn priority(&self, spec: Option<&PodSpec>) -> i32 {
        let Some(spec) = spec else { return 0 };
        if let Some(priority) = spec.priority {
            return priority;
        }
        match spec.priority_class_name.as_deref().filter(|name| !name.is_empty()) {
            Some("system-node-critical") => 2_000_001_000,
            Some("system-cluster-critical") => 2_000_000_000,
            Some(name) => {
                let class = self.priorities.iter().find(|class| class.metadata.name.as_deref() == Some(name));
                class.map_or(0, |class| class.value)
            }
            None => {
                let class = self.priorities.iter().find(|class| class.global_default == Some(true));
                class.map_or(0, |class| class.value)
            }
        }
    }
}

fn is_ours(pod: &Pod, scheduler_names: &[String]) -> bool {
    let named = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).filter(|name| !name.is_empty());
    let name = named.unwrap_or(pod_state::DEFAULT_SCHEDULER);
    scheduler_names.iter().any(|ours| ours == name)
}

fn dump_name(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
