//! The store protocol as a seeded simulation: one thread, virtual time, masters with replicas that lag, a network
//! that delays, reorders, delivers late and loses, nodes that stop, clocks that jump, topics that are deleted and
//! created again while their shard count changes.
//!
//! On every node runs what runs in the product: catalog, router, resizer, the store, its link and its scripts. Masters
//! (a small Redis), network, time and chance are simulated. A seed is the bug report: the same seed is the same run.

use mimalloc::MiMalloc;

/// Much of a world's time goes to allocations.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

mod clients;
mod clocks;
mod consumers;
mod crossing;
mod deletions;
mod draw;
mod faults;
mod forwarded;
mod full;
mod impatient;
mod judge;
mod letters;
mod lives;
mod marks;
mod masters;
mod mutation;
mod net;
mod past;
mod plan;
mod producers;
mod removed;
mod revived;
mod same_id;
mod scripts;
mod series;
mod story;
mod sum;
mod trace;
mod undone;
mod verdict;
mod went_back;
mod witness;
mod world;

pub use mutation::{ALL as MUTATIONS, Mutation};
pub use plan::{Part, Plan, shrunk};
pub use sum::Sum;
pub use verdict::{each, judged, noticed, told};
pub use world::Story;
