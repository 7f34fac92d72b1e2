//! What the writer does besides answering: sweeps, checkpoints, and starts again.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, sync_channel};
use std::task::Poll;

use super::*;

fn rows(folder: &Path, table: &str) -> i64 {
    let conn = folder::open_reader(folder).unwrap();
    conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// Waits until nothing is left of what was deleted; the writer, which is a thread, notifies nobody of that.
async fn swept(folder: &Path) {
    let gone = async {
        while rows(folder, "gone") > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it goes on after the start");
}

/// Polls it once, so that it waits in the queue of the writer.
async fn queued(asked: &mut (impl Future + Unpin)) {
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut *asked).poll(cx).is_pending()));
    assert!(polled.await, "the writer has answered already");
}

#[tokio::test]
async fn a_deleted_topic_is_gone_at_once_and_its_messages_bit_by_bit_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    for n in 0..80 {
        let batch: Vec<Enqueue> = (0..250).map(|m| message(&format!("order-{n}-{m}"), Due::At(NOW))).collect();
        store.enqueue(&shard(), NOW, &batch).await.unwrap();
    }
    // The writer stands still before the deletion until it is queued, and behind it, before it sweeps, until it has ended.
    let halt = |until: Receiver<()>| {
        store.ask("stand still", CommitMode::OwnTransaction, plain(0), move |_| {
            let _ = until.recv();
            Ok(())
        })
    };
    let ((begins, before), (goes_on, behind)) = (sync_channel(1), sync_channel(1));
    let (mut before, mut behind) = (Box::pin(halt(before)), Box::pin(halt(behind)));
    let topic = shard().topic;
    let mut deletion = store.delete_topic(&topic, duetime_core::Deletion::Force);
    queued(&mut before).await;
    queued(&mut deletion).await;
    queued(&mut behind).await;
    drop(begins);
    assert!(deletion.await.unwrap());
    assert!(rows(folder.path(), "message") > 0, "it is answered before all is swept");
    assert!(matches!(store.get(&shard(), &[]).await, Err(StoreError::UnknownShard(_))));
    drop((before, behind));
    let mut store = Arc::into_inner(store).unwrap();
    store.background.clear();
    store.jobs = None;
    drop(goes_on);
    drop(store);
    let left = rows(folder.path(), "message");
    assert!(left > 0, "the end of the process does not wait for it");

    let store = with_topic(folder.path()).await;
    let life = store.topics().await.unwrap()[0].routing.epoch;
    let shard = Shard { epoch: life, ..shard() };
    store.enqueue(&shard, NOW, &[message("order-0-0", Due::At(NOW))]).await.unwrap();
    swept(folder.path()).await;
    assert_eq!(rows(folder.path(), "message"), 1, "and takes nothing of the topic that has the name now");
    assert_eq!(store.claim(&shard, NOW, &asking(1, 10)).await.unwrap().messages.len(), 1);
}

#[tokio::test]
async fn the_log_is_copied_into_the_database_and_does_not_grow() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let enqueue = async |n: usize| {
        let mut batch: Vec<Enqueue> = (0..32).map(|m| message(&format!("order-{n}-{m}"), Due::At(NOW))).collect();
        batch.iter_mut().for_each(|message| message.payload = vec![7; 64 << 10].into());
        store.enqueue(&shard(), NOW, &batch).await.unwrap();
    };
    for n in 0..40 {
        enqueue(n).await;
    }
    // Of what was written, it holds that since it began anew. The thread that copies gets its time, if late.
    let log = || std::fs::metadata(folder.path().join("duetime.db-wal")).unwrap().len();
    let short = async {
        for n in 40.. {
            if log() < 64 << 20 {
                break;
            }
            enqueue(n).await;
        }
    };
    tokio::time::timeout(PATIENCE, short).await.expect("it begins anew");
    assert_eq!(store.issues(), Vec::<String>::new());
}

#[tokio::test]
async fn a_writer_that_panics_is_started_again_and_not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    store.enqueue(&shard(), NOW, &[message("before", Due::At(NOW))]).await.unwrap();
    let panics = |ctx: &mut WriteContext| {
        ctx.conn.execute("DELETE FROM message", []).unwrap();
        panic!("out of order")
    };
    for n in 0..3 {
        let failed = store.ask::<()>("panic", CommitMode::Synced, plain(1), panics).await.unwrap_err();
        assert!(matches!(failed, StoreError::Unavailable { .. }), "{failed}");
        store.enqueue(&shard(), NOW, &[message(&format!("after {n}"), Due::At(NOW))]).await.unwrap();
        ready(&store).await;
    }
    assert_eq!(store.all_counts(&[shard()], NOW).await.unwrap()[0].due, 4, "what panicked was undone");
    assert_eq!(store.next_due(&[shard()]).await.unwrap(), [Some(NOW)]);
    store.ask::<()>("panic", CommitMode::Synced, plain(1), panics).await.unwrap_err();
    let refused = store.enqueue(&shard(), NOW, &[message("too late", Due::At(NOW))]).await.unwrap_err().to_string();
    let why = store.ready().await.unwrap_err().to_string();
    for told in [refused, why] {
        assert!(told.contains("again and again") && told.contains("start duetime again"), "{told}");
        assert!(!told.contains("out of order"), "what a panic says may hold a secret: {told}");
    }
}

#[tokio::test]
async fn a_folder_whose_lock_file_was_removed_is_refused_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    std::fs::remove_file(folder.path().join("duetime.lock")).unwrap();
    let refused = EmbeddedStore::open(folder.path(), Arc::new(Meters::new())).unwrap_err().to_string();
    assert!(refused.contains("used by another duetime"), "{refused}");
    drop(first);
    let _second = open(folder.path());
}
