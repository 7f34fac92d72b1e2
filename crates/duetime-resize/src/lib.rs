//! Changes a topic's number of shards while everything goes on.
//!
//! Upstream: the program, and the router, which finishes a batch that is in its way ([`duetime_core::Mover`]). Downstream: the
//! store contract ([`duetime_core::ResizeStore`], [`duetime_core::RoutingAuthority`]) and nothing else.
//! Nothing here has state that matters: any node may run any of it at any time, several at once are
//! safe, and who is killed is replaced by whoever looks next. `docs/RESIZE.md` describes the steps.
//!
//! ```text
//! request ──▶ controller ── begin ─▶ fence all ─▶ mover, shard by shard ─▶ verifier ─▶ commit
//!                                                   │ take put check drop      │ misplaced
//!                                                   ◀──────────────────────────┘
//! scrubber: for ever, slowly: what a failover brought back where it does not belong
//! ```

#[cfg(test)]
mod afternoon;
mod auto;
mod batch;
mod config;
mod context;
mod controller;
mod drive;
mod fence;
mod measure;
mod mover;
mod places;
mod progress;
mod scrubber;
mod steps;
mod throttle;
mod verifier;

#[cfg(test)]
mod tests;

pub use config::ResizeConfig;
pub use context::ResizeDeps;
pub use controller::Resizer;
pub use steps::{MoveDeps, NoSteps, Step, Steps};
