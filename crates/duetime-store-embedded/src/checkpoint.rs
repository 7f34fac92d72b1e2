//! Copies the log into the database: most of it on a thread of its own while the writer goes on, the rest,
//! which came meanwhile, by the writer itself. Then the log begins anew.
//!
//! Upstream: the writer. SQLite would do it at a commit and swallow the errors; here they are seen, and one
//! that leaves it unknown whether the database has the pages ends all promises.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use duetime_core::StoreError;
use rusqlite::Connection;
use tokio::sync::mpsc;
use tracing::error;

use crate::damage::Damages;
use crate::fault::{is_full, is_unsynced};
use crate::folder::open_checkpointer;
use crate::job::{Job, Nudge};
use crate::syncer::Broken;

/// Pages of the log (of 4 KiB) at which it is copied: 32 MiB.
const LOG_PAGES: i32 = 8192;
const PAGE_BYTES: u64 = 4096;
/// Pages that may come before the next try, after one that did not copy everything.
const MORE_PAGES: i32 = 2048;

/// What the threads share.
#[derive(Debug)]
struct SharedCheckpoint {
    /// Pages in the log after the last commit.
    pages: AtomicI32,
    running: AtomicBool,
    damages: Arc<Damages>,
    broken: Broken,
}

/// Copies the log into the database: most of it on a thread of its own while the writer goes on, the rest, which came
/// meanwhile, by the writer itself.
#[derive(Debug)]
pub struct Checkpoints {
    shared: Arc<SharedCheckpoint>,
    orders: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The other thread was asked, and the rest is to be copied when it has done its part.
    asked: bool,
    /// Pages at which it is asked.
    at: i32,
}

/// Copies what no reader needs; true: all of it.
fn copy(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        let (busy, pages, copied): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(busy == 0 && pages == copied)
    })
}

impl SharedCheckpoint {
    /// Says what came of a copy; whether everything was copied.
    fn note(&self, copied: rusqlite::Result<bool>) -> bool {
        match copied {
            Ok(whole) => {
                self.damages.checkpoint(None);
                whole
            }
            // The log grows on meanwhile; whoever brings something new learns of a full disk.
            Err(error) if is_full(&error) => false,
            Err(error) => {
                if is_unsynced(&error) {
                    // The kernel may have thrown pages away, and the log must not begin anew over them.
                    error!(%error, "the disk refused to keep the database, nothing more is accepted");
                    self.broken.store(true, Ordering::Release);
                }
                self.damages.checkpoint(Some(error.to_string()));
                false
            }
        }
    }

    fn run(&self, conn: &Connection, orders: &Receiver<()>, writer: &mpsc::WeakSender<Box<dyn Job>>) {
        while orders.recv().is_ok() {
            self.note(copy(conn));
            self.running.store(false, Ordering::Release);
            // A writer with requests waiting comes by anyway.
            if let Some(writer) = writer.upgrade() {
                let _ = writer.try_send(Box::new(Nudge));
            }
        }
    }
}

impl Checkpoints {
    /// Starts the thread, and has `writer` report how long the log is.
    pub fn start(
        folder: &Path,
        writer: &mut Connection,
        jobs: mpsc::WeakSender<Box<dyn Job>>,
        damages: Arc<Damages>,
        broken: Broken,
    ) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Unavailable { doing: "start the checkpointer", source };
        let shared =
            Arc::new(SharedCheckpoint { pages: AtomicI32::new(0), running: AtomicBool::new(false), damages, broken });
        let conn = open_checkpointer(folder).map_err(|error| failed(Box::new(error)))?;
        let (orders, inbox) = sync_channel(1);
        let running = shared.clone();
        let thread = std::thread::Builder::new()
            .name("duetime-checkpointer".to_owned())
            .spawn(move || running.run(&conn, &inbox, &jobs))
            .map_err(|error| failed(Box::new(error)))?;
        let mut checkpoints = Self { shared, orders: Some(orders), thread: Some(thread), asked: false, at: LOG_PAGES };
        checkpoints.follow(writer).map_err(|error| failed(Box::new(error)))?;
        Ok(checkpoints)
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

    /// Bytes in the log after the last commit.
    pub fn log_bytes(&self) -> u64 {
        u64::from(self.shared.pages.load(Ordering::Acquire).unsigned_abs()) * PAGE_BYTES
    }

    /// To be called between transactions.
    pub fn turn(&mut self, writer: &Connection) {
        if self.asked && !self.shared.running.load(Ordering::Acquire) {
            self.asked = false;
            self.rest(writer);
        } else if !self.asked && self.shared.pages.load(Ordering::Acquire) >= self.at {
            self.shared.running.store(true, Ordering::Release);
            self.asked = true;
            if let Some(Err(TrySendError::Disconnected(()))) = self.orders.as_ref().map(|orders| orders.try_send(())) {
                // Its thread has ended: the writer does all of it.
                self.shared.running.store(false, Ordering::Release);
            }
        }
    }

    /// Copies what is left, so that the log begins anew with the next transaction; false: some of it stays.
    pub fn rest(&mut self, writer: &Connection) -> bool {
        let whole = self.shared.note(copy(writer));
        let pages = self.shared.pages.load(Ordering::Acquire);
        self.at = if whole { LOG_PAGES } else { pages.saturating_add(MORE_PAGES).max(LOG_PAGES) };
        if whole {
            self.shared.pages.store(0, Ordering::Release);
        }
        whole
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

    fn failed(code: i32) -> rusqlite::Result<bool> {
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    #[test]
    fn a_copy_that_fails_is_reported_until_one_succeeds_and_a_refused_sync_ends_all_promises() {
        let meters = Arc::new(Meters::new());
        let damages = Arc::new(Damages::new(meters.clone()));
        let (pages, running, broken) = (AtomicI32::new(0), AtomicBool::new(false), Broken::default());
        let shared = SharedCheckpoint { pages, running, damages: damages.clone(), broken: broken.clone() };
        let shown =
            |value: u8| meters.render().contains(&format!("duetime_store_troubles{{kind=\"checkpoint\"}} {value}"));
        assert!(!shared.note(failed(ffi::SQLITE_FULL)) && shown(0), "a full disk is reported in another place");
        assert!(!shared.note(failed(ffi::SQLITE_IOERR_READ)) && shown(1));
        assert!(damages.troubles()[0].contains("cannot be copied") && !broken.load(Ordering::Acquire));
        assert!(shared.note(Ok(true)) && shown(0) && damages.troubles().is_empty());
        assert!(!shared.note(failed(ffi::SQLITE_IOERR_FSYNC)) && broken.load(Ordering::Acquire));
    }
}
