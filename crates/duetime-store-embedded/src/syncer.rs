//! Waits for the disk, once for as many requests as have gathered, then answers them.
//!
//! Upstream: the writer, which goes on meanwhile. The log is written in order, so what is synced
//! last covers all before it. Keeps the promise that an acknowledged message survives a power loss.
//!
//! Where the log is written for the first time, the file system has to note that its blocks are in use. A sync during
//! which ext4 gives up (its journal is aborted, by an error of the disk or by `mount -o remount,abort`) succeeds,
//! although that note was lost. So a sync of such a part counts only if the file system takes one more sync, of
//! something newly written, after it. What is written again where it was needs no note.

use std::fs::File;
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};

use duetime_core::StoreError;
use tracing::error;

use crate::fault::is_no_space;
use crate::files::StoreFiles;
use crate::job::Job;
use crate::synced::SyncedNumber;

/// Transactions that may wait for the disk.
pub const WAITING_MAX: usize = 16;

/// What is answered once the disk refused a sync.
pub const UNSYNCED: &str =
    "the disk did not keep what was written; check the disk and its log (dmesg), then start duetime again";

/// What is added for a request that was committed: it may be found done after a restart.
const MAY_BE_DONE: &str = "whether this request was done is not known";

/// Why nothing may be promised any more; once set, it stays.
#[derive(Clone, Debug, Default)]
pub struct Broken(Arc<OnceLock<String>>);

impl Broken {
    /// Nothing may be promised from now on.
    pub fn set(&self, why: &str) {
        // The first reason is the one to look at.
        let _ = self.0.set(why.to_owned());
    }

    /// What is answered, if nothing may be promised.
    pub fn error(&self) -> Option<StoreError> {
        self.0.get().cloned().map(StoreError::Damaged)
    }

    /// What is answered to a request that was committed, if nothing may be promised.
    pub fn committed_error(&self) -> Option<StoreError> {
        self.0.get().map(|why| StoreError::Damaged(format!("{why}; {MAY_BE_DONE}")))
    }
}

/// Requests that were committed and are answered once that is on the disk.
pub struct Group {
    pub jobs: Vec<Box<dyn Job>>,
    /// The number of the last transaction so far.
    pub number: i64,
    /// Some of it lies where the log was not written before.
    pub is_first_written: bool,
}

/// Has the disk keep the log up to the transaction `number`, and notes that it does.
fn sync(log: &File, synced: &mut SyncedNumber, number: i64, is_first_written: bool) -> io::Result<()> {
    log.sync_data()?;
    if !is_first_written {
        synced.write(number);
        return Ok(());
    }
    match synced.write_through(number) {
        // Where there is no space for the note, the log is asked again.
        Err(error) if is_no_space(&error) => log.sync_data(),
        done => done,
    }
}

/// Runs until the writer ends.
pub fn run(files: &StoreFiles, inbox: &Receiver<Group>, broken: &Broken, mut synced: SyncedNumber) {
    while let Ok(Group { mut jobs, mut number, mut is_first_written }) = inbox.recv() {
        for _ in 0..WAITING_MAX {
            match inbox.try_recv() {
                Ok(more) => {
                    jobs.extend(more.jobs);
                    number = more.number;
                    is_first_written |= more.is_first_written;
                }
                Err(_) => break,
            }
        }
        if broken.error().is_none()
            && let Err(error) = sync(files.log.file(), &mut synced, number, is_first_written)
        {
            // The kernel may have thrown the pages away: a second sync would lie.
            error!(%error, "the disk refused to sync, nothing more is accepted");
            broken.set(UNSYNCED);
        }
        for job in jobs {
            match broken.committed_error() {
                Some(error) => job.refuse(error),
                None => job.answer(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_of_a_part_written_for_the_first_time_counts_only_if_the_file_system_takes_one_more() {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let sync = |synced: &mut SyncedNumber, is_first_written| sync(&log, synced, 7, is_first_written).is_ok();
        let mut synced = SyncedNumber::open(folder.path()).unwrap().0;
        assert!(sync(&mut synced, true) && sync(&mut synced, false));
        assert_eq!(SyncedNumber::open(folder.path()).unwrap().1, 7);
        assert!(sync(&mut SyncedNumber::absent(), true), "the log itself is asked again");
        // As of a file system that gave up: what is written is refused.
        let mut refused = SyncedNumber::on(File::open(folder.path().join("log")).unwrap());
        assert!(sync(&mut refused, false));
        assert!(!sync(&mut refused, true));
    }
}
