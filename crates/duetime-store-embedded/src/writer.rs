//! The one thread that writes: takes as many requests as wait and runs them in one transaction.
//!
//! Upstream: `store`, over a bounded channel. Downstream: SQLite, then `syncer` for what is answered
//! only when it is on the disk. Each request is whole or not at all: when the database refuses one,
//! the transaction is rolled back and its requests are run one by one.

use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use duetime_core::StoreError;
use duetime_core::store::Wakeup;
use tokio::sync::{broadcast, mpsc};
use tracing::warn;

use crate::fault::{full_text, is_full};
use crate::job::{CommitMode, Job};
use crate::reserve::DiskReserve;
use crate::syncer::{Broken, broken_error};
use crate::write_context::WriteContext;

/// Requests that may wait for the writer; more wait in their callers.
pub const REQUESTS_MAX: usize = 4096;
/// Most messages of one transaction.
const GROUP_ITEMS_MAX: usize = 4096;
/// Most bytes of bodies of one transaction; one request may be larger by itself.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// See the module.
#[derive(Debug)]
pub struct Writer {
    pub ctx: WriteContext,
    pub reserve: DiskReserve,
    pub wakeups: broadcast::Sender<Wakeup>,
    pub to_sync: SyncSender<Vec<Box<dyn Job>>>,
    pub broken: Broken,
}

impl Writer {
    /// Runs until every sender of requests is gone.
    pub fn run(&mut self, inbox: &mut mpsc::Receiver<Box<dyn Job>>) {
        let mut next = None;
        while let Some(first) = next.take().or_else(|| inbox.blocking_recv()) {
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
        }
    }

    fn run_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        if !self.reserve.accepts(&self.ctx.conn) {
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
            Err(error) => group.into_iter().for_each(|job| self.run_again(job, &error)),
        }
    }

    fn try_group(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), rusqlite::Error> {
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
            Err(error) => one.into_iter().for_each(|job| self.run_again(job, &error)),
        }
    }

    /// What brings no new messages gets the reserve's space; the rest is refused.
    fn run_again(&mut self, job: Box<dyn Job>, error: &rusqlite::Error) {
        let mut one = vec![job];
        let mut last = None;
        if is_full(error) && one[0].mode() != CommitMode::NewMessages && self.reserve.release() {
            warn!(folder = %self.ctx.folder.display(), "no space left, the reserve is used up for deliveries");
            match self.try_group(&mut one) {
                Ok(()) => return self.hand_on(one),
                Err(error) => last = Some(error),
            }
        }
        for job in one {
            let refusal = crate::fault::sql_error(last.as_ref().unwrap_or(error), job.doing(), &self.ctx.folder);
            job.refuse(refusal);
        }
    }

    /// Answers what may be answered; the syncer answers the rest.
    fn hand_on(&self, group: Vec<Box<dyn Job>>) {
        let (quick, durable): (Vec<_>, Vec<_>) = group.into_iter().partition(|job| job.mode() == CommitMode::Committed);
        quick.into_iter().for_each(Job::answer);
        if !durable.is_empty()
            && let Err(lost) = self.to_sync.send(durable)
        {
            lost.0.into_iter().for_each(|job| job.refuse(broken_error()));
        }
    }
}
