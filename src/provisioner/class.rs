//! EC2NodeClasses: what their selectors resolve to, and what is wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{EC2NodeClass, EC2NodeClassStatus, SubnetStatus, is_true, set_condition};
use muster_ec2::{ImageSource, NetworkQuery};
use serde_json::json;

use super::{Context, REFRESH, RETRY};
use crate::clock::now_real;
use crate::cluster::State;
use crate::step::{Step, step};

/// Resolves classes whose spec changed, and all of them now and then.
pub(super) async fn reconcile(
    context: &Context,
    state: &State,
    seen: &mut BTreeMap<String, (Option<i64>, Timestamp)>,
) -> anyhow::Result<()> {
    let classes: Vec<_> = due(state, seen, context.clock.now()).cloned().collect();
    for class in classes {
        let name = class.name_any();
        let generation = class.metadata.generation;
        let status = resolve(context, &class).await;
        if class.status.as_ref() != Some(&status) {
            let classes: Api<EC2NodeClass> = Api::all(context.client.clone());
            let patch = json!({"status": status});
            step(Step::WriteStatus, classes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)))
                .await?;
        }
        seen.insert(name, (generation, context.clock.now()));
    }
    seen.retain(|name, _| state.classes.contains_key(name));
    Ok(())
}

/// Classes whose spec changed, those that were not ready a while ago, and all of them now and then.
pub(super) fn due<'a>(
    state: &'a State,
    seen: &'a BTreeMap<String, (Option<i64>, Timestamp)>,
    now: Timestamp,
) -> impl Iterator<Item = &'a Arc<EC2NodeClass>> {
    state.classes.values().filter(move |class| {
        let ready = class.status.as_ref().is_some_and(|status| is_true(&status.conditions, "Ready"));
        let pause = if ready { REFRESH } else { RETRY };
        !seen
            .get(&class.name_any())
            .is_some_and(|(known, at)| *known == class.metadata.generation && now.duration_since(*at) < pause)
    })
}

async fn resolve(context: &Context, class: &EC2NodeClass) -> EC2NodeClassStatus {
    let before = class.status.clone().unwrap_or_default();
    let mut status = EC2NodeClassStatus {
        conditions: before.conditions.clone(),
        observed_generation: class.metadata.generation,
        ..EC2NodeClassStatus::default()
    };
    let mut problems: Vec<(&str, String)> = Vec::new();
    match subnets(context, class).await {
        Ok(subnets) if subnets.is_empty() => problems.push((
            "SubnetsNotFound",
            "spec.subnetSelectorTerms: no subnet matches; check ids and tags, and that the Region is right".to_owned(),
        )),
        Ok(subnets) => status.subnets = subnets,
        Err(error) => problems.push(("Unreachable", error)),
    }
    if !problems.is_empty() && problems.iter().all(|(reason, _)| *reason == "Unreachable") {
        // The other calls would wait as long for the same answer; what was resolved before still stands.
        status.subnets = before.subnets;
        status.security_groups = before.security_groups;
        status.ami = before.ami;
        return conclude(status, &problems);
    }
    match security_groups(context, class).await {
        Ok(groups) if groups.is_empty() => problems.push((
            "SecurityGroupsNotFound",
            "spec.securityGroupSelectorTerms: no security group matches; check ids, names and tags".to_owned(),
        )),
        Ok(groups) => status.security_groups = groups,
        Err(error) => problems.push(("Unreachable", error)),
    }
    match image(context, class).await {
        Ok(image) => status.ami = Some(image),
        Err((reason, message)) => problems.push((reason, message)),
    }
    conclude(status, &problems)
}

/// Writes the problems as conditions.
fn conclude(mut status: EC2NodeClassStatus, problems: &[(&str, String)]) -> EC2NodeClassStatus {
    let now = now_real();
    let set = |status: &mut EC2NodeClassStatus, kind: &str, wrong: &[&str]| {
        let problem = problems.iter().find(|(reason, _)| wrong.contains(reason));
        let (reason, message) = problem.map_or((kind, ""), |(reason, message)| (*reason, message.as_str()));
        set_condition(&mut status.conditions, kind, problem.is_none(), reason, message, now);
    };
    set(&mut status, "SubnetsReady", &["SubnetsNotFound", "Unreachable"]);
    set(&mut status, "SecurityGroupsReady", &["SecurityGroupsNotFound", "Unreachable"]);
    set(&mut status, "AMIsReady", &["AMINotFound", "AliasUnresolved", "Unreachable"]);
    set(
        &mut status,
        "Ready",
        &["Unreachable", "SubnetsNotFound", "SecurityGroupsNotFound", "AMINotFound", "AliasUnresolved"],
    );
    status
}

async fn subnets(context: &Context, class: &EC2NodeClass) -> Result<Vec<SubnetStatus>, String> {
    let mut found: BTreeMap<String, SubnetStatus> = BTreeMap::new();
    for term in &class.spec.subnet_selector_terms {
        let query = term.id.clone().map_or_else(|| NetworkQuery::Tags(term.tags.clone()), NetworkQuery::Id);
        let subnets = context.cloud.ec2().describe_subnets(&query).await;
        let subnets = match subnets {
            Ok(subnets) => subnets,
            Err(error) if error.kind == muster_core::cloud::ErrorClass::Configuration => continue,
            Err(error) => return Err(format!("spec.subnetSelectorTerms: {error}")),
        };
        for subnet in subnets {
            found.insert(
                subnet.id.clone(),
                SubnetStatus {
                    id: subnet.id,
                    zone: subnet.zone,
                    zone_id: subnet.zone_id,
                    available_addresses: subnet.free_addresses,
                },
            );
        }
    }
    Ok(found.into_values().collect())
}

async fn security_groups(context: &Context, class: &EC2NodeClass) -> Result<Vec<String>, String> {
    let mut found = BTreeSet::new();
    for term in &class.spec.security_group_selector_terms {
        let query = match (&term.id, &term.name) {
            (Some(id), _) => NetworkQuery::Id(id.clone()),
            (None, Some(name)) => NetworkQuery::Name(name.clone()),
            (None, None) => NetworkQuery::Tags(term.tags.clone()),
        };
        let groups = context.cloud.ec2().describe_security_groups(&query).await;
        let groups = match groups {
            Ok(groups) => groups,
            Err(error) if error.kind == muster_core::cloud::ErrorClass::Configuration => continue,
            Err(error) => return Err(format!("spec.securityGroupSelectorTerms: {error}")),
        };
        found.extend(groups.into_iter().map(|group| group.id));
    }
    Ok(found.into_iter().collect())
}

/// The first term that resolves.
async fn image(context: &Context, class: &EC2NodeClass) -> Result<String, (&'static str, String)> {
    let mut last = ("AMINotFound", "spec.amiSelectorTerms: nothing resolves".to_owned());
    for term in &class.spec.ami_selector_terms {
        let named = term.id.clone().map(ImageSource::Id).or_else(|| {
            let path = term.ssm_parameter.clone().or_else(|| alias_path(term.alias.as_deref()?))?;
            Some(ImageSource::SsmParameter(path))
        });
        let Some(named) = named else {
            let alias = term.alias.as_deref().unwrap_or_default();
            last = (
                "AliasUnresolved",
                format!("spec.amiSelectorTerms: alias \"{alias}\" is not al2023@latest or al2023@vYYYYMMDD"),
            );
            continue;
        };
        match context.cloud.resolve_image(&named).await {
            Ok(image) => return Ok(image),
            Err(error) => last = ("AMINotFound", format!("spec.amiSelectorTerms: {named:?}: {error}")),
        }
    }
    Err(last)
}

/// Path of the SSM parameter behind an alias of the accelerated AL2023 images.
///
/// Source: EKS user guide, "Retrieve recommended Amazon Linux AMI IDs".
fn alias_path(alias: &str) -> Option<String> {
    let (family, version) = alias.split_once('@')?;
    let kubernetes = "1.35";
    match (family, version) {
        ("al2023", "latest") => Some(format!(
            "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
        )),
        ("al2023", version) if version.starts_with('v') => Some(format!(
            "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/x86_64/nvidia/\
             amazon-eks-node-al2023-x86_64-nvidia-{kubernetes}-{version}/image_id"
        )),
        _ => None,
    }
}
