//! Topology first: where a launch lies in the network is judged before its nodes join.

use std::collections::BTreeMap;

use muster_api::crd::NodeBatchStatus;
use muster_api::keys;
use muster_core::batch::{Located, located};
use muster_core::model::names::{InstanceId, ObjectKey};
use muster_core::topology::Level;

use super::batch::Next;
use super::store::Held;
use super::{Context, launch};
use crate::cluster::State;

/// Records where the instances lie. A launch that misses the level its gang requires is rolled back: the next step is
/// then given. A missed preferred level is used, and named.
pub(super) async fn judge(
    context: &Context,
    held: &mut Held,
    state: &State,
    status: &mut NodeBatchStatus,
    ids: &[InstanceId],
    places: &BTreeMap<InstanceId, Vec<String>>,
) -> anyhow::Result<Option<Next>> {
    // Types that EC2 does not report, or half an answer: the labels of the nodes will tell.
    let Some(found) = located(ids, places) else { return Ok(None) };
    status.located.clone_from(&found.layers);
    let replacing = held.attempt().is_some_and(|attempt| !attempt.replaces.is_empty());
    let (required, preferred) = wishes(context, held, state);
    if let Some(level) = missed(&found, required.as_ref())
        && !replacing
    {
        let why = format!("required level {} missed: {found}", level.name);
        return launch::misplaced(context, held, state, ids, &why, &found).await.map(Some);
    }
    if let Some(level) = missed(&found, preferred.as_ref()) {
        status.message = Some(format!("preferred level {} missed: {found}", level.name));
    }
    Ok(None)
}

/// Whether the gang or request requires a level.
pub(super) fn matters(context: &Context, held: &Held, state: &State) -> bool {
    wishes(context, held, state).0.is_some()
}

fn missed<'a>(found: &Located, level: Option<&'a Level>) -> Option<&'a Level> {
    level.filter(|level| found.domains(&level.key).is_some_and(|domains| domains > 1))
}

/// The required and preferred levels of whom the batch is bought for.
fn wishes(context: &Context, held: &Held, state: &State) -> (Option<Level>, Option<Level>) {
    let levels = &context.options.levels;
    let level = |text: &str| levels.resolve(text).and_then(|index| levels.as_slice().get(index)).cloned();
    let spec = &held.object.spec;
    if let Some(gang) = &spec.gang_ref {
        let key = ObjectKey::new(gang.namespace.as_str(), gang.name.as_str());
        let Some(recognised) = state.snapshot.recognised.get(&key) else { return (None, None) };
        let wish = |wish: &Option<muster_core::model::gang::RawWish>| wish.as_ref().and_then(|wish| level(&wish.value));
        return (wish(&recognised.wishes.required), wish(&recognised.wishes.preferred));
    }
    let Some(request) = &spec.provisioning_request_ref else { return (None, None) };
    let key = ObjectKey::new(request.namespace.as_str(), request.name.as_str());
    let Some(request) = state.requests.get(&key) else { return (None, None) };
    let wish = |key: &str| request.spec.parameters.get(key).and_then(|text| level(text));
    (wish(keys::TOPOLOGY_REQUIRED), wish(keys::TOPOLOGY_PREFERRED))
}
