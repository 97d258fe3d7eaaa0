//! The pods of each case, as the API server gets them.

use serde_json::{Value, json};

use crate::machine::NAMESPACE;

/// What is provisioned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Two shapes, half each, without any further constraint.
    Mix,
    /// One shape, spread over nodes as evenly as it can be.
    Spread,
    /// Thirty Deployments of as many shapes.
    Deployments,
    /// Pods that keep apart from each other: a node each.
    Apart,
    /// The same, with five batches full of nodes.
    Nodes,
}

/// How many nodes [`Case::Nodes`] asks for, and [`Case::Apart`].
const NODES: usize = 500;
const APART: usize = 100;
/// Deployments of [`Case::Deployments`].
const DEPLOYMENTS: usize = 30;

impl Case {
    pub(crate) const ALL: [Self; 5] = [Self::Mix, Self::Spread, Self::Deployments, Self::Apart, Self::Nodes];

    /// As `ROWS` names it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Spread => "spread",
            Self::Deployments => "deployments",
            Self::Apart => "apart",
            Self::Nodes => "nodes",
        }
    }

    /// For people.
    pub(crate) fn title(self, pods: usize) -> String {
        match self {
            Self::Mix => format!("{pods} pods, half of 900m/3100Mi and half of 3500m/28Gi"),
            Self::Spread => format!("{pods} pods of 900m/3100Mi spread over hostnames"),
            Self::Deployments => format!("{DEPLOYMENTS} Deployments, {} pods", count_of(pods)),
            Self::Apart => format!("{} pods that keep apart", APART.min(pods)),
            Self::Nodes => format!("{} nodes of a pod each", NODES.min(pods)),
        }
    }

    /// Pods that have to run.
    pub(crate) fn count(self, pods: usize) -> usize {
        match self {
            Self::Mix | Self::Spread => pods,
            Self::Deployments => count_of(pods),
            Self::Apart => APART.min(pods),
            Self::Nodes => NODES.min(pods),
        }
    }

    /// Requests in the order in which they are sent: path and object.
    pub(crate) fn objects(self, pods: usize) -> Vec<(String, Value)> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let same = json!({"labelSelector": {"matchLabels": {"app": "same"}}, "topologyKey": "kubernetes.io/hostname"});
        let spread = json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": {"app": "same"}},
        }]});
        let apart =
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [same]}}});
        let pod = |number: usize, cpu: &str, memory: &str, more: &Value| {
            let object = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("p{number}"), "labels": {"app": "same"}},
                "spec": spec(cpu, memory, more),
            });
            (path.clone(), object)
        };
        let none = json!({});
        match self {
            Self::Mix => (0..pods)
                .map(|number| {
                    let (cpu, memory) = if number.is_multiple_of(2) { ("900m", "3100Mi") } else { ("3500m", "28Gi") };
                    pod(number, cpu, memory, &none)
                })
                .collect(),
            Self::Spread => (0..pods).map(|number| pod(number, "900m", "3100Mi", &spread)).collect(),
            Self::Apart | Self::Nodes => {
                (0..self.count(pods)).map(|number| pod(number, "900m", "3100Mi", &apart)).collect()
            }
            Self::Deployments => (0..DEPLOYMENTS).map(|number| deployment(number, pods)).collect(),
        }
    }

    /// The same for kube-scheduler alone, in a cluster without Muster.
    pub(crate) fn objects_alone(self, pods: usize) -> Vec<(String, Value)> {
        let mut objects = self.objects(pods);
        for (_, object) in &mut objects {
            let of_pods = if self == Self::Deployments { &mut object["spec"]["template"] } else { object };
            of_pods["spec"]["schedulerName"] = json!("default-scheduler");
        }
        objects
    }
}

/// Few large Deployments and many small ones, which need not add up to what was asked for.
fn replicas(number: usize, pods: usize) -> usize {
    (2 * pods * (DEPLOYMENTS - number) / (DEPLOYMENTS * (DEPLOYMENTS + 1))).max(1)
}

fn count_of(pods: usize) -> usize {
    (0..DEPLOYMENTS).map(|number| replicas(number, pods)).sum()
}

fn deployment(number: usize, pods: usize) -> (String, Value) {
    let name = format!("d{number}");
    let labels = json!({"app": name});
    let (cpu, memory) = (format!("{}m", 200 + number % 10 * 350), format!("{}Mi", 400 + number % 7 * 1_100));
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas(number, pods),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec(&cpu, &memory, &json!({}))},
        },
    });
    (format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"), object)
}

pub(crate) fn spec(cpu: &str, memory: &str, more: &Value) -> Value {
    let mut spec = json!({
        "schedulerName": "muster",
        "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
    });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}
