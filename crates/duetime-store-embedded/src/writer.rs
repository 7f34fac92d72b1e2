//! The one thread that writes: takes as many requests as wait and runs them in one transaction.
//!
//! Upstream: `store`, over a bounded channel. Downstream: SQLite, then `syncer` for what is answered
//! only when it is on the disk. Each request is whole or not at all: when the database refuses one,
//! the transaction is rolled back and its requests are run one by one.

use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use duetime_core::StoreError;
use duetime_core::store::Wakeup;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{broadcast, mpsc};
use tracing::warn;

use crate::checkpoint::Checkpoints;
use crate::fault::{full_text, is_corrupt, is_full, sql_error};
use crate::job::{CommitMode, Job};
use crate::reserve::DiskReserve;
use crate::room;
use crate::sweep::Sweep;
use crate::syncer::{Broken, Group, broken_error};
use crate::write_context::WriteContext;

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
}

impl Writer {
    /// Runs until every sender of requests is gone.
    pub fn run(&mut self, inbox: &mut mpsc::Receiver<Box<dyn Job>>) {
        let mut next = None;
        while let Some(first) = next.take().or_else(|| self.next(inbox)) {
            if self.broken.load(Ordering::Acquire) {
                first.refuse(broken_error());
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
        if self.broken.load(Ordering::Acquire) {
            return false;
        }
        self.checkpoints.turn(&self.ctx.conn);
        // At the same time as a checkpoint it would only wait at the disk; the end of that wakes the writer.
        let due = !self.checkpoints.is_running() && self.sweep.is_due(&self.ctx, idle);
        if due {
            self.sweep.step(&mut self.ctx);
        }
        due
    }

    fn run_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        if !self.has_room(&group) {
            let (refused, rest): (Vec<_>, Vec<_>) =
                group.into_iter().partition(|job| job.mode() == CommitMode::NewMessages);
            for job in refused {
                job.refuse(StoreError::Full(full_text(&self.ctx.folder)));
            }
            group = rest;
        }
        match self.try_group(&mut group) {
            Ok(()) => self.hand_on(group),
            Err(_) if group.len() > 1 => group.into_iter().for_each(|job| self.run_one(job)),
            Err(error) => self.run_again(group, error),
        }
    }

    /// Whether there is room for new messages. Has the log copied while there is space for that.
    fn has_room(&mut self, group: &[Box<dyn Job>]) -> bool {
        let brings = group.iter().any(|job| job.mode() == CommitMode::NewMessages);
        if (brings && !self.reserve.accepts(&self.ctx.conn)) || (!brings && self.reserve.bytes() == 0) {
            return false;
        }
        let (items, bytes) = group.iter().map(|job| job.size()).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let (weight, reserve) = (room::weight(items, bytes), self.reserve.bytes());
        // However much of the log is new to the database, it can be copied.
        if self.checkpoints.log_bytes() + weight + room::MARGIN_BYTES <= reserve {
            return true;
        }
        let space = |writer: &Self| room::space(&writer.ctx.conn, &writer.ctx.folder);
        match space(self) {
            Ok(space) if space.suffices(weight, reserve) => return true,
            Ok(space) if space.growth > 0 && !self.checkpoints.is_running() => {}
            // Not knowing is no reason to take messages in.
            _ => return false,
        }
        if !self.checkpoints.rest(&self.ctx.conn) && self.reserve.release() {
            warn!(folder = %self.ctx.folder.display(), "no space left, the reserve is used up for the log");
            self.checkpoints.rest(&self.ctx.conn);
        }
        space(self).is_ok_and(|space| space.suffices(weight, self.reserve.bytes()))
    }

    fn try_group(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), rusqlite::Error> {
        self.ctx.last = None;
        let done = match group {
            [] => Ok(()),
            [job] if job.mode() == CommitMode::OwnTransaction => job.run(&mut self.ctx),
            _ => self.ctx.transaction(|ctx| group.iter_mut().try_for_each(|job| job.run(ctx))),
        };
        match done {
            Ok(()) => self.ctx.committed(&self.wakeups),
            Err(_) => self.ctx.undo(),
        }
        done
    }

    fn run_one(&mut self, job: Box<dyn Job>) {
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
        let brings = one.iter().any(|job| job.mode() == CommitMode::NewMessages);
        if is_full(&error) && !brings && self.make_space() {
            match self.try_group(&mut one) {
                Ok(()) => return self.hand_on(one),
                Err(next) => error = next,
            }
        }
        for job in one {
            let refusal = sql_error(&error, job.doing(), &self.ctx.folder);
            job.refuse(refusal);
        }
    }

    /// Gives the reserve up and has the log begin anew in the space it has; false: neither helped.
    fn make_space(&mut self) -> bool {
        let released = self.reserve.release();
        if released {
            warn!(folder = %self.ctx.folder.display(), "no space left, the reserve is used up for deliveries");
        }
        self.checkpoints.rest(&self.ctx.conn) || released
    }

    /// Answers what may be answered; the syncer answers the rest.
    fn hand_on(&self, group: Vec<Box<dyn Job>>) {
        let (committed, jobs): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|job| job.mode() == CommitMode::Committed);
        committed.into_iter().for_each(Job::answer);
        if !jobs.is_empty()
            && let Err(lost) = self.to_sync.send(Group { jobs, number: self.ctx.number })
        {
            // The syncer has ended: nothing reaches the disk any more.
            self.broken.store(true, Ordering::Release);
            lost.0.jobs.into_iter().for_each(|job| job.refuse(broken_error()));
        }
    }
}
