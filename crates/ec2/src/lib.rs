//! The one crate that talks to AWS.
//!
//! Requests are built from, and answers read into, the types of [`muster_core::ec2`]; no type of the SDK is public
//! here. A call does exactly what its name says: deciding, repeating after an unknown outcome and waiting for
//! visibility belong to the caller, which is why launches are sent once and never retried by the SDK.
//!
//! One file per family of operations; in each, requests and answers are plain functions beside the calls.

mod agent;
mod catalogue;
mod client;
mod console;
mod convert;
mod eks;
mod error;
mod events;
mod fleets;
mod groups;
mod health;
mod images;
mod instances;
mod journal;
mod launch;
mod list_prices;
mod network;
mod pace;
mod parameters;
mod preflight;
mod prices;
mod queue;
mod quotas;
mod reservations;
mod run;
mod templates;

pub use client::{Client, ClientOptions, ConnectError, Credentials, find_credentials};
pub use eks::{access_entry, describe_cluster};
pub use events::{Message, MessageError, read_message};
pub use fleets::FLEETS_AT_ONCE;
pub use groups::GroupQuery;
pub use health::InstanceHealth;
pub use images::ImageQuery;
pub use instances::{InstanceQuery, Terminated, TopologyQuery};
pub use journal::{Exchange, Journal};
pub use network::NetworkQuery;
pub use pace::{Pace, Turn};
pub use preflight::TrialLaunch;
pub use prices::SpotPrices;
pub use queue::{Queue, QueueError, Received};
pub use reservations::ReservationQuery;
