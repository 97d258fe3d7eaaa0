//! The gang loop's decisions, carried out by a small model of everything around it.

#[cfg(test)]
mod late;
mod life;
#[cfg(test)]
mod loss;
mod mixing;
mod pinned;
#[cfg(test)]
mod ports;
mod provisioning;
mod queue;
mod random;
mod reasons;
mod roles;
mod sim;
mod turns;
#[cfg(test)]
mod unread;
#[cfg(test)]
mod unused;
#[cfg(test)]
mod volumes;
mod watchdog;
