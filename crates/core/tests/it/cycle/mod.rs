//! The gang loop's decisions, carried out by a small model of everything around it.

mod buying;
mod life;
mod random;
mod sim;
mod watchdog;
