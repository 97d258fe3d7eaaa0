//! Interruptions, and the events that tell of them, in the shapes that EventBridge puts on a queue.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::choices::EventShape;
use crate::clock::{later, seconds};
use crate::faults::{CallScope, FaultKind};
use crate::kinds::ReservationKind;
use crate::state::World;
use crate::state::agenda::Due;
use crate::state::instances::LifeState;

pub use crate::interruption::{Interruption, InterruptionKind};

impl World {
    /// Interrupts what is alive among the instances.
    pub(crate) fn interrupt(&mut self, what: &Interruption, at: Timestamp) -> Vec<String> {
        let alive = |id: &&String| self.instances.get(*id).is_some_and(|i| i.state(at).is_live());
        let ids: Vec<String> = what.instance_ids.iter().filter(alive).cloned().collect();
        if ids.is_empty() {
            return ids;
        }
        let end = later(at, seconds(what.notice_seconds));
        let (reason, ends) = match what.kind {
            InterruptionKind::Spot => ("Server.SpotInstanceTermination", true),
            InterruptionKind::Rebalance => ("", false),
            InterruptionKind::ScheduledChange => ("Server.ScheduledStop", true),
            InterruptionKind::ReservationReclaim => (RECLAIMED, true),
        };
        if what.kind == InterruptionKind::ScheduledChange {
            for id in &ids {
                if let Some(instance) = self.instances.get_mut(id) {
                    instance.scheduled = Some(("instance-retirement".to_owned(), end));
                }
            }
        }
        if what.warn {
            let named: Vec<&[String]> = match what.kind {
                InterruptionKind::ScheduledChange => vec![ids.as_slice()],
                InterruptionKind::Spot | InterruptionKind::Rebalance | InterruptionKind::ReservationReclaim => {
                    ids.chunks(1).collect()
                }
            };
            for ids in named {
                let event = self.warning(what.kind, ids, at, end);
                self.emit(operation(what.kind), ids.first(), event, at);
            }
        }
        if ends && what.carried_out {
            for id in &ids {
                self.agenda.add(end, Due::Terminate { instance: id.clone(), reason });
            }
        }
        ids
    }

    /// Tells the queue the state of an instance, if the scenario wants it and it is news.
    pub(crate) fn tell_state(&mut self, id: &str, at: Timestamp) {
        let Some(instance) = self.instances.get_mut(id).filter(|_| self.scenario.queue.state_changes) else { return };
        let state = instance.state(at);
        if instance.reported == Some(state) || instance.foreign {
            return;
        }
        instance.reported = Some(state);
        let detail = json!({"instance-id": id, "state": state.name()});
        let event = self.event("EC2 Instance State-change Notification", "aws.ec2", &detail, Some(id), at);
        self.emit("StateChange", Some(&id.to_owned()), event, at);
    }

    /// Warns of the end of a Capacity Block.
    pub(crate) fn warn_of_block(&mut self, id: &str, at: Timestamp) {
        let Some(reservation) = self.reservations.get(id) else { return };
        let end = reservation.end.map(|end| end.to_string());
        let arn = self.arn("capacity-reservation", id);
        let detail = json!({"capacity-reservation-id": id, "end-date": end});
        let mut event = self.event("Capacity Block Expiration Warning", "aws.ec2", &detail, None, at);
        event["resources"] = json!([arn]);
        self.emit("BlockExpiration", None, event, at);
    }

    fn warning(&self, kind: InterruptionKind, ids: &[String], at: Timestamp, end: Timestamp) -> Value {
        let id = ids.first().map_or("", String::as_str);
        let ec2 = |title: &str, detail: Value| self.event(title, "aws.ec2", &detail, Some(id), at);
        match kind {
            InterruptionKind::Spot => ec2(
                "EC2 Spot Instance Interruption Warning",
                json!({"instance-id": id, "instance-action": "terminate"}),
            ),
            InterruptionKind::Rebalance => ec2("EC2 Instance Rebalance Recommendation", json!({"instance-id": id})),
            InterruptionKind::ReservationReclaim => {
                let instance = self.instances.get(id);
                let reservation =
                    instance.and_then(|i| i.capacity_reservation.as_ref()).and_then(|id| self.reservations.get(id));
                let mut detail = json!({
                    "instance-id": id,
                    "instance-action": "terminate",
                    "instance-termination-time": end.to_string(),
                    "instance-lifecycle": instance.map(|i| i.capacity_type.name()),
                });
                // The event of an interruptible reservation spells the zone's id in another way.
                let interruptible = reservation.is_some_and(|r| r.kind == ReservationKind::Interruptible);
                let key = if interruptible { "azId" } else { "availability-zone-id" };
                detail[key] = json!(instance.map(|i| i.zone_id.clone()));
                ec2("EC2 Capacity Reservation Instance Interruption Warning", detail)
            }
            InterruptionKind::ScheduledChange => {
                let arn = format!(
                    "arn:aws:health:{}::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/{}",
                    self.scenario.region,
                    at.as_second()
                );
                let entities: Vec<Value> = ids.iter().map(|id| json!({"entityValue": id})).collect();
                let detail = json!({
                    "eventArn": arn,
                    "service": "EC2",
                    "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
                    "eventTypeCategory": "scheduledChange",
                    "startTime": end.to_string(),
                    "endTime": end.to_string(),
                    "eventDescription": [{
                        "language": "en_US",
                        "latestDescription": "EC2 has detected degradation of the underlying hardware.",
                    }],
                    "affectedEntities": entities,
                });
                self.event("AWS Health Event", "aws.health", &detail, None, at)
            }
        }
    }

    /// The envelope around an event's detail.
    fn event(&self, title: &str, source: &str, detail: &Value, instance: Option<&str>, at: Timestamp) -> Value {
        let odd = self.scenario.choices.event_shape == EventShape::Odd;
        let zone = instance.and_then(|id| self.instances.get(id)).map_or("", |i| i.zone.as_str());
        let resources: Vec<String> = instance
            .map(|id| if odd { format!("arn:aws:ec2:{zone}:instance/{id}") } else { self.arn("instance", id) })
            .into_iter()
            .collect();
        let title_key = if odd { "detail_type" } else { "detail-type" };
        json!({
            "version": "0",
            "id": "",
            title_key: title,
            "source": source,
            "account": self.scenario.account,
            "time": format!("{at:.0}"),
            "region": self.scenario.region,
            "resources": resources,
            "detail": detail,
        })
    }

    /// Puts an event on the queue, as far as the faults let it through.
    fn emit(&mut self, kind: &str, instance: Option<&String>, mut event: Value, at: Timestamp) {
        let instance = instance.and_then(|id| self.instances.get(id));
        let mut scope = CallScope { operation: kind.to_owned(), ..CallScope::default() };
        if let Some(i) = instance {
            scope.types.insert(i.instance_type.clone());
            scope.zones.insert(i.zone.clone());
            scope.capacity_type = Some(i.capacity_type);
            scope.batch = i.batch().map(str::to_owned);
        }
        let drawn = self.faults.draw(&scope, self.origin, at);
        let (mut copies, mut visible) = (1, at);
        for kind in drawn.kinds() {
            if *kind == FaultKind::EventLost {
                return;
            }
            if let FaultKind::EventRepeated { copies: all } = kind {
                copies = copies.max(*all);
            }
            if let FaultKind::EventLate { seconds: late } = kind {
                visible = later(visible, seconds(*late));
            }
        }
        event["id"] = json!(self.ids.uuid());
        for _ in 0..copies {
            let id = self.ids.uuid();
            self.queue.send(id, event.to_string(), at, visible);
        }
    }

    /// Takes the host of an instance out of its reservation: its owner has it again.
    fn reclaim(&mut self, id: &str) {
        let Some(instance) = self.instances.get(id) else { return };
        let reservation = instance.capacity_reservation.as_ref().and_then(|id| self.reservations.get_mut(id));
        if let Some(reservation) = reservation {
            reservation.slots.retain(|slot| slot.host != instance.host);
        }
    }

    /// Does one thing of the agenda.
    pub(crate) fn carry_out(&mut self, due: Due, at: Timestamp) {
        match due {
            Due::StateChange(id) => self.tell_state(&id, at),
            Due::Interrupt(what) => {
                self.interrupt(&what, at);
            }
            Due::Terminate { instance, reason } => {
                if reason == RECLAIMED {
                    self.reclaim(&instance);
                }
                self.terminate(&instance, (reason, reason), jiff::SignedDuration::ZERO, at);
            }
            Due::BlockWarning(id) => self.warn_of_block(&id, at),
            Due::BlockEnd(id) => {
                let inside: Vec<String> = self
                    .instances
                    .values()
                    .filter(|i| i.capacity_reservation.as_ref() == Some(&id) && i.state(at) != LifeState::Terminated)
                    .map(|i| i.id.clone())
                    .collect();
                let reason = "Server.CapacityReservationExpired";
                for instance in inside {
                    self.terminate(&instance, (reason, reason), jiff::SignedDuration::ZERO, at);
                }
            }
        }
    }
}

/// The `stateReason` of an instance whose host its owner wants back.
const RECLAIMED: &str = "Server.CapacityReservationInterruption";

fn operation(kind: InterruptionKind) -> &'static str {
    match kind {
        InterruptionKind::Spot => "SpotInterruption",
        InterruptionKind::Rebalance => "RebalanceRecommendation",
        InterruptionKind::ScheduledChange => "ScheduledChange",
        InterruptionKind::ReservationReclaim => "ReservationInterruption",
    }
}
