//! What the stories are played on: the stack, its workloads, and meddling with the simulated EC2.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster_api::crd::{Gang, NodeBatch};
use muster_api::{batch_state, keys};
use muster_core::model::batch::BatchPhase;
use muster_core::model::gang::Phase;
use muster_ec2_sim::Scenario;
use serde_json::{Value, json};

use super::json::{items, number, text};
use crate::testbed::workloads::{DEMO_COMPLETE_AFTER, TestJob};
use crate::testbed::{Binaries, Identity, Stack, StackOptions, eventually, pools};

/// Members of every gang.
pub(super) const MEMBERS: u16 = 8;
/// Namespace of the jobs.
pub(super) const NAMESPACE: &str = "demo";
/// The gang that stays with `--keep`.
pub(super) const KEPT: &str = "train-4";
/// What is provisioned.
pub(super) const TYPE: &str = "p5.48xlarge";
/// Longest wait for anything that should come: a story takes seconds, and a minute and more on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(240);
/// Quiet time before nodes are terminated, in EC2's time.
const CONSOLIDATE_AFTER: &str = "60s";
/// EC2's seconds from the launch to `running`: the order of large machines.
const BOOT: u32 = 60;
/// Real seconds that booting takes at least. Our own calls do not run faster with `--speed`: a rollback would come after machines
/// run, and be billed, though real ones boot for much longer than it takes.
const BOOT_REAL: u32 = 4;

/// The running stack with a namespace and a pool.
pub(super) struct Stage {
    pub(super) stack: Stack,
    client: Client,
    kubectl: PathBuf,
    muster: PathBuf,
    /// A Job that is larger than the ceiling allows.
    next: PathBuf,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("stack", &self.stack).finish_non_exhaustive()
    }
}

impl Stage {
    pub(super) async fn start(repository: PathBuf, binaries: Binaries, speed: u32) -> anyhow::Result<Self> {
        let mut scenario = Scenario::demo();
        scenario.delays.boot_seconds = f64::from(BOOT.max(BOOT_REAL * speed));
        let muster = std::env::current_exe().context("find this program")?;
        let kubectl = binaries.kubectl();
        let next = repository.join("crates/viewer/recordings/next.yaml");
        let mut options = StackOptions::new(repository, binaries, muster.clone());
        options.scenario = Some(serde_json::to_value(&scenario)?);
        options.factor = speed;
        // Four times what the gang costs.
        options.config = serde_json::json!({"provisioner": {"maxUsdPerHour": "2000"}});
        let stack = Stack::start(options).await?;
        let client = stack.admin()?;
        stack.cluster.create_namespace(NAMESPACE).await?;
        let (class, pool) = pools::p5(CONSOLIDATE_AFTER)?;
        pools::create(&client, &class, &pool).await?;
        Ok(Self { stack, client, kubectl, muster, next })
    }

    /// Submits a training Job: eight members of eight GPUs, a gang by one annotation.
    pub(super) async fn submit(&self, name: &str) -> anyhow::Result<()> {
        let job = TestJob::new(name, MEMBERS).gpus(8).ignores_disruptions().pod_annotation(keys::GANG, name).build();
        self.jobs().create(&PostParams::default(), &job).await.with_context(|| format!("create Job {name}"))?;
        Ok(())
    }

    /// Waits until all members run, the gang is bound and its nodes are in use.
    pub(super) async fn runs(&self, name: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let gangs: Api<Gang> = Api::namespaced(self.client.clone(), NAMESPACE);
        let batches: Api<NodeBatch> = Api::all(self.client.clone());
        let (pods, gangs, batches) = (&pods, &gangs, &batches);
        eventually(DEADLINE, format!("{MEMBERS} members of {name} to run"), || async move {
            let all = ListParams::default();
            let members = pods.list(&all.clone().labels(&format!("batch.kubernetes.io/job-name={name}"))).await?;
            let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
            let running = members.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count();
            let gang = gangs.list(&all).await?.into_iter().find(|gang| gang.spec.source.identity == name);
            let bound = gang
                .as_ref()
                .and_then(|gang| gang.status.as_ref())
                .is_some_and(|status| status.phase == Phase::Bound.as_str());
            let gang = gang.map(|gang| gang.name_any()).unwrap_or_default();
            let used = batches.list(&all).await?.into_iter().any(|batch| {
                batch.spec.gang_ref.as_ref().is_some_and(|owner| owner.name == gang)
                    && batch_state::read(&batch).status.phase == BatchPhase::InUse
            });
            Ok::<_, kube::Error>((running == usize::from(MEMBERS) && bound && used).then_some(()))
        })
        .await?;
        Ok(())
    }

    /// The members of a Job exit with 0, as if the training were done.
    pub(super) async fn complete(&self, name: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let params = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        for pod in pods.list(&params).await.context("list the members")? {
            let patch = json!({"metadata": {"annotations": {DEMO_COMPLETE_AFTER: "1s"}}});
            pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .context("complete a member")?;
        }
        Ok(())
    }

    /// Deletes a Job with its pods.
    pub(super) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.jobs()
            .delete(name, &DeleteParams::background())
            .await
            .map(|_| ())
            .with_context(|| format!("delete Job {name}"))
    }

    /// Waits until there is no node, no batch, no instance and no placement group.
    pub(super) async fn nothing_is_left(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let batches: Api<NodeBatch> = Api::all(self.client.clone());
        let (nodes, batches, stack) = (&nodes, &batches, &self.stack);
        eventually(DEADLINE, "everything to be terminated", || async move {
            let all = ListParams::default();
            let nodes = nodes.list(&all).await.map_err(|error| error.to_string())?.items.len();
            let batches = batches.list(&all).await.map_err(|error| error.to_string())?.items.len();
            let state: Value = stack.sim("/_sim/state").await.map_err(|error| error.to_string())?;
            let groups = items(&state, "/placementGroups").count();
            let instances = items(&state, "/instances").filter(|one| text(one, "/state") != "terminated").count();
            if nodes + batches + groups + instances == 0 {
                return Ok(Some(()));
            }
            Err(format!("{nodes} nodes, {batches} batches, {instances} instances, {groups} placement groups left"))
        })
        .await?;
        Ok(())
    }

    /// Leaves `free` hosts of the type in the zone, in one spine; the answer undoes it.
    pub(super) async fn shrink(&self, zone: &str, free: u64) -> anyhow::Result<Vec<Value>> {
        let state: Value = self.stack.sim("/_sim/state").await?;
        let pool = items(&state, "/pools").find(|pool| {
            text(pool, "/type") == TYPE && text(pool, "/zone") == zone && text(pool, "/market") == "on-demand"
        });
        let pool = pool.with_context(|| format!("the simulated EC2 has no {TYPE} in {zone}"))?;
        let capacity = |spine: &Value| items(spine, "/leaves").map(|leaf| number(leaf, "/free")).sum::<u64>();
        let roomiest =
            items(pool, "/spines").enumerate().max_by_key(|(_, spine)| capacity(spine)).map(|(index, _)| index);
        let mut left = free;
        let mut undo = Vec::new();
        for (spine, leaves) in items(pool, "/spines").enumerate() {
            for (leaf, hosts) in items(leaves, "/leaves").enumerate() {
                let has = number(hosts, "/free");
                let kept = if Some(spine) == roomiest { has.min(left) } else { 0 };
                left -= kept;
                let change = |add: i64| json!({"type": TYPE, "zone": zone, "spine": spine, "leaf": leaf, "add": add});
                let taken = i64::try_from(has - kept).unwrap_or(0);
                if taken > 0 {
                    self.stack.sim_post("/_sim/pools", &change(-taken)).await?;
                    undo.push(change(taken));
                }
            }
        }
        Ok(undo)
    }

    /// Changes pools of the simulated EC2.
    pub(super) async fn change_pools(&self, changes: &[Value]) -> anyhow::Result<()> {
        for change in changes {
            self.stack.sim_post("/_sim/pools", change).await?;
        }
        Ok(())
    }

    /// The next CreateFleet launches this many instances, whatever its minimum says.
    pub(super) async fn violate(&self, launch: u32) -> anyhow::Result<()> {
        let fault = json!({"operation": "CreateFleet", "count": 1, "kind": {"violating": {"launch": launch}}});
        self.stack.sim_post("/_sim/faults", &fault).await?;
        Ok(())
    }

    /// The zone that the first attempt of the newest batch asked for.
    pub(super) async fn first_zone(&self) -> anyhow::Result<String> {
        let batches: Api<NodeBatch> = Api::all(self.client.clone());
        let batches = batches.list(&ListParams::default()).await.context("list the NodeBatches")?;
        let newest = batches.into_iter().max_by_key(ResourceExt::creation_timestamp);
        let first = newest.and_then(|batch| batch.status?.attempts.into_iter().next());
        first.map(|attempt| attempt.zone).context("no NodeBatch has an attempt")
    }

    /// What to type to look around.
    pub(super) fn how_to_look(&self) -> String {
        let (kubectl, muster) = (self.kubectl.display(), self.muster.display());
        format!(
            "Everything runs until Ctrl-C. Look around in another terminal:\n\n  \
             export KUBECONFIG={}\n  \
             {muster} top        # nodes, gangs, NodeBatches, dollars; q ends\n  \
             {muster} ui         # the same as a page\n  \
             {muster} explain gang {KEPT} -n {NAMESPACE}\n  \
             {kubectl} get gangs,nodebatches,nodepools -A\n  \
             {kubectl} describe gang,job -n {NAMESPACE}\n  \
             {kubectl} get pods -n {NAMESPACE} -o wide\n\n\
             EC2's time runs faster than theirs: what they say was spent is what the last change of a NodeBatch summed up.\n\n\
             And another gang, which is too large for the dollars that may be spent here:\n\n  \
             {kubectl} create -f {}\n  \
             {muster} explain gang next -n {NAMESPACE}\n",
            self.stack.cluster.kubeconfig(Identity::Admin).display(),
            self.next.display()
        )
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}
