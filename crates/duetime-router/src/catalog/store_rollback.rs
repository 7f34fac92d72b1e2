//! Handles a store that was rolled back under a running node: it was started from a snapshot, or its data was replaced by
//! a copy.
//!
//! Upstream: `route`, when a shard knows less than this node, and `consistency`, once a second. Downstream: the store,
//! and the catalog. A change of the shard count that only this node remembers is void then: messages are where
//! the store's own record says. A node that went by the change would not find them and answer `unknown`, and shards that
//! learn of the change would keep it.

use duetime_core::{ResizeStore, StoreError, TopicName};
use tracing::error;

use crate::catalog::Catalog;
use crate::catalog::reports::Reports;

/// Accepts the catalog's record of a topic where it is older than this node's, if no shard has a newer one. If one has,
/// only a part of the store was rolled back, and an operator must decide which record holds.
///
/// `before`: the epoch that this node knew before it read the catalog again. A change made meanwhile is no rollback.
///
/// # Errors
///
/// [`StoreError::Outdated`] where shards know of a later change than the catalog; the store's.
pub(crate) async fn accept_rollback(
    store: &dyn ResizeStore,
    catalog: &Catalog,
    reports: &Reports,
    topic: &TopicName,
    before: u64,
) -> Result<(), StoreError> {
    let (Some(record), Some(known)) = (catalog.older(topic), catalog.get(topic)) else { return Ok(()) };
    if record.routing.epoch >= before {
        return Ok(());
    }
    let reach = record.routing.reach().max(known.routing.reach());
    let found = store.inspect(topic, 0..reach).await?;
    let later = found.iter().flatten().filter(|shard| shard.routing.epoch > record.routing.epoch);
    if let Some(messages) = later.map(|shard| shard.held).reduce(|sum, more| sum + more) {
        reports.later(topic, Some(messages));
        return Err(StoreError::Outdated(topic.to_string()));
    }
    reports.later(topic, None);
    if catalog.accept_rollback(&record) {
        let (shards, shards_before) = (record.routing.shards, known.routing.shards);
        error!(
            %topic, shards, shards_before,
            "the store was rolled back to before a change of this topic's shard count; this node goes by the store's record \
             again, and what was acknowledged since then is lost"
        );
    }
    Ok(())
}
