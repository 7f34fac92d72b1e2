//! Operations on ids: finds each id's home shard, groups into batches, keeps the order of answers.
//!
//! Upstream: the HTTP API and the command line. Downstream: `Store`. Knows no JSON of the API, no
//! sink, no claim: claiming is the engine's. [`Catalog`] is this node's picture of the topics,
//! [`Router`] acts on messages wherever they are while shards change, [`RoutedStore`] does so for the
//! engine, [`Metering`] times every call on its way down.
//!
//! Folders import one way: `put_sinks`, `catalog`, `calls`, `queries`, then `router`, then `bulk`, `resend`, `forward` and
//! `retention`.

mod bulk;
mod calls;
mod catalog;
mod consistency;
mod error;
mod forward;
mod metered;
mod past;
mod put_sinks;
mod queries;
mod reach;
mod resend;
mod retention;
mod routed;
mod router;
mod series;
mod settlement;

#[cfg(test)]
mod tests;

pub use bulk::error::PlanError;
pub use bulk::plan::undo::{PlanUndo, UNDO_MS, UndoState, node_name};
pub use bulk::plan::{
    BulkAction, BulkFilter, BulkPlan, DRAFT_MS, PlanAsk, PlanCounts, PlanCursor, PlanFailure, PlanStart, PlanState,
};
pub use bulk::{LATE_FOR, PER_SECOND_MAX, PlanDeps, PlanWatcher, Plans, late_for};
pub use catalog::Catalog;
pub use catalog::change::{CatalogPut, TopicChange, TopicPut};
pub use catalog::issues::Issues;
pub use consistency::{ConsistencyChecker, ShardAnomaly};
pub use error::{CatalogError, RouteError};
pub use metered::Metering;
pub use put_sinks::{PutSinkError, PutSinks, SinkPut};
pub use queries::body_steps::BodySteps;
pub use queries::dead::{DeadCursor, DeadLetters, DeadList, DeadSettled, DeadSweep};
pub use queries::dead_groups::{DeadGroup, DeadGroups, OTHER_REASONS, SCANNED_MAX, normalised};
pub use queries::forecast::Forecaster;
pub use queries::forecasts::{Buckets, FORECAST_KEPT, Forecast, Herd};
pub use queries::herd::{Load, TimeBucket};
pub use queries::list::{Listed, ListedState, LiveMessages, MessageCursor, MessageFilter, MessageList};
pub use queries::topic_counts::{TopicCounter, TopicCounts};
pub use queries::watermark::{HeldBy, Watermark, Watermarks};
pub use reach::Reach;
pub use resend::{Resend, Resent, resend};
pub use retention::Retention;
pub use routed::RoutedStore;
pub use router::{Changed, Placed, Router, SettleAnswer};
pub use settlement::SettleAsk;
