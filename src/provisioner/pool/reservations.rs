//! Free hosts of the reservations that classes name: read from EC2 now and then, and what batches take of them.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_api::crd::EC2NodeClass;
use muster_api::pool as rules;
use muster_core::ec2::{CapacityType, Reservation};
use muster_core::offering::Ledger;
use tracing::debug;

use super::class_of;
use crate::cluster::State;
use crate::provisioner::{Context, class};

/// Free hosts of reservations are read again after this, in the provisioner's time.
const FRESH: SignedDuration = SignedDuration::from_secs(20);

/// Classes of these pools whose reservations were read too long ago.
pub(in crate::provisioner) fn stale<'a>(
    context: &'a Context,
    pools: &'a [String],
    state: &'a State,
    now: Timestamp,
) -> impl Iterator<Item = &'a EC2NodeClass> {
    pools.iter().filter_map(move |name| {
        let pool = state.pools.get(name)?;
        let class = class_of(state, pool)?;
        let wanted = rules::capacity_types(pool).contains(&CapacityType::Reserved)
            && !class.spec.capacity_reservation_selector_terms.is_empty();
        let recent = |at: &Timestamp| now.duration_since(*at) < FRESH;
        let known = || lock(context).get(&class.name_any()).is_some_and(|(at, _)| recent(at));
        let asked = || failed(context).get(&class.name_any()).is_some_and(recent);
        (wanted && !known() && !asked()).then_some(class)
    })
}

/// Reads the reservations of these pools, where the last reading is old. What cannot be read is not asked for again at
/// once.
pub(in crate::provisioner) async fn refresh(context: &Context, pools: &[String], state: &State) {
    let now = context.clock.now();
    let stale: Vec<&EC2NodeClass> = stale(context, pools, state, now).collect();
    for class in stale {
        match class::reservations(context, class).await {
            Ok(found) => {
                lock(context).insert(class.name_any(), (now, found));
                failed(context).remove(&class.name_any());
            }
            Err(error) => {
                debug!(error = %error, "reservations not read; those read last are used");
                failed(context).insert(class.name_any(), now);
            }
        }
    }
}

/// Forgets what is known of free hosts: EC2 has just reported otherwise.
pub(in crate::provisioner) fn forget(context: &Context) {
    lock(context).clear();
}

fn lock(context: &Context) -> MutexGuard<'_, BTreeMap<String, (Timestamp, Vec<Reservation>)>> {
    context.reservations.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the reservations of a class could not be read.
fn failed(context: &Context) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
    context.unread_reservations.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reservations of a class, hosts that other batches take off the free ones.
pub(in crate::provisioner) fn free(context: &Context, class: &EC2NodeClass, ledger: &Ledger) -> Vec<Reservation> {
    let Some((read, mut found)) = lock(context).get(&class.name_any()).cloned() else { return Vec::new() };
    for reservation in &mut found {
        reservation.free = ledger.hosts(reservation, read);
    }
    found
}
