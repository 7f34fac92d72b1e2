//! Counts where a part of the store does not answer.

use std::collections::HashSet;

use super::*;

/// Answers no count while it is silent.
#[derive(Debug, Default)]
struct SilentCounts(AtomicBool);

impl StoreLayer for SilentCounts {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        if call.op == "counts" && self.0.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { doing: "count", source: "silent".into() });
        }
        made.await
    }
}

#[tokio::test]
async fn shards_of_a_silent_server_are_missing_where_the_others_were_counted_lately() {
    let fixture = Fixture::with_shards(2).await;
    let bills = TopicName::new("bills").unwrap();
    fixture.catalog.put(&bills, &change(r#"{"shards":1}"#)).await.unwrap();
    assert!(fixture.enqueue(vec![message("a")]).await[0].is_ok());
    let silent = Arc::new(SilentCounts::default());
    let store = Layered::new(fixture.small.shared(), silent.clone());
    let moves = Arc::new(MoveDeps::new(store.clone()));
    let (catalog, clock) = (fixture.catalog.clone(), fixture.clock.clone());
    let counter = Router::new(store, moves, catalog, clock, Arc::new(Meters::new())).counter.clone();
    assert_eq!(counter.count_recent(&HashSet::new()).await.unwrap().len(), 2);
    silent.0.store(true, Ordering::SeqCst);
    // Only what is counted again is asked for, and none of it answers.
    let counts = counter.count_recent(&HashSet::from([bills.clone()])).await.unwrap();
    let found: Vec<_> = counts.iter().map(|of| (of.record.name.as_str(), of.unreachable_shards())).collect();
    assert_eq!(found, [("bills", 1), ("orders", 0)]);
    assert_eq!(counts[1].total.scheduled, 1);
    let all = HashSet::from([bills, fixture.topic.clone()]);
    assert!(counter.count_recent(&all).await.is_err(), "nothing at all is known");
}
