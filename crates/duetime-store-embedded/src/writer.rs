//! The one thread that writes: takes as many requests as wait and runs them in one transaction.
//!
//! Upstream: `store`, over a bounded channel. Downstream: SQLite, then `syncer` for what is answered
//! only when it is on the disk. Each request is whole or not at all: when the database refuses one,
//! the transaction is rolled back and its requests are run one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use duetime_core::StoreError;
use duetime_core::store::Wakeup;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{broadcast, mpsc};
use tracing::warn;

use crate::checkpoint::Checkpoints;
use crate::fault::{FULL, is_busy, is_corrupt, is_full, sql_error};
use crate::job::{CommitMode, Job};
use crate::reserve::DiskReserve;
use crate::shortage::{SMALL_BYTES, Shortage};
use crate::sweep::Sweep;
use crate::syncer::{Broken, Group, UNSYNCED};
use crate::write_context::WriteContext;

/// A writer that neither answers nor ends a transaction for this long is not ready.
pub const WRITES_WITHIN: Duration = Duration::from_secs(1);
/// What is said then.
pub const SILENT: &str = "its writer ended no transaction for a second: the disk does not answer, or another process \
                          holds the database (`fuser duetime.db` in the store's folder shows who has it open)";

/// Requests that may wait for the writer; more wait in their callers.
pub const REQUESTS_MAX: usize = 4096;
/// Most messages of one transaction.
const GROUP_ITEMS_MAX: usize = 4096;
/// Most bytes of bodies of one transaction; one request may be larger by itself.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How often one request is tried again because it passes over one more damaged place.
const DAMAGED_TRIES_MAX: usize = 512;

/// The one thread that writes: takes as many requests as wait and runs them in one transaction.
#[derive(Debug)]
pub struct Writer {
    pub ctx: WriteContext,
    pub reserve: DiskReserve,
    pub checkpoints: Checkpoints,
    pub sweep: Sweep,
    pub wakeups: broadcast::Sender<Wakeup>,
    pub to_sync: SyncSender<Group>,
    pub broken: Broken,
    pub shortage: Shortage,
    /// Transactions that came to their end: whether the writer goes on.
    pub progress: Arc<AtomicU64>,
}

impl Writer {
    /// Runs until every sender of requests is gone.
    pub fn run(&mut self, inbox: &mut mpsc::Receiver<Box<dyn Job>>) {
        let mut next = None;
        while let Some(first) = next.take().or_else(|| self.next(inbox)) {
            if let Some(error) = self.broken.error() {
                first.refuse(error);
                continue;
            }
            if first.mode() == CommitMode::OwnTransaction {
                self.run_group(vec![first]);
                continue;
            }
            let (mut items, mut bytes) = first.size();
            let mut group = vec![first];
            while items < GROUP_ITEMS_MAX && bytes < GROUP_BYTES_MAX {
                let Ok(job) = inbox.try_recv() else { break };
                if job.mode() == CommitMode::OwnTransaction {
                    next = Some(job);
                    break;
                }
                items += job.size().0;
                bytes += job.size().1;
                group.push(job);
            }
            self.run_group(group);
            self.between(false);
        }
    }

    /// The next request; while there is none, what deleted topics left is swept.
    fn next(&mut self, inbox: &mut mpsc::Receiver<Box<dyn Job>>) -> Option<Box<dyn Job>> {
        loop {
            match inbox.try_recv() {
                Ok(job) => return Some(job),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            if !self.between(true) {
                return inbox.blocking_recv();
            }
        }
    }

    /// What is done between transactions; whether there is more of it at once. `idle`: no request waits.
    fn between(&mut self, idle: bool) -> bool {
        if self.broken.error().is_some() {
            return false;
        }
        self.look_for_space();
        self.checkpoints.turn(&self.ctx.conn);
        // At the same time as a checkpoint it would only wait at the disk; the end of that wakes the writer.
        let due = !self.checkpoints.is_running() && self.sweep.is_due(&self.ctx, idle);
        if due
            && let Err(error) = self.sweep.step(&mut self.ctx)
            && is_full(&error)
            && !self.shorten_log(&[])
        {
            self.release_reserve(&[]);
        }
        due
    }

    fn run_group(&mut self, group: Vec<Box<dyn Job>>) {
        let mut group = self.admit(group);
        match self.try_group(&mut group) {
            Ok(()) => self.hand_on(group),
            // Each by itself would wait as long as all together.
            Err(error) if is_busy(&error) => self.refuse(group, &error),
            Err(_) if group.len() > 1 => group.into_iter().for_each(|job| self.run_one(job)),
            Err(error) => self.run_again(group, error),
        }
    }

    /// Refuses new messages while it is known that there is no space for them; answers the rest.
    #[expect(clippy::borrowed_box, reason = "it is given the items of a Vec of boxes")]
    fn admit(&mut self, group: Vec<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
        let is_new = |job: &Box<dyn Job>| job.mode() == CommitMode::NewMessages;
        if !group.iter().any(is_new) || (!self.shortage.is_closed() && self.reserve.accepts(&self.ctx.conn)) {
            return group;
        }
        let (new, rest): (Vec<_>, Vec<_>) = group.into_iter().partition(is_new);
        for job in new {
            self.refuse_full(job, FULL.to_owned());
        }
        rest
    }

    fn refuse_full(&mut self, job: Box<dyn Job>, mut why: String) {
        if self.checkpoints.is_behind() {
            why.push_str("; its log cannot be copied while another process or a backup reads the database");
        }
        self.shortage.refused(&job.size());
        self.ctx.damages.full(Some(why.clone()));
        job.refuse(StoreError::Full(why));
    }

    fn refuse(&mut self, jobs: Vec<Box<dyn Job>>, error: &rusqlite::Error) {
        if is_busy(error) {
            self.ctx.damages.locked(true);
        }
        for job in jobs {
            match sql_error(error, job.doing(), &self.ctx.folder) {
                StoreError::Full(_) if job.mode() == CommitMode::NewMessages => {
                    self.refuse_full(job, FULL.to_owned());
                }
                StoreError::Full(why) => self.refuse_full(job, why),
                other => job.refuse(other),
            }
        }
    }

    fn try_group(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), rusqlite::Error> {
        self.ctx.last = None;
        let done = match group {
            [] => Ok(()),
            [job] if job.mode() == CommitMode::OwnTransaction => job.run(&mut self.ctx),
            _ => self.ctx.transaction(|ctx| group.iter_mut().try_for_each(|job| job.run(ctx))),
        };
        match done {
            Ok(()) => {
                self.ctx.committed(&self.wakeups);
                self.progress.fetch_add(1, Ordering::Release);
                if group.iter().any(|job| job.mode().writes()) {
                    self.ctx.damages.locked(false);
                }
            }
            Err(_) => self.ctx.undo(),
        }
        done
    }

    fn run_one(&mut self, job: Box<dyn Job>) {
        if job.mode() == CommitMode::NewMessages && self.shortage.is_closed() {
            return self.refuse_full(job, FULL.to_owned());
        }
        let mut one = vec![job];
        match self.try_group(&mut one) {
            Ok(()) => self.hand_on(one),
            Err(error) => self.run_again(one, error),
        }
    }

    /// Tries one request again where that may help: about a damaged place, or with the space kept back.
    fn run_again(&mut self, mut one: Vec<Box<dyn Job>>, mut error: rusqlite::Error) {
        for _ in 0..DAMAGED_TRIES_MAX {
            if !is_corrupt(&error) || !self.ctx.found_damage(&error.to_string()) {
                break;
            }
            match self.try_group(&mut one) {
                Ok(()) => return self.hand_on(one),
                Err(next) => error = next,
            }
        }
        // The log is copied first, which costs nothing; then what is kept back is given up, unless for new messages.
        for make_space in [Self::shorten_log, Self::release_reserve] {
            if is_full(&error) && make_space(self, &one) {
                match self.try_group(&mut one) {
                    Ok(()) => return self.hand_on(one),
                    Err(next) => error = next,
                }
            }
        }
        self.refuse(one, &error);
    }

    fn shorten_log(&mut self, jobs: &[Box<dyn Job>]) -> bool {
        let brings = jobs.iter().any(|job| job.mode() == CommitMode::NewMessages);
        self.checkpoints.shorten(&self.ctx.conn, &self.ctx.files, brings)
    }

    fn release_reserve(&mut self, jobs: &[Box<dyn Job>]) -> bool {
        let released = jobs.iter().all(|job| job.mode() != CommitMode::NewMessages) && self.reserve.release();
        if released {
            warn!(folder = %self.ctx.folder.display(), "no space left, the reserve is used up for deliveries");
        }
        released
    }

    /// Whether there is space for new messages again, once none were refused for a while.
    fn look_for_space(&mut self) {
        if !self.shortage.is_looked_at() {
            return;
        }
        // What a drain leaves free is inside the database, which keeps its size: a full disk does not matter then.
        let grows = || self.ctx.files.hold_pages(&self.ctx.conn, SMALL_BYTES as u64).is_ok();
        if self.reserve.accepts(&self.ctx.conn) && (DiskReserve::is_inside(&self.ctx.conn) || grows()) {
            self.shortage = Shortage::default();
            self.ctx.damages.full(None);
        }
    }

    /// Answers what may be answered; the syncer answers the rest.
    fn hand_on(&mut self, group: Vec<Box<dyn Job>>) {
        let (committed, jobs): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|job| job.mode() == CommitMode::Committed);
        committed.into_iter().for_each(Job::answer);
        if jobs.is_empty() {
            return;
        }
        let is_first_written = self.checkpoints.is_first_written();
        if let Err(lost) = self.to_sync.send(Group { jobs, number: self.ctx.number, is_first_written }) {
            // The syncer has ended: nothing reaches the disk any more.
            self.broken.set(UNSYNCED);
            for job in lost.0.jobs {
                job.refuse(self.broken.committed_error().expect("it was set"));
            }
        }
    }
}
