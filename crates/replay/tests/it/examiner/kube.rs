//! kube-scheduler's filters as its documentation describes them, on objects as they stand in a dump.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

pub(super) type Labels = BTreeMap<String, String>;

/// One requirement on labels, of a node selector or of a label selector.
#[derive(Clone, Debug)]
pub(super) struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        let number = |text: &String| text.parse::<i64>().ok();
        let compared = |order: std::cmp::Ordering| {
            let pair = label.and_then(number).zip(self.values.first().and_then(number));
            pair.is_some_and(|(have, than)| have.cmp(&than) == order)
        };
        match self.operator.as_str() {
            "In" => label.is_some_and(|label| self.values.contains(label)),
            "NotIn" => label.is_none_or(|label| !self.values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            "Gt" => compared(std::cmp::Ordering::Greater),
            "Lt" => compared(std::cmp::Ordering::Less),
            other => panic!("operator {other}"),
        }
    }
}

/// Requirements of an array of objects with `key`, `operator` and `values`.
pub(super) fn requirements(list: &Value) -> Vec<Requirement> {
    let of = |one: &Value| Requirement {
        key: text(&one["key"]),
        operator: text(&one["operator"]),
        values: items(&one["values"]).iter().map(text).collect(),
    };
    items(list).iter().map(of).collect()
}

pub(super) fn all_hold(requirements: &[Requirement], labels: &Labels) -> bool {
    requirements.iter().all(|one| one.holds(labels))
}

/// A label selector with its topology key.
#[derive(Clone, Debug)]
pub(super) struct Term {
    key: String,
    selector: Vec<Requirement>,
    /// `None`: all of them.
    namespaces: Option<BTreeSet<String>>,
}

impl Term {
    fn of(value: &Value, own: &str) -> Self {
        let mut namespaces: BTreeSet<String> = items(&value["namespaces"]).iter().map(text).collect();
        if namespaces.is_empty() {
            namespaces.insert(own.to_owned());
        }
        let everywhere = value["namespaceSelector"].is_object();
        Self {
            key: text(&value["topologyKey"]),
            selector: selector(&value["labelSelector"]),
            namespaces: (!everywhere).then_some(namespaces),
        }
    }

    fn matches(&self, pod: &Pod) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.contains(&pod.namespace))
            && all_hold(&self.selector, &pod.labels)
    }
}

fn selector(value: &Value) -> Vec<Requirement> {
    let equal = value["matchLabels"].as_object().into_iter().flatten();
    let equal = equal.map(|(key, value)| Requirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: vec![text(value)],
    });
    equal.chain(requirements(&value["matchExpressions"])).collect()
}

/// One topology spread constraint.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    pub(super) key: String,
    max_skew: i64,
    min_domains: usize,
    selector: Vec<Requirement>,
    honors_taints: bool,
}

/// What a pod asks of other pods or of nodes, required or preferred.
#[derive(Clone, Debug)]
pub(super) enum Rule {
    Near(Vec<Term>),
    Away(Term),
    Spread(Spread),
    Nodes(Vec<Requirement>),
    SoftTaints,
}

/// A preference, by the name it has in the document.
#[derive(Clone, Debug)]
pub(super) struct Preference {
    pub(super) what: &'static str,
    pub(super) index: usize,
    pub(super) weight: Option<i64>,
    pub(super) rule: Rule,
}

/// A pod of the dump.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) created: String,
    pub(super) priority: i64,
    /// Bound, or named for it by `status.nominatedNodeName`.
    pub(super) node: Option<String>,
    pub(super) nominated: Option<String>,
    pub(super) stays_out: bool,
    pub(super) cpu: i64,
    pub(super) memory: i64,
    ports: BTreeSet<i64>,
    /// ORed terms.
    selection: Vec<Vec<Requirement>>,
    tolerations: Vec<Value>,
    required: Vec<Rule>,
    /// In the order in which they are dropped.
    pub(super) preferences: Vec<Preference>,
}

impl Pod {
    pub(super) fn of(object: &Value) -> Self {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let namespace = text(&meta["namespace"]);
        let container = &spec["containers"][0];
        let all: Vec<Requirement> = selector(&serde_json::json!({"matchLabels": spec["nodeSelector"]}));
        let affinity = &spec["affinity"];
        let terms =
            items(&affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]);
        let selection = if terms.is_empty() {
            vec![all]
        } else {
            let with = |term: &Value| {
                let mut one = all.clone();
                one.extend(requirements(&term["matchExpressions"]));
                one
            };
            terms.iter().map(with).collect::<Vec<_>>()
        };
        let list = |kind: &str, required: bool| {
            let when = if required { "required" } else { "preferred" };
            items(&affinity[kind][format!("{when}DuringSchedulingIgnoredDuringExecution")]).to_vec()
        };
        let mut required: Vec<Rule> = Vec::new();
        let near: Vec<Term> = list("podAffinity", true).iter().map(|term| Term::of(term, &namespace)).collect();
        if !near.is_empty() {
            required.push(Rule::Near(near));
        }
        required.extend(list("podAntiAffinity", true).iter().map(|term| Rule::Away(Term::of(term, &namespace))));
        let mut preferences: Vec<Preference> = Vec::new();
        let preferred = |what: &'static str, rule: &dyn Fn(&Value) -> Rule| {
            let of = |(index, one): (usize, &Value)| Preference {
                what,
                index,
                weight: one["weight"].as_i64(),
                rule: rule(one),
            };
            let mut all: Vec<Preference> = list(what, false).iter().enumerate().map(of).collect();
            all.sort_by_key(|one| (one.weight, one.index));
            all
        };
        preferences
            .extend(preferred("podAffinity", &|one| Rule::Near(vec![Term::of(&one["podAffinityTerm"], &namespace)])));
        preferences
            .extend(preferred("podAntiAffinity", &|one| Rule::Away(Term::of(&one["podAffinityTerm"], &namespace))));
        preferences.extend(preferred("nodeAffinity", &|one| {
            Rule::Nodes(requirements(&one["preference"]["matchExpressions"]))
        }));
        for (index, one) in items(&spec["topologySpreadConstraints"]).iter().enumerate() {
            let rule = Rule::Spread(Spread {
                key: text(&one["topologyKey"]),
                max_skew: one["maxSkew"].as_i64().unwrap(),
                min_domains: one["minDomains"].as_u64().map_or(1, |number| usize::try_from(number).unwrap()),
                selector: selector(&one["labelSelector"]),
                honors_taints: one["nodeTaintsPolicy"] == "Honor",
            });
            if one["whenUnsatisfiable"] == "DoNotSchedule" {
                required.push(rule);
            } else {
                preferences.push(Preference { what: "topologySpread", index, weight: None, rule });
            }
        }
        preferences.push(Preference { what: "taint", index: 0, weight: None, rule: Rule::SoftTaints });
        Self {
            name: text(&meta["name"]),
            labels: labels(&meta["labels"]),
            created: text(&meta["creationTimestamp"]),
            priority: spec["priority"].as_i64().unwrap_or(0),
            node: spec["nodeName"].as_str().map(str::to_owned),
            nominated: object["status"]["nominatedNodeName"].as_str().map(str::to_owned),
            stays_out: meta["annotations"]["muster.dev/do-not-provision"] == "true",
            cpu: milli(&container["resources"]["requests"]["cpu"]),
            memory: bytes(&container["resources"]["requests"]["memory"]),
            ports: items(&container["ports"]).iter().filter_map(|port| port["hostPort"].as_i64()).collect(),
            selection,
            tolerations: items(&spec["tolerations"]).to_vec(),
            required,
            preferences,
            namespace,
        }
    }

    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn tolerates(&self, taint: &Value) -> bool {
        self.tolerations.iter().any(|one| {
            let same = |field: &str| one[field].as_str().unwrap_or("") == taint[field].as_str().unwrap_or("");
            let effect = one["effect"].as_str().is_none_or(|effect| effect == taint["effect"].as_str().unwrap());
            let exists = one["operator"] == "Exists";
            let key = same("key") || exists && one["key"].is_null();
            effect && key && (exists || same("value"))
        })
    }

    /// Whether its node selector and required node affinity hold.
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        self.selection.iter().any(|term| all_hold(term, labels))
    }

    pub(super) fn refuses(&self, node: &Node, effects: &[&str]) -> bool {
        let one = |taint: &&Value| effects.contains(&taint["effect"].as_str().unwrap()) && !self.tolerates(taint);
        node.taints.iter().any(|taint| one(&taint))
    }

    /// Whether an empty node like this one takes it, whatever stands elsewhere.
    pub(super) fn fits_alone(&self, node: &Node) -> bool {
        self.selects(&node.labels)
            && !self.refuses(node, &["NoSchedule", "NoExecute"])
            && self.cpu <= node.cpu
            && self.memory <= node.memory
            && node.pods >= 1
    }

    /// Keys of its spread constraints.
    pub(super) fn spread_keys(&self) -> BTreeSet<String> {
        let preferred = self.preferences.iter().map(|one| &one.rule);
        let spreads = self.required.iter().chain(preferred).filter_map(|rule| match rule {
            Rule::Spread(spread) => Some(spread.key.clone()),
            _ => None,
        });
        spreads.collect()
    }
}

/// Where a node stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Ready,
    Joining,
    New,
}

/// A node of the dump or of the document.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) phase: Phase,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Value>,
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) pods: i64,
}

/// A pod with its node, and how many of its preferences are dropped there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand<'a> {
    pub(super) pod: &'a Pod,
    pub(super) node: usize,
    pub(super) dropped: usize,
}

/// What a pod's spread counts as domains before there is a node: by key.
pub(super) type Offered = BTreeMap<String, BTreeSet<String>>;

/// Nodes, with the pods that stand on them.
#[derive(Clone, Debug)]
pub(super) struct Cluster<'a> {
    pub(super) nodes: Vec<Node>,
    pub(super) stands: Vec<Stand<'a>>,
}

impl<'a> Cluster<'a> {
    fn domain(&self, key: &str, node: usize) -> Option<String> {
        let node = &self.nodes[node];
        if key == HOSTNAME { Some(node.name.clone()) } else { node.labels.get(key).cloned() }
    }

    fn counted(&self, matches: &dyn Fn(&Pod) -> bool, key: &str, domain: Option<&str>) -> i64 {
        let here = |stand: &&Stand<'_>| {
            let own = self.domain(key, stand.node);
            matches(stand.pod) && own.is_some() && domain.is_none_or(|domain| own.as_deref() == Some(domain))
        };
        i64::try_from(self.stands.iter().filter(here).count()).unwrap()
    }

    /// Why a node does not take one more pod; preferences that are kept bind, but on a node that is Ready.
    pub(super) fn refusal(&self, pod: &Pod, at: usize, dropped: usize, offered: &Offered) -> Option<String> {
        let node = &self.nodes[at];
        let here = || self.stands.iter().filter(|stand| stand.node == at);
        let sum = |of: &dyn Fn(&Pod) -> i64| here().map(|stand| of(stand.pod)).sum::<i64>() + of(pod);
        if sum(&|pod| pod.cpu) > node.cpu || sum(&|pod| pod.memory) > node.memory || sum(&|_| 1) > node.pods {
            return Some("not enough is free".to_owned());
        }
        if !pod.selects(&node.labels) {
            return Some("its node selector does not hold".to_owned());
        }
        if pod.refuses(node, &["NoSchedule", "NoExecute"]) {
            return Some("a taint is not tolerated".to_owned());
        }
        if here().any(|stand| !stand.pod.ports.is_disjoint(&pod.ports)) {
            return Some("a host port is taken".to_owned());
        }
        for stand in &self.stands {
            let theirs = stand.pod.required.iter().filter_map(|rule| match rule {
                Rule::Away(term) => Some(term),
                _ => None,
            });
            for term in theirs.filter(|term| term.matches(pod)) {
                let domain = self.domain(&term.key, at);
                if domain.is_some() && domain == self.domain(&term.key, stand.node) {
                    return Some(format!("{} keeps it away by {}", stand.pod.key(), term.key));
                }
            }
        }
        let required = pod.required.iter();
        let kept = pod.preferences.iter().skip(if node.phase == Phase::Ready { usize::MAX } else { dropped });
        let mut all = required.chain(kept.map(|one| &one.rule));
        all.find(|rule| !self.holds(pod, at, rule, offered)).map(|rule| format!("{rule:?} does not hold"))
    }

    fn holds(&self, pod: &Pod, at: usize, rule: &Rule, offered: &Offered) -> bool {
        match rule {
            Rule::Nodes(requirements) => all_hold(requirements, &self.nodes[at].labels),
            Rule::SoftTaints => !pod.refuses(&self.nodes[at], &["PreferNoSchedule"]),
            Rule::Away(term) => {
                let domain = self.domain(&term.key, at);
                domain.is_none_or(|domain| self.counted(&|one| term.matches(one), &term.key, Some(&domain)) == 0)
            }
            Rule::Near(terms) => {
                let matches = |one: &Pod| terms.iter().all(|term| term.matches(one));
                let nobody = terms.iter().all(|term| self.counted(&matches, &term.key, None) == 0);
                let first = nobody && matches(pod);
                terms.iter().all(|term| match self.domain(&term.key, at) {
                    Some(domain) => first || self.counted(&matches, &term.key, Some(&domain)) > 0,
                    None => false,
                })
            }
            Rule::Spread(spread) => self.within_skew(pod, at, spread, offered),
        }
    }

    fn within_skew(&self, pod: &Pod, at: usize, spread: &Spread, offered: &Offered) -> bool {
        let Some(here) = self.domain(&spread.key, at) else { return false };
        let counts = |node: usize| {
            pod.selects(&self.nodes[node].labels)
                && !(spread.honors_taints && pod.refuses(&self.nodes[node], &["NoSchedule", "NoExecute"]))
        };
        let mut domains: BTreeMap<String, i64> = BTreeMap::new();
        if spread.key != HOSTNAME {
            domains.extend(offered.get(&spread.key).into_iter().flatten().map(|value| (value.clone(), 0)));
        }
        for node in (0..self.nodes.len()).filter(|node| counts(*node)) {
            domains.extend(self.domain(&spread.key, node).filter(|one| !domains.contains_key(one)).map(|one| (one, 0)));
        }
        let selected = |one: &Pod| one.namespace == pod.namespace && all_hold(&spread.selector, &one.labels);
        for stand in self.stands.iter().filter(|stand| selected(stand.pod) && counts(stand.node)) {
            if let Some(count) = self.domain(&spread.key, stand.node).and_then(|one| domains.get_mut(&one)) {
                *count += 1;
            }
        }
        let least = domains.values().min().copied().filter(|_| domains.len() >= spread.min_domains).unwrap_or(0);
        domains.get(&here).copied().unwrap_or(0) + i64::from(selected(pod)) - least <= spread.max_skew
    }

    /// Pods come in their order, those that are refused again and again until no more moves; then anti-affinity is looked at
    /// once more. What is wrong with it.
    pub(super) fn fill(&mut self, pods: &[(Stand<'a>, &Offered)]) -> Vec<String> {
        let mut waiting: Vec<(Stand<'a>, &Offered)> = pods.to_vec();
        loop {
            let before = waiting.len();
            waiting.retain(|(stand, offered)| {
                let refused = self.refusal(stand.pod, stand.node, stand.dropped, offered).is_some();
                if !refused {
                    self.stands.push(*stand);
                }
                refused
            });
            if waiting.len() == before {
                break;
            }
        }
        let why = |(stand, offered): &(Stand<'a>, &Offered)| {
            let refusal = self.refusal(stand.pod, stand.node, stand.dropped, offered).unwrap_or_default();
            format!("{} is refused by {}: {refusal}", stand.pod.key(), self.nodes[stand.node].name)
        };
        let mut faults: Vec<String> = waiting.iter().map(why).collect();
        for (stand, _) in pods {
            for rule in &stand.pod.required {
                let Rule::Away(term) = rule else { continue };
                let Some(domain) = self.domain(&term.key, stand.node) else { continue };
                let own = i64::from(term.matches(stand.pod));
                if self.counted(&|one| term.matches(one), &term.key, Some(&domain)) > own {
                    faults.push(format!("anti-affinity of {} does not hold at the end", stand.pod.key()));
                }
            }
        }
        faults
    }

    /// The same without one of the pods that stand.
    pub(super) fn without(&self, pod: &Pod) -> Self {
        let mut without = self.clone();
        without.stands.retain(|stand| !std::ptr::eq(stand.pod, pod));
        without
    }
}

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn labels(value: &Value) -> Labels {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// CPU in thousandths.
pub(super) fn milli(value: &Value) -> i64 {
    let text = text(value);
    match text.strip_suffix('m') {
        Some(number) => number.parse().unwrap(),
        None => text.parse::<i64>().map_or(0, |number| number * 1000),
    }
}

/// Memory in bytes.
pub(super) fn bytes(value: &Value) -> i64 {
    let text = text(value);
    for (unit, times) in [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<i64>().unwrap() * times;
        }
    }
    text.parse().unwrap_or(0)
}
