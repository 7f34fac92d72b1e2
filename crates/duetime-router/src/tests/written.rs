//! What is known of topics while they are written, here and by another node.

use super::*;

/// Does `write` to the catalog while a read that began before it ends after it.
async fn write_beside_a_slow_read<T: Send + 'static>(
    fixture: &Fixture,
    write: impl Future<Output = T> + Send + 'static,
) -> T {
    let writes = hold(&fixture.watched.writes);
    let writing = tokio::spawn(write);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The read has seen the topics as they were, and its answer is on its way.
    let reads = hold(&fixture.watched.reads);
    let reading = tokio::spawn({
        let catalog = fixture.catalog.clone();
        async move { catalog.refresh().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    *fixture.watched.reads.lock() = None;
    writes.add_permits(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    reads.add_permits(1);
    reading.await.unwrap().unwrap();
    writing.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_read_that_began_before_a_topic_was_written_does_not_undo_what_is_known_of_it() {
    let fixture = Fixture::with_shards(1).await;
    let (catalog, bills) = (fixture.catalog.clone(), TopicName::new("bills").unwrap());
    let put = {
        let bills = bills.clone();
        async move { catalog.put(&bills, &TopicChange::default()).await.unwrap().created }
    };
    assert!(write_beside_a_slow_read(&fixture, put).await);
    assert!(fixture.catalog.get(&bills).is_some(), "created, and not known");

    let catalog = fixture.catalog.clone();
    let topic = fixture.topic.clone();
    let changed = async move { catalog.put(&topic, &change(r#"{"max_payload":7}"#)).await.unwrap().record };
    let changed = write_beside_a_slow_read(&fixture, changed).await;
    assert_eq!((changed.config.max_payload, fixture.catalog.get(&fixture.topic)), (7, Some(changed)));

    let catalog = fixture.catalog.clone();
    assert!(
        write_beside_a_slow_read(&fixture, async move {
            catalog.delete(&bills, duetime_core::Deletion::Force).await.unwrap()
        })
        .await
    );
    assert_eq!(fixture.catalog.all().len(), 1, "deleted, and still known");
}

#[tokio::test]
async fn another_nodes_change_is_seen_by_whoever_looks_at_the_topic() {
    let fixture = Fixture::with_shards(1).await;
    let other =
        Catalog::open(fixture.store.clone(), fixture.clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
    other.put(&fixture.topic, &change(r#"{"max_payload":7}"#)).await.unwrap();
    assert_eq!(fixture.router.counter.count(&fixture.topic).await.unwrap().record.config.max_payload, 7);
    other.put(&fixture.topic, &change(r#"{"max_payload":8}"#)).await.unwrap();
    assert_eq!(fixture.router.counter.count_all().await.unwrap()[0].record.config.max_payload, 8);
}
