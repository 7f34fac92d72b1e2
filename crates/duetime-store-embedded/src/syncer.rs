//! Waits for the disk, once for as many requests as have gathered, then answers them.
//!
//! Upstream: the writer, which goes on meanwhile. The log is written in order, so what is synced
//! last covers all before it. Keeps the promise that an acknowledged message survives a power loss.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use duetime_core::StoreError;
use tracing::error;

use crate::job::Job;
use crate::synced::SyncedNumber;

/// Transactions that may wait for the disk.
pub const WAITING_MAX: usize = 16;

/// Set when the disk refused a sync: nothing may be promised from then on.
pub type Broken = Arc<AtomicBool>;

/// What is answered once the disk refused.
pub fn broken_error() -> StoreError {
    StoreError::Damaged(
        "the disk did not keep what was written; check the disk and its log (dmesg), then start duetime again"
            .to_owned(),
    )
}

/// Requests that were committed and are answered once that is on the disk.
pub struct Group {
    pub jobs: Vec<Box<dyn Job>>,
    /// The number of the last transaction so far.
    pub number: i64,
}

/// Runs until the writer ends.
pub fn run(log: &File, inbox: &Receiver<Group>, broken: &Broken, mut synced: SyncedNumber) {
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
        if !broken.load(Ordering::Acquire)
            && let Err(error) = log.sync_data()
        {
            // The kernel may have thrown the pages away: a second sync would lie.
            error!(%error, "the disk refused to sync, nothing more is accepted");
            broken.store(true, Ordering::Release);
        }
        let failed = broken.load(Ordering::Acquire);
        if !failed {
            synced.write(number);
        }
        for job in jobs {
            if failed { job.refuse(broken_error()) } else { job.answer() }
        }
    }
}
