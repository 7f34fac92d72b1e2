//! Says what became of a topic that this node knew and that is not in the catalog any more: deleted, vanished
//! while its shards hold messages, or gone with all of them.
//!
//! Upstream: `consistency`, once a second, and `route`, before it says that there is no such topic. Downstream: the
//! store, and the catalog's issues. Another node's deletion leaves its number, and nothing else counts as one.

use duetime_core::{StoreError, TopicName, TopicRecord, TopicStore};
use tracing::error;

use crate::catalog::Catalog;

/// Looks into all topics that went away and are not looked into yet, and again into those that have an issue.
pub(crate) async fn look_into_all(store: &dyn TopicStore, catalog: &Catalog) -> Vec<(TopicName, StoreError)> {
    let again = catalog.issues().vanished().into_iter();
    let missing = catalog.missing().into_iter().map(|record| record.name.clone());
    let mut failed = Vec::new();
    for topic in again.chain(missing) {
        if let Err(error) = look_into(store, catalog, &topic).await {
            failed.push((topic, error));
        }
    }
    failed
}

/// Diagnoses a missing topic once for all callers.
/// A deletion is answered as one then, and nothing else is.
pub(crate) async fn look_once(store: &dyn TopicStore, catalog: &Catalog, topic: &TopicName) -> Result<(), StoreError> {
    if catalog.missing_one(topic).is_none() {
        return Ok(());
    }
    let _looking = catalog.looking.lock().await;
    if catalog.missing_one(topic).is_none() { Ok(()) } else { look_into(store, catalog, topic).await }
}

/// Looks into the topic if it went away; what is found is among the catalog's issues then.
pub(crate) async fn look_into(store: &dyn TopicStore, catalog: &Catalog, topic: &TopicName) -> Result<(), StoreError> {
    let issues = catalog.issues();
    let known = catalog.missing_one(topic).or_else(|| issues.known(topic));
    if known.is_none() && !issues.is_vanished(topic) {
        return Ok(());
    }
    let left =
        if catalog.get(topic).is_some() { None } else { left_of(store, catalog, topic, known.as_deref()).await? };
    match left {
        None => issues.end_of(topic),
        Some(messages) => {
            if issues.set_vanished(topic, messages, known) {
                tell(topic, messages);
            }
        }
    }
    catalog.found(topic);
    Ok(())
}

/// What is left of a topic that is not in the catalog: so many messages, or nothing at all although it was not
/// deleted. None: it was deleted, or is back.
async fn left_of(
    store: &dyn TopicStore,
    catalog: &Catalog,
    topic: &TopicName,
    known: Option<&TopicRecord>,
) -> Result<Option<Option<u64>>, StoreError> {
    let messages = store.remains(topic).await?;
    let Some(known) = known.filter(|_| messages == 0) else { return Ok((messages > 0).then_some(Some(messages))) };
    if store.was_deleted(topic, known.routing.life()).await? {
        return Ok(None);
    }
    // It may be created anew at this moment.
    catalog.refresh().await?;
    Ok(catalog.get(topic).is_none().then_some(None))
}

fn tell(topic: &TopicName, messages: Option<u64>) {
    match messages {
        Some(messages) => {
            error!(%topic, messages, "topic vanished from the catalog while its shards hold messages");
        }
        None => error!(
            %topic,
            "topic is gone with all its messages although nobody deleted it: the store was emptied; bring its data \
             back from a copy, or create the topic anew"
        ),
    }
}
