//! A store that went back to an earlier time under a running node: it was started from a snapshot, or its data was
//! replaced by a copy.
//!
//! Upstream: `route`, when a shard knows less than this node, and `consistency`, once a second. Downstream: the store,
//! and the catalog. What this node remembers of a change of the shard count is worth nothing then: messages are
//! where the store's own record says. They would not be found where the node looks, `unknown` would be answered
//! for what is there, and shards that learn of the change that was undone would stay so.

use duetime_core::{ResizeStore, StoreError, TopicName};
use tracing::error;

use crate::catalog::Catalog;
use crate::reports::Reports;

/// Where the catalogue has an older record of the topic than this node knows: takes that, if no shard knows more. If one
/// does, only a part of the store went back, and an operator has to say what holds.
///
/// `before`: the epoch that was known before the catalogue was read again. A change that was made meanwhile says nothing.
///
/// # Errors
///
/// [`StoreError::Outdated`] where shards know of a later change than the catalogue; the store's.
pub(crate) async fn go_back(
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
    if catalog.go_back(&record) {
        let (shards, shards_before) = (record.routing.shards, known.routing.shards);
        error!(
            %topic, shards, shards_before,
            "the store went back to before a change of this topic's shard count; the topic is as the store has it again, \
             and what was acknowledged since then is lost"
        );
    }
    Ok(())
}
