//! The simulator as its clients see it: form bodies in, XML out, by a clock that stands still.

mod choices;
mod control;
mod documents;
mod events;
mod faults;
mod fleets;
mod groups;
mod instances;
mod invariants;
mod ipv6;
mod knobs;
mod policy;
mod protocol;
mod reads;
mod reservations;
mod support;
mod templates;
