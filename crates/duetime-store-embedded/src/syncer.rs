//! Waits for the disk, once for as many requests as have gathered, then answers them.
//!
//! Upstream: the writer, which goes on meanwhile. The log is written in order, so what is synced
//! last covers all before it. Keeps the promise that an acknowledged message survives a power loss.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};

use duetime_core::StoreError;
use tracing::error;

use crate::files::StoreFiles;
use crate::job::Job;
use crate::synced::SyncedNumber;

/// Transactions that may wait for the disk.
pub const WAITING_MAX: usize = 16;

/// What is answered once the disk refused a sync.
pub const UNSYNCED: &str =
    "the disk did not keep what was written; check the disk and its log (dmesg), then start duetime again";

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
}

/// Requests that were committed and are answered once that is on the disk.
pub struct Group {
    pub jobs: Vec<Box<dyn Job>>,
    /// The number of the last transaction so far.
    pub number: i64,
}

/// Runs until the writer ends.
pub fn run(files: &StoreFiles, inbox: &Receiver<Group>, broken: &Broken, mut synced: SyncedNumber) {
    while let Ok(Group { mut jobs, mut number }) = inbox.recv() {
        for _ in 0..WAITING_MAX {
            match inbox.try_recv() {
                Ok(more) => {
                    jobs.extend(more.jobs);
                    number = more.number;
                }
                Err(_) => break,
            }
        }
        if broken.error().is_none()
            && let Err(error) = files.log.file().sync_data()
        {
            // The kernel may have thrown the pages away: a second sync would lie.
            error!(%error, "the disk refused to sync, nothing more is accepted");
            broken.set(UNSYNCED);
        }
        if broken.error().is_none() {
            synced.write(number);
        }
        for job in jobs {
            match broken.error() {
                Some(error) => job.refuse(error),
                None => job.answer(),
            }
        }
    }
}
