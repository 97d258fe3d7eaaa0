//! Tests of the root package, one module per subject; everything in one binary, since each costs a link of its own.

// Marked as test code, so that clippy allows `unwrap` in helper functions too.
#[cfg(test)]
mod check_config;
#[cfg(test)]
mod cloud;
#[cfg(test)]
mod deployment;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod fake_kubelet;
mod fuzz;
#[cfg(test)]
mod gc_account;
#[cfg(test)]
mod getting_started;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod page;
#[cfg(test)]
mod power_off;
#[cfg(test)]
mod prices;
#[cfg(test)]
mod published;
#[cfg(test)]
mod serving;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod unread;
#[cfg(test)]
mod unwitnessed;
