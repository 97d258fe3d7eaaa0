//! The clauses of the contract on one document. Where the contract leaves a choice the document is given the benefit of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::kube::{Cluster, Offered, Phase, Pod, Rule, Stand, all_hold, items, text};
use super::supply::{Offer, Supply, amount};

/// A dump as the contract reads it, and a document about it.
pub(super) struct Examined<'a> {
    supply: &'a Supply,
    document: &'a Value,
    /// Pods that have no node, in planning order.
    pending: Vec<&'a Pod>,
    offered: Vec<Offered>,
    /// The nodes of the dump, with the pods on them, and those of the document.
    before: Cluster<'a>,
    used: Vec<BTreeMap<String, i64>>,
    /// `[node of the document]`: its offer and those of its alternatives.
    chosen: Vec<(usize, Vec<usize>)>,
    faults: Vec<String>,
}

/// The pods of a dump.
pub(super) fn pods(objects: &[Value]) -> Vec<Pod> {
    objects.iter().filter(|one| one["kind"] == "Pod").map(Pod::of).collect()
}

/// What the document does that the contract forbids.
pub(super) fn faults(objects: &[Value], pods: &[Pod], supply: &Supply, document: &Value) -> Vec<String> {
    let (nodes, used) = supply.standing(objects);
    let mut before = Cluster { nodes, stands: Vec::new() };
    let mut pending: Vec<&Pod> = Vec::new();
    for pod in pods {
        match pod.node.as_ref().or(pod.nominated.as_ref()) {
            Some(name) => {
                let node = before.nodes.iter().position(|node| node.name == *name).unwrap();
                before.stands.push(Stand { pod, node, dropped: 0 });
            }
            None => pending.push(pod),
        }
    }
    pending.sort_by_key(|pod| (std::cmp::Reverse(pod.priority), &pod.created, &pod.namespace, &pod.name));
    let offered = pending.iter().map(|pod| supply.offered(pod)).collect();
    let mut examined =
        Examined { supply, document, pending, offered, before, used, chosen: Vec::new(), faults: Vec::new() };
    examined.order(pods);
    if examined.faults.is_empty() && examined.nodes() {
        examined.examine();
    }
    examined.faults
}

impl<'a> Examined<'a> {
    fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    /// P1, P2.
    fn order(&mut self, pods: &[Pod]) {
        let mut wanted: Vec<&Pod> = pods.iter().filter(|pod| pod.node.is_none()).collect();
        wanted.sort_by_key(|pod| (std::cmp::Reverse(pod.priority), &pod.created, &pod.namespace, &pod.name));
        let wanted: Vec<String> = wanted.iter().map(|pod| pod.key()).collect();
        let entries = items(&self.document["pods"]);
        let listed: Vec<String> =
            entries.iter().map(|one| format!("{}/{}", text(&one["namespace"]), text(&one["name"]))).collect();
        if listed != wanted {
            self.fault(format!("P1: pods {listed:?} instead of {wanted:?}"));
        }
        let mut ids: Vec<String> = Vec::new();
        for entry in entries {
            let node = text(&entry["node"]);
            match entry["outcome"].as_str().unwrap() {
                "buy" if !ids.contains(&node) => ids.push(node),
                "refused" | "waiting" if items(&entry["reasons"]).is_empty() || !node.is_empty() => {
                    self.fault(format!("P2: {} is refused without a reason, or with a node", entry["name"]));
                }
                _ => {}
            }
        }
        let nodes: Vec<String> = items(&self.document["nodes"]).iter().map(|one| text(&one["id"])).collect();
        let numbered: Vec<String> = (0..nodes.len()).map(|number| format!("new/{number}")).collect();
        if ids != nodes || nodes != numbered {
            self.fault(format!("P1, P2: nodes {nodes:?}, and pods that are on {ids:?}"));
        }
    }

    /// The nodes of the document are offers of their pools; `false` if they are not.
    fn nodes(&mut self) -> bool {
        for node in items(&self.document["nodes"]) {
            let id = text(&node["id"]);
            let find = |entry: &Value| {
                self.supply
                    .offers
                    .iter()
                    .position(|offer| node["pool"] == self.supply.pools[offer.pool].name.as_str() && offer.is(entry))
            };
            let alternatives = items(&node["alternatives"]);
            let (own, others) = (find(node), alternatives.iter().map(find).collect::<Option<Vec<usize>>>());
            let Some((own, others)) = own.zip(others) else {
                self.fault(format!("P4: {id} or one of its alternatives is no offer of its pool"));
                return false;
            };
            let offer = &self.supply.offers[own];
            if node["usdMicroPerHour"] != offer.price {
                self.fault(format!("P7: the price of {id} is not that of the catalogue"));
            }
            let differs = |(key, value): &(&String, &String)| node["labels"][key.as_str()] != value.as_str();
            if let Some((key, _)) = offer.node.labels.iter().find(|one| differs(&(one.0, one.1))) {
                self.faults.push(format!("P4: the label {key} of {id} is {}", node["labels"][key]));
            }
            let key = |at: &usize| {
                let offer = &self.supply.offers[*at];
                (offer.price, &offer.instance_type, &offer.zone, &offer.capacity_type)
            };
            if !others.is_sorted_by_key(key) || others.len() > 60 || others.contains(&own) {
                self.faults.push(format!("P1: alternatives of {id} are not in order"));
            }
            let host = id.replace('/', "-");
            let mut stands = offer.node.clone();
            stands.labels.insert(super::kube::HOSTNAME.to_owned(), host.clone());
            stands.name = host;
            self.before.nodes.push(stands);
            self.chosen.push((own, others));
        }
        true
    }

    fn entry(&self, pod: &Pod) -> &'a Value {
        let is = |one: &&Value| one["namespace"] == pod.namespace.as_str() && one["name"] == pod.name.as_str();
        items(&self.document["pods"]).iter().find(is).unwrap()
    }

    /// P8: what is relaxed is the beginning of the pod's preferences in their order; how many.
    fn dropped(&mut self, pod: &Pod) -> usize {
        let relaxed: Vec<(String, u64, Option<i64>)> = items(&self.entry(pod)["relaxed"])
            .iter()
            .map(|one| (text(&one["what"]), one["index"].as_u64().unwrap(), one["weight"].as_i64()))
            .filter(|(what, ..)| what != "minValues")
            .collect();
        let wanted = pod.preferences.iter().map(|one| (one.what.to_owned(), one.index as u64, one.weight));
        if !relaxed.iter().cloned().eq(wanted.take(relaxed.len())) {
            self.fault(format!("P8: {} relaxes {relaxed:?}, which is not the order", pod.key()));
        }
        relaxed.len()
    }

    fn examine(&mut self) {
        let mut places: Vec<Option<Stand<'a>>> = Vec::new();
        for pod in self.pending.clone() {
            let dropped = self.dropped(pod);
            let entry = self.entry(pod);
            let name = text(&entry["node"]).replace("new/", "new-");
            let node = self.before.nodes.iter().position(|node| node.name == name);
            let phase = node.map(|node| self.before.nodes[node].phase);
            let wanted = match entry["outcome"].as_str().unwrap() {
                "placed" => Some(Phase::Ready),
                "joining" => Some(Phase::Joining),
                "buy" => Some(Phase::New),
                _ => None,
            };
            if phase != wanted || wanted.is_none() && !name.is_empty() {
                self.fault(format!("P2: {} is {} on {name}", pod.key(), entry["outcome"]));
                return;
            }
            if pod.stays_out && wanted == Some(Phase::New) {
                self.fault(format!("a node is launched for {}", pod.key()));
            }
            places.push(node.map(|node| Stand { pod, node, dropped }));
        }
        let (after, faults) = self.filled(&self.before, &places);
        self.faults.extend(faults.into_iter().map(|fault| format!("P3, P8: {fault}")));
        self.alternatives(&places);
        self.money();
        self.limits();
        if self.faults.is_empty() {
            self.places_left(&after, &places);
            self.needless(&places);
        }
    }

    /// The cluster with the pods of the document, and what is wrong with it.
    fn filled(&self, cluster: &Cluster<'a>, places: &[Option<Stand<'a>>]) -> (Cluster<'a>, Vec<String>) {
        let mut after = cluster.clone();
        let pods: Vec<(Stand<'a>, &Offered)> =
            places.iter().zip(&self.offered).filter_map(|(stand, offered)| Some(((*stand)?, offered))).collect();
        let faults = after.fill(&pods);
        (after, faults)
    }

    /// P4: alternatives, each alone and some combinations of them.
    fn alternatives(&mut self, places: &[Option<Stand<'a>>]) {
        let first = self.before.nodes.len() - self.chosen.len();
        for (at, (own, others)) in self.chosen.iter().enumerate() {
            for other in std::iter::once(own).chain(others) {
                let offer = &self.supply.offers[*other];
                let here = places.iter().flatten().filter(|stand| stand.node == first + at);
                for stand in here {
                    if !stand.pod.fits_alone(&offer.node) || !keeps(stand.pod, stand.dropped, offer) {
                        self.faults.push(format!(
                            "P4: {} is not for new/{at} as {}",
                            stand.pod.key(),
                            offer.instance_type
                        ));
                    }
                }
            }
            if let Some((key, values)) = self.lacking(at, |_| true) {
                self.faults.push(format!("P4: new/{at} leaves {values:?} of {key}"));
            }
        }
        for combination in 0..8_usize {
            let mut cluster = self.before.clone();
            for (at, (own, others)) in self.chosen.iter().enumerate() {
                let all: Vec<usize> = std::iter::once(*own).chain(others.iter().copied()).collect();
                let pick = match combination {
                    0 => all.len() - 1,
                    _ => (combination * 7 + at * (combination + 3)) % all.len(),
                };
                let node = &mut cluster.nodes[first + at];
                *node = super::kube::Node { name: node.name.clone(), ..self.supply.offers[all[pick]].node.clone() };
            }
            let (_, faults) = self.filled(&cluster, places);
            if let Some(fault) = faults.first() {
                self.faults.push(format!("P4: a combination of alternatives: {fault}"));
                return;
            }
        }
    }

    /// A key of which a node of the document leaves fewer values than its pool asks for, among those of its offers that count.
    fn lacking(&self, at: usize, counts: impl Fn(&Offer) -> bool) -> Option<(&str, BTreeSet<&str>)> {
        let (own, others) = &self.chosen[at];
        let values = |key: &str| -> BTreeSet<&str> {
            let all = std::iter::once(own).chain(others).map(|offer| &self.supply.offers[*offer]);
            all.filter(|offer| counts(offer))
                .filter_map(|offer| offer.node.labels.get(key))
                .map(String::as_str)
                .collect()
        };
        let asked = &self.supply.pools[self.supply.offers[*own].pool].min_values;
        let mut all = asked.iter().map(|(key, least)| (key.as_str(), values(key), *least));
        all.find(|(_, values, least)| values.len() < *least).map(|(key, values, _)| (key, values))
    }

    /// P6, P7.
    fn money(&mut self) {
        let cost = &self.document["cost"];
        let sum: u64 = self.chosen.iter().map(|(own, _)| self.supply.offers[*own].price).sum();
        if cost["usdMicroPerHour"] != sum {
            self.fault(format!("P7: cost {} is not {sum}", cost["usdMicroPerHour"]));
        }
        if cost["bound"].is_null() != self.chosen.is_empty() || cost["bound"].as_u64().is_some_and(|bound| bound > sum)
        {
            self.fault(format!("P7: bound {} of {sum}", cost["bound"]));
        }
        if cost["gap"] == 0 && cost["bound"] != sum {
            self.fault(format!("P7: no gap between {sum} and {}", cost["bound"]));
        }
        for (at, (own, _)) in self.chosen.iter().enumerate() {
            let own = &self.supply.offers[*own];
            let id = format!("new/{at}");
            let here: Vec<&Pod> =
                self.pending.iter().copied().filter(|pod| self.entry(pod)["node"] == id.as_str()).collect();
            let same = self.supply.offers.iter().filter(|other| {
                (other.pool, &other.instance_type, &other.zone) == (own.pool, &own.instance_type, &own.zone)
                    && here.iter().all(|pod| pod.fits_alone(&other.node))
            });
            // A preference may be for a capacity type.
            let free = here.iter().all(|pod| pod.preferences.iter().all(|one| !matches!(one.rule, Rule::Nodes(_))));
            if let Some(cheaper) = same.into_iter().find(|other| other.price < own.price).filter(|_| free) {
                self.faults.push(format!("P6: new/{at} is cheaper as {}", cheaper.capacity_type));
            }
        }
    }

    /// What the document's nodes count against limits.
    fn planned(&self, pool: usize, name: &str) -> i64 {
        let of = |(own, others): &(usize, Vec<usize>)| {
            let all = std::iter::once(own).chain(others).map(|offer| &self.supply.offers[*offer]);
            all.filter(|offer| offer.pool == pool).filter_map(|offer| offer.counts.get(name)).max().copied()
        };
        self.chosen.iter().filter_map(of).sum()
    }

    /// P9.
    fn limits(&mut self) {
        for (at, pool) in self.supply.pools.iter().enumerate() {
            for (name, limit) in &pool.limits {
                let used = self.used[at].get(name).copied().unwrap_or(0);
                let planned = self.planned(at, name);
                if planned > 0 && used + planned > *limit {
                    self.faults.push(format!("P9: {}: {used} and {planned} of {limit} {name}", pool.name));
                }
                let stated = items(&self.document["limits"])
                    .iter()
                    .find(|one| one["pool"] == pool.name.as_str() && one["resource"] == name.as_str());
                let stated = stated.map(|one| ["limit", "used", "planned"].map(|field| amount(name, &one[field])));
                if stated.is_some() && stated != Some([*limit, used, planned]) {
                    self.faults.push(format!("P9: {} {name}: {stated:?} for {limit}, {used}, {planned}", pool.name));
                }
            }
        }
    }

    /// Whether the limits of its pool leave one more node of an offer.
    fn is_left(&self, offer: &Offer) -> bool {
        let pool = &self.supply.pools[offer.pool];
        pool.min_values.is_empty()
            && pool.limits.iter().all(|(name, limit)| {
                let used = self.used[offer.pool].get(name).copied().unwrap_or(0);
                used + self.planned(offer.pool, name) + offer.counts.get(name).copied().unwrap_or(0) <= *limit
            })
    }

    /// P5: no pod waits for more than it has to.
    fn places_left(&mut self, after: &Cluster<'a>, places: &[Option<Stand<'a>>]) {
        for (stand, offered) in places.iter().zip(&self.offered).filter_map(|(one, offered)| Some(((*one)?, offered))) {
            let without = after.without(stand.pod);
            let phase = after.nodes[stand.node].phase;
            let earlier = |at: &usize| match after.nodes[*at].phase {
                Phase::Ready => phase != Phase::Ready,
                Phase::Joining => phase == Phase::New,
                Phase::New => false,
            };
            let takes = |at: &usize| without.refusal(stand.pod, *at, stand.dropped, offered).is_none();
            if let Some(at) = (0..after.nodes.len()).filter(earlier).find(takes) {
                let (name, on) = (&after.nodes[at].name, &after.nodes[stand.node].name);
                self.faults.push(format!("P5: {} is on {on}, and {name} takes it", stand.pod.key()));
            }
            if phase != Phase::New {
                continue;
            }
            let first = self.before.nodes.len() - self.chosen.len();
            let weight = |offer: usize| self.supply.pools[self.supply.offers[offer].pool].weight;
            let own = weight(self.chosen[stand.node - first].0);
            for (at, offer) in self.supply.offers.iter().enumerate() {
                if weight(at) > own && self.is_left(offer) {
                    let (more, node) = self.supply.with_one_more(&without, at);
                    if more.refusal(stand.pod, node, stand.dropped, offered).is_none() {
                        let pool = &self.supply.pools[offer.pool].name;
                        self.faults.push(format!("P5: {} could have a node of {pool}", stand.pod.key()));
                        break;
                    }
                }
            }
        }
    }

    /// P0, P8: nobody without a place, and no preference dropped, where a change of this one pod alone does better.
    fn needless(&mut self, places: &[Option<Stand<'a>>]) {
        for at in 0..places.len() {
            let pod = self.pending[at];
            let levels = match places[at] {
                None => pod.preferences.len()..pod.preferences.len() + 1,
                Some(stand) if self.before.nodes[stand.node].phase == Phase::Ready => continue,
                Some(stand) => 0..stand.dropped,
            };
            for dropped in levels {
                if let Some(place) = self.better(places, at, dropped) {
                    let stands = places[at].map_or("nowhere", |stand| &self.before.nodes[stand.node].name);
                    let now = places[at].map_or(0, |stand| stand.dropped);
                    self.faults.push(format!(
                        "P0, P8: {} is on {stands} with {now} dropped, and could be on {place} with {dropped}",
                        pod.key()
                    ));
                    break;
                }
            }
        }
    }

    /// Another place for one pod with so many preferences dropped.
    fn better(&self, places: &[Option<Stand<'a>>], at: usize, dropped: usize) -> Option<String> {
        let pod = self.pending[at];
        let mut changed = places.to_vec();
        let mut holds = |cluster: &Cluster<'a>, node: usize| {
            changed[at] = Some(Stand { pod, node, dropped });
            self.filled(cluster, &changed).1.is_empty()
        };
        let nodes = self.before.nodes.iter().enumerate();
        let allowed = nodes.filter(|(_, node)| !(pod.stays_out && node.phase == Phase::New));
        let first = self.before.nodes.len() - self.chosen.len();
        for (node, of) in allowed {
            // What it keeps there, every alternative that `minValues` asks for has to keep.
            let new = node.checked_sub(first);
            let varied = new.is_none_or(|at| self.lacking(at, |offer| keeps(pod, dropped, offer)).is_none());
            if varied && holds(&self.before, node) {
                return Some(of.name.clone());
            }
        }
        for (number, offer) in self.supply.offers.iter().enumerate().filter(|_| !pod.stays_out) {
            if pod.fits_alone(&offer.node) && self.is_left(offer) {
                let (more, node) = self.supply.with_one_more(&self.before, number);
                if holds(&more, node) {
                    let pool = &self.supply.pools[offer.pool].name;
                    return Some(format!("one more {} of {pool} in {}", offer.instance_type, offer.zone));
                }
            }
        }
        None
    }
}

/// Whether what a pod prefers of a node, and has not dropped, holds on one of an offer.
fn keeps(pod: &Pod, dropped: usize, offer: &Offer) -> bool {
    pod.preferences.iter().skip(dropped).all(|one| match &one.rule {
        Rule::Nodes(requirements) => all_hold(requirements, &offer.node.labels),
        _ => true,
    })
}
