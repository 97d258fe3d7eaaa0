//! What shows the views of a cluster to somebody: a terminal. No client, no runtime, no AWS.

pub mod terminal;
