//! The engine: the loops that claim, deliver and settle.
//!
//! ```text
//!            wakeups, answers, a poll a second
//!                        │
//!                    scheduler ── wheel
//!                        │ due
//!                    schedule ────────────┐
//!                        │ shards in turn │
//!   breaker, budget, claimer          consumers ──▶ HTTP API
//!   rate ────────────▶   │ batches
//!                    deliverer ──▶ sink
//!                        │ verdicts
//!                     settler ──▶ store
//! ```
//! Knows nothing of Redis, HTTP or any sink in particular: it speaks [`duetime_core::ClaimStore`],
//! [`duetime_core::Sink`] and [`duetime_core::Ownership`]. Upstream: the program. Keeps: nothing is
//! sent after its deadline, one settlement per claim, memory bounded by the in-flight budget.

mod alarm;
mod asker;
mod breaker;
mod budget;
mod claimer;
mod config;
mod consumer_claim;
mod consumers;
mod deliverer;
mod engine;
mod expired;
mod gauges;
mod health;
mod in_flight;
mod in_place;
mod judge;
mod outages;
mod rate;
mod refused_streams;
mod runner;
mod schedule;
mod scheduler;
mod server_load;
mod settler;
mod shard_entry;
mod shared_poll;
mod sink_call;
mod sink_states;
mod spans;
mod throughput;
mod unsent;
mod verdicts;
mod wheel;
mod work;

#[cfg(test)]
mod tests;

pub use config::DispatchConfig;
pub use engine::{Engine, EngineParts};
