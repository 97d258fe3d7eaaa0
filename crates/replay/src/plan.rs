//! What the planner would do with a dump: gangs in order on disjoint room, then pods of no gang.

mod gang;
mod requests;
mod singles;
mod work;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::convert;
use muster_core::gang::Membership;
use muster_core::node::Node;
use muster_core::plan::Policy;
use muster_core::topology::{Levels, LevelsError};
use thiserror::Error;

use crate::catalogue::Catalogue;
use crate::cluster::Cluster;
use crate::document::{Document, Ignored, VERSION};
use crate::dump::Dump;
use crate::gangs::{self, Known, Members};
use crate::pools::{self, Pool};
use crate::topology;

/// Extended resources that count as accelerators: the server's default.
const ACCELERATORS: [&str; 5] =
    ["nvidia.com/gpu", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "habana.ai/gaudi", "amd.com/gpu"];

/// What a person may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Label keys of the levels, top to bottom; `None`: those the dump has.
    pub levels: Option<Vec<String>>,
    /// `schedulerName`s of our profiles.
    pub scheduler_names: Vec<String>,
    /// What may be bought.
    pub catalogue: Catalogue,
    /// The moment; `None`: the newest one the dump records.
    pub now: Option<Timestamp>,
    /// What is best.
    pub policy: Policy,
}

/// Why nothing can be planned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The levels make no list.
    #[error("levels: {0}")]
    Levels(#[from] LevelsError),
}

/// Plans everything in a dump. The same dump and options give the same document.
///
/// Errors: levels that make no list. Everything else is in the document.
pub fn plan(mut dump: Dump, options: &Options) -> Result<Document, PlanError> {
    let mut nodes: Vec<Node> = Vec::with_capacity(dump.nodes.len());
    for node in std::mem::take(&mut dump.nodes) {
        // What cannot be converted was reported when the dump was read.
        nodes.extend(convert::node(&node));
    }
    let pools = pools::read(&mut dump, &options.catalogue, &nodes);
    let catalogue = (!dump.pools.is_empty()).then(|| options.catalogue.name.clone());
    let members = gangs::find(&dump, &options.scheduler_names);
    let requests = requests::find(&mut dump, &members);
    let levels = match &options.levels {
        Some(keys) => topology::of_keys(keys)?,
        None => topology::present(nodes.iter(), &wished(&members, &requests))?,
    };
    let mut cluster = Cluster::new(nodes);
    for known in &members.all {
        let core = &known.core;
        let room = if core.ended { None } else { core.node.as_ref().or_else(|| nominated(known)) };
        if let Some(node) = room {
            if core.membership.gang().is_some() {
                cluster.ensure(node);
            }
            cluster.add(node, Some(&known.object), &core.held);
        }
    }
    let Members { gangs, others, all: _ } = members;
    let mut planning = Planning {
        levels,
        cluster,
        pools,
        catalogue: &options.catalogue,
        policy: options.policy,
        ignored: std::mem::take(&mut dump.ignored),
    };
    let mut work: Vec<work::Work> = gangs.into_iter().map(|found| work::Work::of_pods(found, &dump)).collect();
    work.extend(requests.into_iter().map(Box::new).map(work::Work::Request));
    work.sort_by_cached_key(work::Work::order);
    let gangs = work.iter().map(|work| planning.gang(work)).collect();
    let pods = planning.singles(others);
    Ok(Document {
        version: VERSION,
        catalogue,
        now: options.now.or(dump.newest).unwrap_or(Timestamp::UNIX_EPOCH),
        gangs,
        pods,
        ignored: planning.ignored,
    })
}

/// What plans change on the way.
struct Planning<'a> {
    levels: Levels,
    cluster: Cluster,
    pools: Vec<Pool>,
    catalogue: &'a Catalogue,
    policy: Policy,

    ignored: Vec<Ignored>,
}

/// Levels that somebody wishes for, by whatever name.
fn wished(members: &Members, requests: &[requests::Request]) -> BTreeSet<Arc<str>> {
    let of_gangs = members.gangs.iter().map(|gang| &gang.said.wishes);
    let wishes = of_gangs.chain(requests.iter().map(|request| &request.wishes));
    wishes
        .flat_map(|wishes| {
            let single = [&wishes.required, &wishes.preferred, &wishes.exclusive, &wishes.balance];
            single.into_iter().flatten().chain(wishes.slices.iter().map(|slice| &slice.level))
        })
        .map(|wish| Arc::clone(&wish.value))
        .collect()
}

/// The node on which kube-scheduler has made room for a pod of no gang.
fn nominated(known: &Known) -> Option<&muster_core::names::NodeName> {
    let core = &known.core;
    core.nominated.as_ref().filter(|_| core.membership == Membership::Single && core.is_live())
}
