//! One pod: its place in its gang, or the node it would get alone.

use jiff::Timestamp;
use muster_api::convert;
use serde::Serialize;

use super::gang::{self, GangExplanation};
use super::{ALL_NAMESPACES, ExplainError, Target, asked_for, elsewhere, is_asked, suggestion};
use crate::catalogue::Catalogue;
use crate::document::MemberState;
use crate::dump::Dump;
use crate::study::Study;

/// Everything there is to say about one pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    /// The moment it is planned for.
    pub now: Timestamp,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The node it stands on or would get.
    pub node: Option<String>,
    /// Whether it stands there.
    pub running: bool,
    /// One sentence.
    pub summary: String,
    /// Role and rank in its gang.
    pub place: Option<(String, u32)>,
    /// Its gang.
    pub gang: Option<GangExplanation>,
}

/// What the dump says of the pod that is asked about.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    found: bool,
    node: Option<String>,
    phase: String,
    scheduler: String,
    others: Vec<String>,
    /// Namespaces that have a pod of the name.
    namespaces: Vec<String>,
}

impl Facts {
    /// Looks at the pod, if one is asked about.
    pub(super) fn of(dump: &Dump, target: &Target) -> Self {
        let Target::Pod { namespace, name } = target else { return Self::default() };
        let mut facts = Self::default();
        for pod in &dump.pods {
            let stands = pod.metadata.namespace.as_deref().unwrap_or_default();
            let is_named = pod.metadata.name.as_deref() == Some(name);
            if is_named {
                facts.namespaces.push(stands.to_owned());
            }
            if !is_asked(namespace, stands) {
                continue;
            }
            if !is_named {
                facts.others.extend(pod.metadata.name.clone());
                continue;
            }
            facts.found = true;
            facts.node = convert::assigned_node(pod).map(str::to_owned);
            facts.phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            facts.scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.clone()).unwrap_or_default();
        }
        facts
    }
}

/// Explains a pod.
///
/// Errors: no such pod.
pub(super) fn explain(
    study: &Study,
    catalogue: &Catalogue,
    facts: &Facts,
    namespace: &str,
    name: &str,
) -> Result<PodExplanation, ExplainError> {
    let others = || elsewhere(facts.namespaces.iter().map(String::as_str));
    if !facts.found {
        return Err(ExplainError::NotFound {
            what: "pod",
            name: asked_for(namespace, name),
            suggestion: others().unwrap_or_else(|| suggestion(facts.others.iter().map(String::as_str))),
        });
    }
    let namespace = match (namespace, facts.namespaces.as_slice()) {
        (ALL_NAMESPACES, [only]) => only.as_str(),
        (ALL_NAMESPACES, _) => {
            let suggestion = others().unwrap_or_default();
            return Err(ExplainError::Several { what: "pod", name: name.to_owned(), suggestion });
        }
        (namespace, _) => namespace,
    };
    let mut reported = PodExplanation {
        now: study.document.now,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        running: facts.node.is_some(),
        node: facts.node.clone(),
        summary: String::new(),
        place: None,
        gang: None,
    };
    let gangs = study.document.gangs.iter().zip(&study.details).enumerate();
    for (ahead, (entry, detail)) in gangs.filter(|(_, (entry, _))| entry.namespace == namespace) {
        let member = entry.members.iter().find(|member| member.pod.as_deref() == Some(name));
        let belongs = member.is_some() || detail.pods.iter().any(|pod| pod == name);
        if !belongs {
            continue;
        }
        let gang = gang::of(study, catalogue, entry, detail, ahead);
        if let Some(member) = member {
            reported.node = Some(member.node.clone());
            reported.running = member.state == MemberState::Running;
            reported.place = Some((member.role.clone(), member.rank));
            let verb = if reported.running { "runs on" } else { "goes to" };
            reported.summary = format!("is rank {} of gang {} and {verb} {}", member.rank, entry.name, member.node);
        } else {
            reported.summary = format!("is a member of gang {}", entry.name);
        }
        reported.gang = Some(gang);
        return Ok(reported);
    }
    let entry = study.document.pods.iter().find(|pod| pod.namespace == namespace && pod.name == name);
    reported.summary = match (entry, &reported.node) {
        (Some(entry), _) => {
            reported.node.clone_from(&entry.node);
            match (&entry.node, entry.sentence()) {
                (Some(node), _) => format!("belongs to no gang and would get {node}"),
                (None, Some(reason)) => format!("belongs to no gang and waits: {reason}"),
                (None, None) => "belongs to no gang and waits".to_owned(),
            }
        }
        (None, Some(node)) => format!("belongs to no gang and stands on {node}, phase {}", facts.phase),
        (None, None) => format!("is not planned: phase {}, scheduler {}", facts.phase, facts.scheduler),
    };
    Ok(reported)
}
