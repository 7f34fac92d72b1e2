//! The live resize as a seeded simulation: one thread, virtual time, the reference store with replicas
//! that lag, failovers, lost questions and lost answers, movers that die, clients that know nothing of it.
//!
//! The real router and the real resizer run; only the store, time and chance are simulated. A seed is
//! the bug report: the same seed is the same run.

mod clients;
mod draw;
mod faulty;
mod world;

pub use world::{Story, run};
