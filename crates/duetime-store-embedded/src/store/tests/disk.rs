//! A disk that fills, other processes in the database, and who may read the files.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use duetime_testkit::violation::cannot_run;
use rusqlite::Connection;

use super::*;
use crate::fault::FILE_MODE;

const ITEM_BYTES: usize = 16 << 10;
const NOT_ROOT: &str = "a small disk can only be mounted by root; run the tests as root (sudo -E ./test)";

/// A disk of its own, of so many MiB; gone with the test. Only root can mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(mebibytes: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "duetime-test"]).arg(folder.path());
        mount.output().is_ok_and(|done| done.status.success()).then_some(Self(folder))
    }

    fn store(&self) -> std::path::PathBuf {
        self.0.path().join("store")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// A process that reads the database in one transaction, by its connection.
fn reader(folder: &Path) -> Connection {
    let conn = folder::open_reader(folder).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    conn.query_row("SELECT count(*) FROM message", [], |row| row.get::<_, i64>(0)).unwrap();
    conn
}

async fn fill(store: &EmbeddedStore) -> usize {
    for n in 0.. {
        let mut batch: Vec<Enqueue> = (0..32).map(|m| message(&format!("order-{n}-{m}"), Due::At(NOW))).collect();
        batch.iter_mut().for_each(|message| message.payload = vec![7; ITEM_BYTES].into());
        match store.enqueue(&shard(), NOW, &batch).await {
            Ok(_) => {}
            Err(StoreError::Full(_)) => return n * 32,
            Err(other) => panic!("a full disk is reported as {other}"),
        }
    }
    unreachable!("the disk has an end")
}

/// Claims and acks everything there is; answers how many that were.
async fn drain(store: &EmbeddedStore) -> usize {
    let mut drained = 0;
    for request in 1.. {
        let claim = store.claim(&shard(), NOW, &asking(request, 200)).await.unwrap();
        if claim.messages.is_empty() {
            break;
        }
        drained += claim.messages.len();
        let ack = |one: &duetime_core::store::ClaimedMessage| Settle {
            id: one.id.clone(),
            score: one.score,
            action: Settlement::Ack,
        };
        let acks: Vec<Settle> = claim.messages.iter().map(ack).collect();
        let settled = store.settle(&shard(), NOW, &acks).await.unwrap();
        assert!(settled.iter().all(|one| *one == Settled::Ok));
    }
    drained
}

async fn cancel(store: &EmbeddedStore, batches: std::ops::Range<usize>) -> usize {
    let mut cancelled = 0;
    for n in batches {
        let edits: Vec<Edit> =
            (0..32).map(|m| Edit::Cancel(MessageId::new(&format!("order-{n}-{m}")).unwrap())).collect();
        let answers = store.edit(&shard(), NOW, &edits).await.unwrap();
        assert!(answers.iter().all(|one| *one == Edited::Cancelled));
        cancelled += answers.len();
    }
    cancelled
}

/// Ends the store as `kill -9` does: with a copy of its files as they are.
fn killed(store: Arc<EmbeddedStore>, folder: &Path) {
    let kept = tempfile::tempdir().unwrap();
    for name in ["duetime.db", "duetime.db-wal", "duetime.synced"] {
        std::fs::copy(folder.join(name), kept.path().join(name)).unwrap();
    }
    let reserve = folder.join("duetime.reserve").exists();
    drop(store);
    std::fs::remove_dir_all(folder).unwrap();
    std::fs::create_dir(folder).unwrap();
    for name in ["duetime.db", "duetime.db-wal", "duetime.synced"] {
        std::fs::copy(kept.path().join(name), folder.join(name)).unwrap();
    }
    if reserve {
        std::fs::write(folder.join("duetime.reserve"), vec![0x5a; 16 << 20]).unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_heals_by_draining_in_every_order_of_reader_cancels_and_kill() {
    for (reads, cancels, kills) in
        [(false, 0, false), (true, 0, false), (true, 20, false), (true, 20, true), (false, 0, true), (true, 0, true)]
    {
        let case = format!("reader {reads}, cancels {cancels}, kill {kills}");
        let Some(disk) = SmallDisk::mount(80) else {
            return cannot_run(NOT_ROOT);
        };
        let mut store = with_topic(&disk.store()).await;
        let read = reads.then(|| reader(&disk.store()));
        let taken = fill(&store).await;
        assert!(taken * ITEM_BYTES > 12 << 20, "{case}: {taken}");
        let issues = store.issues();
        assert!(issues.iter().any(|one| one.contains("new messages are refused")), "{case}: {issues:?}");
        // With the reader there, what is kept back goes into the log.
        let early = if reads { cancel(&store, 0..cancels / 2).await } else { 0 };
        drop(read);
        let late = cancel(&store, cancels / 2..cancels).await;
        if kills {
            killed(store, &disk.store());
            store = open(&disk.store());
        }
        assert_eq!(drain(&store).await, taken - early - late, "{case}");
        assert_eq!(store.all_counts(&[shard()], NOW).await.unwrap()[0].scheduled, 0, "{case}");
        if !reads && !kills {
            let ended = async {
                while !store.issues().is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, ended).await.expect("it is said no longer than it is so");
        }
    }
}

#[tokio::test]
async fn a_full_disk_cancels_what_is_there_and_notes_nothing() {
    let Some(disk) = SmallDisk::mount(80) else {
        return cannot_run(NOT_ROOT);
    };
    let store = with_topic(&disk.store()).await;
    fill(&store).await;
    let window = Duration::from_secs(3600);
    let shard = Shard { memory: duetime_core::Memory { window, since: 1, watermark: false }, ..shard() };
    let edits = ["x", "order-0-0", "y"].map(|name| Edit::Cancel(MessageId::new(name).unwrap()));
    assert_eq!(store.edit(&shard, NOW, &edits).await.unwrap(), [Edited::Full, Edited::Cancelled, Edited::Full]);
    // Nothing is to be noted in one that does not remember.
    assert_eq!(store.edit(&super::shard(), NOW, &edits[..1]).await.unwrap(), [Edited::Unknown]);
}

#[tokio::test]
async fn a_full_disk_heals_by_deleting_a_topic_too() {
    let Some(disk) = SmallDisk::mount(80) else {
        return cannot_run(NOT_ROOT);
    };
    let store = with_topic(&disk.store()).await;
    fill(&store).await;
    assert!(store.delete_topic(&shard().topic, duetime_core::Deletion::Force).await.unwrap());
    drop(store);
    let store = with_topic(&disk.store()).await;
    let life = store.topics().await.unwrap()[0].routing.epoch;
    let shard = Shard { epoch: life, ..shard() };
    let taken = async {
        while store.enqueue(&shard, NOW, &[message("a", Due::At(NOW))]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.expect("what was freed is used again");
}

#[tokio::test]
async fn what_is_committed_has_its_space_in_the_database_file_before_it_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let _reader = reader(folder.path());
    for n in 0..10 {
        let mut batch: Vec<Enqueue> = (0..32).map(|m| message(&format!("order-{n}-{m}"), Due::At(NOW))).collect();
        batch.iter_mut().for_each(|message| message.payload = vec![7; ITEM_BYTES].into());
        store.enqueue(&shard(), NOW, &batch).await.unwrap();
        let pages: i64 = folder::open_reader(folder.path())
            .unwrap()
            .query_row("SELECT page_count FROM pragma_page_count", [], |row| row.get(0))
            .unwrap();
        let there = std::fs::metadata(folder.path().join(fault::DATABASE)).unwrap();
        let blocks = std::os::unix::fs::MetadataExt::blocks(&there) * 512;
        let wanted = pages.unsigned_abs() * folder::PAGE_BYTES;
        assert!(there.len() >= wanted && blocks >= wanted, "{} and {blocks} of {wanted}", there.len());
    }
}

#[tokio::test]
async fn a_log_that_a_reader_made_long_is_short_again_when_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let read = reader(folder.path());
    let enqueue = async |n: usize| {
        let mut batch: Vec<Enqueue> = (0..32).map(|m| message(&format!("order-{n}-{m}"), Due::At(NOW))).collect();
        batch.iter_mut().for_each(|message| message.payload = vec![7; 64 << 10].into());
        store.enqueue(&shard(), NOW, &batch).await.unwrap();
    };
    for n in 0..40 {
        enqueue(n).await;
    }
    let log = || std::fs::metadata(folder.path().join("duetime.db-wal")).unwrap().len();
    assert!(log() > 64 << 20, "{}", log());
    drop(read);
    let short = async {
        for n in 1000.. {
            if log() <= 50 << 20 {
                break;
            }
            enqueue(n).await;
        }
    };
    tokio::time::timeout(PATIENCE, short).await.expect("it is shortened when it begins anew");
}

#[tokio::test]
async fn another_process_that_keeps_the_database_locked_is_named_by_readiness() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    ready(&store).await;
    let other = Connection::open(folder.path().join(fault::DATABASE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.enqueue(&shard(), NOW, &[message("a", Due::At(NOW))]).await.unwrap_err().to_string();
    assert!(refused.contains("another process holds the database"), "{refused}");
    assert!(store.issues()[0].contains("another process holds the database"), "{:?}", store.issues());
    let why = store.ready().await.unwrap_err().to_string();
    assert!(why.contains("another process holds the database"), "{why}");
    other.execute_batch("ROLLBACK").unwrap();
    ready(&store).await;
    assert_eq!(store.issues(), Vec::<String>::new());
}

#[tokio::test]
async fn a_database_that_is_removed_or_replaced_under_the_node_takes_nothing_more() {
    for replaced in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = with_topic(folder.path()).await;
        let file = folder.path().join(fault::DATABASE);
        let copy = folder.path().join("copy");
        std::fs::copy(&file, &copy).unwrap();
        if replaced {
            std::fs::rename(&copy, &file).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        let noticed = async {
            while store.enqueue(&shard(), NOW, &[message("a", Due::At(NOW))]).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, noticed).await.expect("it is noticed within a second or two");
        let why = store.ready().await.unwrap_err().to_string();
        assert!(why.contains("duetime.db") && why.contains("nothing more is accepted"), "{why}");
    }
}

/// Whether this process has SQLite's lock on the database by which others know that it is in use.
#[cfg(target_os = "linux")]
fn is_locked_for_others(folder: &Path) -> bool {
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(folder.join(fault::DATABASE)).unwrap());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let of_process = format!("{}", std::process::id());
    locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|lock| {
        lock[1] == "POSIX"
            && lock[4] == of_process
            && lock[5].ends_with(&format!(":{inode}"))
            && lock[6] == "1073741826"
    })
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn another_process_that_closes_the_database_never_takes_itself_for_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = with_topic(folder.path()).await;
    for _ in ["made", "opened again"] {
        store.enqueue(&shard(), NOW, &[message("a", Due::At(NOW))]).await.unwrap();
        drop(reader(folder.path()));
        let mut backup = duetime_core::BackupStore::backup(&*store).await.unwrap();
        while backup.chunks.recv().await.is_some() {}
        assert!(is_locked_for_others(folder.path()), "it would remove the log as it closes");
        drop(store);
        store = open(folder.path());
    }
}

#[tokio::test]
async fn hard_links_of_the_files_are_no_second_store() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = with_topic(folder.path()).await;
    for name in ["duetime.db", "duetime.db-wal", "duetime.db-shm"] {
        std::fs::hard_link(folder.path().join(name), other.path().join(name)).unwrap();
    }
    let refused = EmbeddedStore::open(other.path(), Arc::new(Meters::new())).unwrap_err().to_string();
    assert!(refused.contains("hard links"), "{refused}");
    store.enqueue(&shard(), NOW, &[message("a", Due::At(NOW))]).await.unwrap();
    drop(store);
    EmbeddedStore::open(other.path(), Arc::new(Meters::new())).unwrap();
}

#[tokio::test]
async fn the_files_are_the_nodes_alone_and_those_of_an_older_version_become_so() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("made/here");
    let modes = || {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() >= 6, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), FILE_MODE, "{}", file.display());
        }
    };
    let store = with_topic(&folder).await;
    store.enqueue(&shard(), NOW, &[message("a", Due::At(NOW))]).await.unwrap();
    modes();
    drop(store);
    for file in std::fs::read_dir(&folder).unwrap() {
        std::fs::set_permissions(file.unwrap().path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _store = open(&folder);
    modes();
}
