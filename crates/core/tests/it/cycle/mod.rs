//! The gang loop's decisions, carried out by a small model of everything around it.

mod buying;
mod life;
#[cfg(test)]
mod loss;
mod random;
mod roles;
mod sim;
mod watchdog;
