//! Sees whether a change is done: nothing on its way, nothing out of its home, in every old shard.

use duetime_core::resize_store::Scanned;
use duetime_core::routing::shard_of;
use duetime_core::{Routing, StoreError, TopicName};

use crate::context::Context;
use crate::mover::PAGE;

/// Whether shard `index` has this record, and nothing that belongs elsewhere, in whole.
///
/// It informs no shard of the record: one that has not heard of it after the fence has gone back to an earlier time, and
/// the change with it perhaps.
///
/// First all pages, then the outbox: what a page missed because it was just being taken is in the
/// outbox then, or has arrived. What came to a part that the scan had left (a dead letter that was redriven or replaced)
/// is known by `revived` of the pages: nothing is said of a scan while it rises.
pub(crate) async fn is_clean(
    context: &Context,
    topic: &TopicName,
    routing: &Routing,
    index: u32,
) -> Result<bool, StoreError> {
    let (store, shard, seed) = (&context.given.deps.store, routing.shard(topic, index), routing.seed(topic));
    let (mut cursor, mut revived) = (None, 0);
    loop {
        let page = store.scan(&shard, cursor.as_ref(), PAGE).await?;
        // A page that begins anew needs no special care: one misplaced id on any page is enough,
        // and the pages that count are those from the last beginning to the end.
        if page.first {
            revived = page.revived;
        }
        let is_misplaced = |scanned: &Scanned| shard_of(&scanned.id, seed, routing.shards) != index;
        if page.revived != revived || page.found.iter().any(is_misplaced) {
            return Ok(false);
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(store.outbox(&shard).await?.is_none())
}
