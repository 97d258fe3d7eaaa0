//! The client against the simulator, over loopback HTTP with the real SDK between them.

mod eks;
mod first_launch;
mod launch;
mod power_off;
mod reads;
mod support;
mod ways;
mod wire;
