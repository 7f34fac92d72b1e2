//! Copies the log into the database: most of it on a thread of its own while the writer goes on, the rest,
//! which came meanwhile, by the writer itself. Then the log begins anew.
//!
//! Upstream: the writer. SQLite would do it at a commit and swallow the errors; here they are seen, and one
//! that leaves it unknown whether the database has the pages ends all promises. A copy never lacks space: what is
//! committed has it in the database already (`write_context`). Only a reader can keep it from being whole.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use duetime_core::StoreError;
use rusqlite::Connection;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::error;

use crate::damage::Damages;
use crate::fault::is_unsynced;
use crate::files::StoreFiles;
use crate::folder::{BUSY_MAX, LOG_BYTES_MAX, PAGE_BYTES, open_checkpointer};
use crate::job::{Job, Nudge};
use crate::syncer::{Broken, UNSYNCED};

/// Pages of the log (of 4 KiB) at which it is copied: 32 MiB.
const LOG_PAGES: i32 = 8192;
/// Pages of the log, with a head of 24 bytes each, that only [`Checkpoints::shorten`] gives back to the disk.
const KEPT_PAGES: i32 = (LOG_BYTES_MAX / (PAGE_BYTES as i64 + 24)) as i32;
/// How long after a copy that was not whole the next is tried.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long after it has waited in vain it waits again.
const WAITED_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Copies that were not whole for this long are reported: readers of this process end sooner.
const REPORTED_AFTER: Duration = Duration::from_secs(10);
/// How long the writer waits for readers to end before the log is shortened.
const READERS_WAIT: Duration = Duration::from_millis(200);

/// What is said of a log that somebody reads.
const READ_BY_OTHERS: &str = "another process holds the database and reads in one transaction, so the log grows; end \
                              it (`fuser duetime.db` in the store's folder shows who has it open)";

/// What came of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The log begins anew with the next transaction.
    Whole,
    /// A reader still needs the rest, or the other thread copies.
    Part,
    /// The error was reported.
    Failed,
}

/// What the threads share.
#[derive(Debug)]
pub struct SharedCheckpoint {
    /// Pages in the log after the last commit.
    pages: AtomicI32,
    /// A backup needs what is in the log at present.
    backup: AtomicBool,
    /// It has to end: there is no space for the log.
    backup_stopped: AtomicBool,
    damages: Arc<Damages>,
    broken: Broken,
}

/// Copies the log into the database: most of it on a thread of its own while the writer goes on, the rest, which came
/// meanwhile, by the writer itself.
#[derive(Debug)]
pub struct Checkpoints {
    shared: Arc<SharedCheckpoint>,
    orders: Option<SyncSender<()>>,
    /// The other thread has done its part.
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    /// The other thread was asked, and the rest is to be copied when it has done its part.
    asked: bool,
    /// Since when copies have not been whole.
    behind: Option<Instant>,
    tried: Option<Instant>,
    /// When it was waited for readers in vain.
    blocked: Option<Instant>,
    /// Pages of the log that have been handed to the syncer: what comes is written where they were.
    written: i32,
}

/// Copies what no reader needs.
fn copy(conn: &Connection, mode: &str) -> rusqlite::Result<Copied> {
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (busy, pages, copied): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(if busy == 0 && pages == copied { Copied::Whole } else { Copied::Part })
    })
}

impl SharedCheckpoint {
    fn new(damages: Arc<Damages>, broken: Broken) -> Self {
        let (backup, backup_stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { pages: AtomicI32::new(0), backup, backup_stopped, damages, broken }
    }

    /// Says what came of a copy.
    fn note(&self, copied: rusqlite::Result<Copied>) -> Copied {
        copied.unwrap_or_else(|error| {
            if is_unsynced(&error) {
                // The kernel may have thrown pages away, and the log must not begin anew over them.
                error!(%error, "the disk refused to keep the database, nothing more is accepted");
                self.broken.set(UNSYNCED);
            }
            self.damages.checkpoint(Some(format!("{error}; look at the disk")));
            Copied::Failed
        })
    }

    /// Copies all that is committed, for a backup that is about to read it from the database file.
    pub fn copy_for_backup(&self, writer: &Connection) -> Copied {
        self.note(copy(writer, "PASSIVE"))
    }

    /// Lets one backup begin; `None`: one is being made.
    pub fn begin_backup(self: &Arc<Self>) -> Option<BackupPlace> {
        let is_free = !self.backup.swap(true, Ordering::AcqRel);
        is_free.then(|| {
            self.backup_stopped.store(false, Ordering::Release);
            BackupPlace(self.clone())
        })
    }

    fn run(
        &self,
        conn: &Connection,
        orders: &Receiver<()>,
        done: &SyncSender<()>,
        writer: &mpsc::WeakSender<Box<dyn Job>>,
    ) {
        while orders.recv().is_ok() {
            self.note(copy(conn, "PASSIVE"));
            if done.send(()).is_err() {
                return;
            }
            // A writer with requests waiting comes by anyway.
            if let Some(writer) = writer.upgrade() {
                let _ = writer.try_send(Box::new(Nudge));
            }
        }
    }
}

/// The one backup there may be; dropped, another may begin.
#[derive(Debug)]
pub struct BackupPlace(Arc<SharedCheckpoint>);

impl BackupPlace {
    /// Whether it has to end.
    pub fn is_stopped(&self) -> bool {
        self.0.backup_stopped.load(Ordering::Acquire)
    }

    /// Bytes in the log after the last commit.
    pub fn log_bytes(&self) -> u64 {
        u64::from(self.0.pages.load(Ordering::Acquire).unsigned_abs()) * PAGE_BYTES
    }
}

impl Drop for BackupPlace {
    fn drop(&mut self) {
        self.0.backup.store(false, Ordering::Release);
    }
}

impl Checkpoints {
    /// Starts the thread, has `writer` report how long the log is, and copies what an earlier process left in it.
    pub fn start(
        folder: &Path,
        writer: &mut Connection,
        jobs: mpsc::WeakSender<Box<dyn Job>>,
        damages: Arc<Damages>,
        broken: Broken,
    ) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Unavailable { doing: "start the checkpointer", source };
        let shared = Arc::new(SharedCheckpoint::new(damages, broken));
        let conn = open_checkpointer(folder).map_err(|error| failed(Box::new(error)))?;
        let (orders, inbox) = sync_channel(1);
        let (to_done, done) = sync_channel(1);
        let running = shared.clone();
        let thread = std::thread::Builder::new()
            .name("duetime-checkpointer".to_owned())
            .spawn(move || running.run(&conn, &inbox, &to_done, &jobs))
            .map_err(|error| failed(Box::new(error)))?;
        let (orders, thread) = (Some(orders), Some(thread));
        let mut checkpoints =
            Self { shared, orders, done, thread, asked: false, behind: None, tried: None, blocked: None, written: 0 };
        checkpoints.follow(writer).map_err(|error| failed(Box::new(error)))?;
        checkpoints.rest(writer);
        Ok(checkpoints)
    }

    pub fn shared(&self) -> &Arc<SharedCheckpoint> {
        &self.shared
    }

    /// Has a connection report how long the log is after each commit.
    pub fn follow(&mut self, writer: &mut Connection) -> rusqlite::Result<()> {
        let shared = self.shared.clone();
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            shared.pages.store(pages, Ordering::Release);
            Ok(())
        }))
    }

    /// Whether the log is being copied, and what can wait should.
    pub fn is_running(&self) -> bool {
        self.asked
    }

    /// Whether a reader keeps the log from beginning anew.
    pub fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Whether the log has a part that no sync has covered where it lies. To be called for each transaction that is
    /// handed to the syncer.
    pub fn is_first_written(&mut self) -> bool {
        let pages = self.shared.pages.load(Ordering::Acquire);
        let is_first = pages > self.written;
        self.written = self.written.max(pages).min(KEPT_PAGES);
        is_first
    }

    /// To be called between transactions.
    pub fn turn(&mut self, writer: &Connection) {
        if self.asked {
            if !matches!(self.done.try_recv(), Err(TryRecvError::Empty)) {
                self.asked = false;
                self.rest(writer);
            }
            return;
        }
        let long = self.shared.pages.load(Ordering::Acquire) >= LOG_PAGES;
        if long && !self.is_behind() || self.behind.and(self.tried).is_some_and(|tried| tried.elapsed() >= AGAIN_AFTER)
        {
            self.asked = true;
            // Where its thread has ended, the writer does all of it with the next turn.
            let _ = self.orders.as_ref().map(|orders| orders.try_send(()));
        }
    }

    /// Copies what is left, so that the log begins anew with the next transaction.
    fn rest(&mut self, writer: &Connection) -> Copied {
        let copied = self.shared.note(copy(writer, "PASSIVE"));
        self.settle(copied);
        copied
    }

    /// Copies all of it and gives the disk back what the log had, for there is no space; false: that was no help now.
    /// For new messages (`brings`) the log keeps its part before the database grows.
    pub fn shorten(&mut self, writer: &Connection, files: &StoreFiles, brings: bool) -> bool {
        self.shared.backup_stopped.store(true, Ordering::Release);
        // Readers that did not end within that time will not end now; it is seen at once when they have.
        let waited = self.blocked.is_some_and(|blocked| blocked.elapsed() < WAITED_AGAIN_AFTER);
        let readers_wait = if waited { Duration::ZERO } else { READERS_WAIT };
        if std::mem::take(&mut self.asked) {
            // It ends: it waits for nobody.
            let _ = self.done.recv();
        }
        let wait = |time| writer.busy_timeout(time);
        self.written = 0;
        let copied = wait(readers_wait).and_then(|()| copy(writer, "TRUNCATE"));
        let copied = self.shared.note(copied.and_then(|copied| wait(BUSY_MAX).map(|()| copied)));
        self.settle(copied);
        files.keep_log(!brings);
        if copied == Copied::Whole {
            self.blocked = None;
        } else if !waited {
            self.blocked = Some(Instant::now());
        }
        copied == Copied::Whole
    }

    fn settle(&mut self, copied: Copied) {
        let now = Instant::now();
        self.tried = Some(now);
        if copied == Copied::Whole {
            self.shared.pages.store(0, Ordering::Release);
            self.behind = None;
            self.shared.damages.checkpoint(None);
            return;
        }
        let since = *self.behind.get_or_insert(now);
        let by_others = copied == Copied::Part && !self.shared.backup.load(Ordering::Acquire);
        if by_others && since.elapsed() >= REPORTED_AFTER {
            self.shared.damages.checkpoint(Some(READ_BY_OTHERS.to_owned()));
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the checkpointer panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use duetime_metrics::Meters;
    use rusqlite::ffi;

    use super::*;

    fn failed(code: i32) -> rusqlite::Result<Copied> {
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    #[test]
    fn a_part_of_the_log_is_first_written_until_a_transaction_that_reached_as_far_was_handed_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = crate::folder::open_writer(folder.path()).unwrap();
        let (jobs, _inbox) = mpsc::channel(1);
        let damages = Arc::new(Damages::new(Arc::new(Meters::new())));
        let start = Checkpoints::start(folder.path(), &mut writer, jobs.downgrade(), damages, Broken::default());
        let mut checkpoints = start.unwrap();
        let mut after = |pages| {
            checkpoints.shared.pages.store(pages, Ordering::Release);
            checkpoints.is_first_written()
        };
        assert_eq!([3, 3, 9, 2, 9, 10].map(&mut after), [true, false, true, false, false, true]);
        assert_eq!([20_000, 20_000, 1].map(&mut after), [true, true, false], "SQLite shortens such a log");
        let files = StoreFiles::open(folder.path()).unwrap();
        checkpoints.shorten(&writer, &files, false);
        checkpoints.shared.pages.store(1, Ordering::Release);
        assert!(checkpoints.is_first_written(), "its space was given back");
    }

    #[test]
    fn a_copy_that_fails_is_reported_and_a_refused_sync_ends_all_promises() {
        let meters = Arc::new(Meters::new());
        let damages = Arc::new(Damages::new(meters.clone()));
        let broken = Broken::default();
        let shared = SharedCheckpoint::new(damages.clone(), broken.clone());
        let shown =
            |value: u8| meters.render().contains(&format!("duetime_store_issues{{kind=\"checkpoint\"}} {value}"));
        assert_eq!(shared.note(Ok(Copied::Part)), Copied::Part);
        assert!(shown(0), "a reader that ends is no issue");
        assert_eq!(shared.note(failed(ffi::SQLITE_IOERR_READ)), Copied::Failed);
        assert!(shown(1) && damages.issues()[0].contains("cannot be copied") && broken.error().is_none());
        assert_eq!(shared.note(failed(ffi::SQLITE_IOERR_FSYNC)), Copied::Failed);
        assert!(broken.error().is_some());
    }
}
