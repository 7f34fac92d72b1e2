//! Operations on ids: finds each id's home shard, groups into batches, keeps the order of answers.
//!
//! Upstream: the HTTP API and the command line. Downstream: `Store`. Knows no JSON of the API, no
//! sink, no claim: claiming is the engine's. [`Catalog`] is this node's picture of the topics,
//! [`Router`] acts on messages wherever they are while shards change, [`RoutedStore`] does so for the
//! engine, [`Metering`] times every call on its way down.

mod batch_queue;
mod bulk;
mod bulk_error;
mod bulk_page;
mod bulk_plan;
mod bulk_space;
mod catalog;
mod change;
mod consistency;
mod dead;
mod dead_groups;
mod endings;
mod error;
mod forecast;
mod forecasts;
mod herd;
mod issues;
mod list;
mod metered;
mod ops;
mod reach;
mod reports;
mod route;
mod routed;
mod router;
mod store_rollback;
mod topic_counts;
mod topic_limits;
mod vanished;

#[cfg(test)]
mod tests;

pub use bulk::{PER_SECOND_MAX, PlanWatcher, Plans};
pub use bulk_error::PlanError;
pub use bulk_plan::{
    BulkAction, BulkFilter, BulkPlan, DRAFT_MS, PlanAsk, PlanCounts, PlanCursor, PlanFailure, PlanStart, PlanState,
};
pub use catalog::Catalog;
pub use change::{CatalogPut, TopicChange, TopicPut};
pub use consistency::{ConsistencyChecker, ShardAnomaly};
pub use dead::{DeadCursor, DeadLetters, DeadList, DeadSettled, DeadSweep};
pub use dead_groups::{DeadGroup, DeadGroups, OTHER_REASONS, SCANNED_MAX, normalised};
pub use error::{CatalogError, RouteError};
pub use forecast::Forecaster;
pub use forecasts::{Buckets, FORECAST_KEPT, Forecast, Herd};
pub use herd::{Load, TimeBucket};
pub use issues::Issues;
pub use list::{Listed, ListedState, LiveMessages, MessageCursor, MessageFilter, MessageList};
pub use metered::Metering;
pub use reach::Reach;
pub use routed::RoutedStore;
pub use router::{Changed, Placed, Router, SettleAnswer, SettleAsk};
pub use topic_counts::{TopicCounter, TopicCounts};
