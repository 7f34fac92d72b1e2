//! A backup made while the store is written to.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _};
use std::sync::atomic::AtomicBool;

use duetime_core::{BackupError, BackupStore as _};

use super::*;
use crate::backup::{BackupCounts, check_backup};

async fn enqueue(store: &EmbeddedStore, n: usize) {
    let mut batch: Vec<Enqueue> = (0..32).map(|m| message(&format!("order-{n}-{m}"), Due::At(NOW))).collect();
    batch.iter_mut().for_each(|message| message.payload = vec![7; 16 << 10].into());
    store.enqueue(&shard(), NOW, &batch).await.unwrap();
}

/// Begins a backup, which a busy machine may not copy the log for within the time that the store takes for it.
async fn begun(store: &EmbeddedStore) -> duetime_core::Backup {
    let tried = async {
        loop {
            match store.backup().await {
                Ok(backup) => break backup,
                Err(BackupError::Store(StoreError::Unavailable { .. })) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, tried).await.expect("its log is copied")
}

async fn save(mut backup: duetime_core::Backup, file: &Path) -> u64 {
    let mut all = Vec::new();
    while let Some(chunk) = backup.chunks.recv().await {
        all.extend_from_slice(&chunk.unwrap());
    }
    std::fs::write(file, &all).unwrap();
    all.len() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_whole_of_one_moment_and_a_store_starts_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    for n in 0..100 {
        enqueue(&store, n).await;
    }
    let ended = Arc::new(AtomicBool::new(false));
    let (writing, until) = (store.clone(), ended.clone());
    let load = tokio::spawn(async move {
        let mut n = 100;
        while !until.load(Ordering::Acquire) {
            enqueue(&writing, n).await;
            n += 1;
        }
        n
    });
    let restored = tempfile::tempdir().unwrap();
    for n in 0..2 {
        let backup = begun(&store).await;
        assert!(matches!(store.backup().await, Err(BackupError::Running)), "one at a time");
        let (bytes, messages) = (backup.bytes, backup.messages);
        let file = restored.path().join(format!("copy?{n} % #"));
        assert_eq!(save(backup, &file).await, bytes);
        assert_eq!(check_backup(&file).unwrap(), BackupCounts { topics: 1, messages });
        assert!(messages >= 3200 && messages % 32 == 0, "each request is whole or not in it: {messages}");

        let again = restored.path().join(format!("store-{n}"));
        std::fs::create_dir(&again).unwrap();
        std::fs::copy(&file, again.join(fault::DATABASE)).unwrap();
        let again = open(&again);
        assert_eq!(again.all_counts(&[shard()], NOW).await.unwrap()[0].scheduled, messages);
        assert_eq!(again.issues(), Vec::<String>::new());
        assert_eq!(again.claim(&shard(), NOW, &asking(1, 10)).await.unwrap().messages.len(), 10);
    }
    ended.store(true, Ordering::Release);
    assert!(load.await.unwrap() > 100);
    assert_eq!(store.issues(), Vec::<String>::new());
}

#[tokio::test]
async fn a_backup_that_nobody_takes_ends_and_the_next_may_begin() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    for n in 0..20 {
        enqueue(&store, n).await;
    }
    drop(store.backup().await.unwrap());
    let again = async {
        while matches!(store.backup().await, Err(BackupError::Running)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("it ends when its receiver is gone");
}

#[tokio::test]
async fn a_copy_that_is_not_whole_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    for n in 0..4 {
        enqueue(&store, n).await;
    }
    let file = folder.path().join("copy");
    save(store.backup().await.unwrap(), &file).await;
    assert_eq!(check_backup(&file).unwrap().messages, 128);
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let why = check_backup(&file).unwrap_err().to_string();
    assert!(why.contains("make another backup"), "{why}");
}
