//! The store protocol as a seeded simulation: one thread, virtual time, masters with replicas that lag, a network
//! that delays, reorders, delivers late and loses, nodes that stop, clocks that jump, topics that are deleted and
//! created again while their shard count changes.
//!
//! The real catalogue, router and resizer run on every node; masters, network, time and chance are simulated, and the
//! shards are those of the reference store. A seed is the bug report: the same seed is the same run.

mod catalogue;
mod clients;
mod clocks;
mod consumers;
mod draw;
mod faults;
mod impatient;
mod judge;
mod link;
mod lives;
mod mutation;
mod producers;
mod resize;
mod same_id;
mod server;
mod store;
mod sum;
mod topics;
mod verdict;
mod wire;
mod world;

pub use mutation::Mutation;
pub use sum::Sum;
pub use verdict::judged;
pub use world::Story;
