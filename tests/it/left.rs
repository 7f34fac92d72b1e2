//! What a store has at the end of a test: read from its shards, not concluded from what should be there.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _};
use std::sync::Arc;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::{Clock as _, Store};
use duetime_store_redis::RedisStore;
use duetime_testkit::WallClock;
use duetime_testkit::history::{FinalState, Left, digest};

/// Messages of one page of a scan.
const PAGE: usize = 1_000;

/// Every message in every shard of every topic, and the sum of the shards' own counts.
pub async fn left(store: &dyn Store) -> FinalState {
    let (mut all, mut counts) = (Vec::new(), (0, 0, 0));
    for record in store.topics().await.unwrap() {
        let topic = &record.name;
        for (index, inspected) in (0..).zip(store.inspect(topic, 0..record.max_shards_ever()).await.unwrap()) {
            let Some(inspected) = inspected else { continue };
            let shard = inspected.routing.shard(topic, index);
            let mut ids = std::collections::BTreeSet::new();
            let mut cursor = None;
            loop {
                let page = store.scan(&shard, cursor.as_ref(), PAGE).await.unwrap();
                ids.extend(page.found.into_iter().map(|found| found.id));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            let ids: Vec<_> = ids.into_iter().collect();
            for asked in ids.chunks(BATCH_ITEMS_MAX) {
                for message in store.get(&shard, asked).await.unwrap().into_iter().flatten() {
                    all.push(Left {
                        topic: topic.to_string(),
                        id: message.id.to_string(),
                        state: message.state.as_str().to_owned(),
                        payload: digest(&message.payload),
                        reason: message.death.map(|death| death.reason),
                    });
                }
            }
            let survey = store.all_counts(std::slice::from_ref(&shard), WallClock.now()).await.unwrap()[0];
            counts = (counts.0 + survey.scheduled, counts.1 + survey.in_flight, counts.2 + survey.dead);
        }
    }
    FinalState { left: all, counts: Some(counts) }
}

/// The same of a Redis at this address.
pub async fn left_at(url: String) -> FinalState {
    let store: Arc<RedisStore> = crate::store_load::connect(url).await;
    left(&*store).await
}
