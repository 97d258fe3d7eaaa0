//! A row of the table: who places the pods, and on what.

use anyhow::Context as _;
use muster::testbed::{ClusterOptions, SchedulerOptions, Stack, TestCluster};
use serde_json::json;

use crate::place::{self, Load, Outcome};
use crate::{Bench, GANG, profiling};

const NATIVE_GATES: &str = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true";
const NATIVE_APIS: &str = "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true";

/// Who places the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// kube-scheduler alone, pod by pod.
    Stock,
    /// kube-scheduler alone, by its own groups with a required level. Kubernetes 1.37 has no preferred one.
    Native,
    /// Muster, by groups of Kubernetes with a required level, and a preferred one below it.
    Preferred,
    /// Muster, by its own gangs.
    Muster,
    /// The same of pods that an owner makes again, nominated …
    Nominate,
    /// … and pinned.
    Pin,
}

impl Who {
    const ALL: [Self; 6] = [Self::Stock, Self::Native, Self::Preferred, Self::Muster, Self::Nominate, Self::Pin];

    fn key(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Native => "native",
            Self::Preferred => "preferred",
            Self::Muster => "muster",
            Self::Nominate => "nominate",
            Self::Pin => "pin",
        }
    }

    /// Whether Muster places them.
    pub(crate) fn is_muster(self) -> bool {
        match self {
            Self::Stock | Self::Native => false,
            Self::Preferred | Self::Muster | Self::Nominate | Self::Pin => true,
        }
    }

    /// Whether the pods are of groups of Kubernetes.
    pub(crate) fn is_native(self) -> bool {
        matches!(self, Self::Native | Self::Preferred)
    }

    /// Whether an owner makes deleted pods again and counts no failure.
    pub(crate) fn is_owned(self) -> bool {
        matches!(self, Self::Nominate | Self::Pin)
    }
}

/// Who, and on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) who: Who,
    /// etcd waits for its disk.
    pub(crate) fsync: bool,
    /// Leaves of several sizes, most of whose nodes are in use.
    pub(crate) fragmented: bool,
}

impl Row {
    /// Without anything behind it.
    pub(crate) fn plain(who: Who) -> Self {
        Self { who, fsync: false, fragmented: false }
    }

    /// Reads `pin+fsync`.
    pub(crate) fn parse(key: &str) -> anyhow::Result<Self> {
        let mut parts = key.split('+');
        let name = parts.next().unwrap_or_default();
        anyhow::ensure!(!crate::OTHERS.contains(&name), "ROWS: {name} takes nothing behind it, and not \"{key}\"");
        let who = Who::ALL.into_iter().find(|who| who.key() == name);
        let known = || Who::ALL.map(Who::key).into_iter().chain(crate::OTHERS).collect::<Vec<&str>>().join(",");
        let who = who.with_context(|| {
            format!(
                "ROWS: there is no row \"{name}\"; write some of {}; behind the first six +fsync, +fragmented",
                known()
            )
        })?;
        let mut row = Self::plain(who);
        for part in parts {
            match part {
                "fsync" => row.fsync = true,
                "fragmented" => row.fragmented = true,
                other => anyhow::bail!("ROWS: \"{other}\" behind {name} is neither fsync nor fragmented"),
            }
        }
        Ok(row)
    }

    pub(crate) fn key(self) -> String {
        let fsync = if self.fsync { "+fsync" } else { "" };
        let fragmented = if self.fragmented { "+fragmented" } else { "" };
        format!("{}{fsync}{fragmented}", self.who.key())
    }

    pub(crate) fn title(self) -> String {
        let title = match self.who {
            Who::Stock => "stock, pod by pod".to_owned(),
            Who::Native => format!("native gangs of {GANG}, one level"),
            Who::Preferred => format!("muster, native gangs of {GANG}"),
            Who::Muster => format!("muster, gangs of {GANG}, all levels"),
            Who::Nominate => format!("muster, owned gangs of {GANG}"),
            Who::Pin => "  … pinned".to_owned(),
        };
        let more = self.key();
        match more.split_once('+') {
            Some((_, more)) => format!("{title}, {more}"),
            None => title,
        }
    }

    pub(crate) async fn run(self, bench: &Bench, nodes: usize, pods: usize) -> anyhow::Result<Outcome> {
        let load = Load { nodes, pods: self::pods(nodes, pods, self.fragmented), row: self };
        let native =
            if self.who.is_native() { vec![NATIVE_GATES.to_owned(), NATIVE_APIS.to_owned()] } else { Vec::new() };
        if self.who.is_muster() {
            let mut options = bench.options();
            options.fsync = self.fsync;
            options.api_server_args.extend(native);
            if self.who.is_native() {
                options.scheduler_args.push(NATIVE_GATES.to_owned());
            }
            if self.who == Who::Pin {
                options.config = json!({"release": {"pin": "auto"}});
            }
            let stack = Stack::start(options).await?;
            return place::run(&stack.cluster, &load).await;
        }
        let mut options = ClusterOptions::new(&bench.repository, bench.binaries.clone());
        let mut scheduler = SchedulerOptions { file: "default-scheduler.yaml", ..SchedulerOptions::new(None) };
        options.fsync = self.fsync;
        options.measured = true;
        options.api_server_args = profiling();
        options.api_server_args.extend(native);
        if self.who.is_native() {
            scheduler.args = vec![NATIVE_GATES.to_owned()];
        }
        let cluster = TestCluster::start(options).await?;
        cluster.start_scheduler(&scheduler).await?;
        place::run(&cluster, &load).await
    }
}

/// Pods of a run: where most nodes are in use, half of what is free, a whole node each, so that there is a choice.
pub(crate) fn pods(nodes: usize, pods: usize, fragmented: bool) -> usize {
    if fragmented { (nodes / 5 / GANG * GANG).max(GANG) } else { pods }
}
