//! The `bind` verb: post at once, or stand at the barrier until the gang's minimum has arrived.

use std::sync::Arc;
use std::time::Duration;

use muster_core::extender::{self, BindStep, Rejection};
use muster_core::model::names::PodUid;
use tokio::time::{Instant, timeout_at};

use super::shared::{Extender, UNREADY, stale};
use super::wire::ExtenderBindingArgs;
use crate::clock::now_real;

/// How long a call waits for the watch when the pod or its plan is newer than what this replica has seen.
const BEHIND: Duration = Duration::from_secs(2);
/// How long a call waits for the end of a taint: as long as kube-scheduler waits itself before it tries a pod again that was
/// refused.
const TAINTED: Duration = Duration::from_secs(1);

/// Carries out one bind call.
///
/// Errors: a text for kube-scheduler, which tries again after a second or more.
pub(super) async fn bind(extender: &Arc<Extender>, args: &ExtenderBindingArgs) -> Result<(), String> {
    let uid = PodUid::from(args.pod_uid.as_str());
    let mut changes = extender.cluster.changes();
    let mut deadline = Instant::now() + BEHIND;
    let until = extender.barrier.until();
    let tainted = Instant::now() + TAINTED;
    let mut asked = false;
    loop {
        changes.borrow_and_update();
        let view = extender.view();
        if let Some(kind) = extender.cluster.stale() {
            return Err(stale(kind));
        }
        match extender::bind(&view.state.snapshot, &view.assumed, &uid, &args.node, now_real()) {
            BindStep::Unready => return Err(UNREADY.to_owned()),
            BindStep::Tainted => {
                if !matches!(timeout_at(tainted, changes.changed()).await, Ok(Ok(()))) {
                    return Err(Rejection::Tainted.as_str().to_owned());
                }
            }
            BindStep::Refuse(reason) => return Err(reason.as_str().to_owned()),
            BindStep::Post { .. } => return extender.barrier.posting().post(args, None, until).await,
            BindStep::Arrive { gang } => return extender.barrier.arrive(&gang.key, args, until).await,
            BindStep::Behind => {
                if matches!(timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
                    continue;
                }
                // The watch lags: the API server is asked, once, and what it says is fed into the state.
                let gang = view.state.snapshot.pods.get(&uid).and_then(|pod| pod.membership.gang());
                match gang.filter(|_| !asked) {
                    Some(gang) => extender.barrier.refresh(gang, until).await,
                    None => return Err("the pod or its plan has not been seen yet".to_owned()),
                }
                asked = true;
                deadline = Instant::now() + BEHIND;
            }
        }
    }
}
