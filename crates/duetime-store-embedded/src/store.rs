//! The contract: each call becomes a job for the writer, or a read beside it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use async_trait::async_trait;
use duetime_core::contract::no_streams;
use duetime_core::resize_store::Frozen;
use duetime_core::store::{
    AckWait, Adopt, Adopted, BatchReply, Claim, ClaimRequest, DeadAction, DeadEdit, DeadEdited, DeadKept, DeadPage,
    Deletion, Edit, Edited, Enqueue, Enqueued, Settle, Settled, ShardCounts, Wakeup,
};
use duetime_core::{
    ClaimStore, Clock, DeliveryMode, ListPage, ListRange, Lookup, MessageId, MessageStore, Role, ScheduleStore, Score,
    ServerId, Shard, ShardLocation, StoreError, StoreHealth, StoredMessage, StreamTransfer, Streamed, Timestamp,
    TopicName, TopicRecord, TopicStore, Undone,
};
use duetime_metrics::Meters;
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc, oneshot};
use tracing::{error, warn};

use crate::background::BackgroundThread;
use crate::checkpoint::{Checkpoints, SharedCheckpoint};
use crate::damage::Damages;
use crate::directory::ShardDirectory;
use crate::fault::{self, Fault};
use crate::files::StoreFiles;
use crate::job::{CommitMode, Job, Task};
use crate::read::Readers;
use crate::reserve::DiskReserve;
use crate::restart::{self, Writing, open_tables};
use crate::shortage::Shortage;
use crate::sweep::Sweep;
use crate::synced::SyncedNumber;
use crate::syncer::Broken;
use crate::verify::{self, ShardRows};
use crate::write_context::WriteContext;
use crate::writer::{REQUESTS_MAX, SILENT, WRITES_WITHIN, Writer};
use crate::{claim, clock, folder, read, syncer, topics, watch};

/// Hints kept for a slow listener.
const WAKEUPS_KEPT: usize = 1024;
/// Bytes a request takes in the log for every message beside its body.
pub const ITEM_BYTES: usize = 256;

/// See the crate.
#[derive(Debug)]
pub struct EmbeddedStore {
    /// `None` only while it is dropped.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    writer: Option<JoinHandle<()>>,
    pub(crate) readers: Arc<Readers>,
    directory: ShardDirectory,
    wakeups: broadcast::Sender<Wakeup>,
    broken: Broken,
    writing: Writing,
    damages: Arc<Damages>,
    background: Vec<BackgroundThread>,
    pub(crate) checkpoint: Arc<SharedCheckpoint>,
    /// Transactions that came to their end.
    progress: Arc<AtomicU64>,
    /// Names whose record could not be read at the last look.
    unreadable: Mutex<Vec<String>>,
    /// The present moment of the last call that named one, in ms.
    last_now: AtomicI64,
    /// The file everything is in, as it was named.
    pub(crate) file: String,
}

impl EmbeddedStore {
    /// The number of the process that uses `folder`, or `unknown`; `None`: nobody does.
    #[must_use]
    pub fn user(folder: &Path) -> Option<String> {
        folder::user(folder)
    }

    /// Opens the store in `folder`, which is made if it is absent.
    ///
    /// Reads the index once: O(messages). Call it where waiting is allowed.
    ///
    /// # Errors
    ///
    /// [`StoreError::Setup`]: another process uses it, it cannot be written, or a newer version
    /// wrote it. [`StoreError::Damaged`]: its file cannot be read.
    pub fn open(folder: &Path, meters: Arc<Meters>) -> Result<Arc<Self>, StoreError> {
        let lock = folder::take(folder)?;
        let damages = Arc::new(Damages::new(meters));
        let (synced, number) = SyncedNumber::open(folder)?;
        let mut spent = false;
        let (mut conn, mut loaded) = match open_tables(folder, number, &damages) {
            Err(StoreError::Full(_)) if DiskReserve::release_in(folder) => {
                warn!(folder = %folder.display(), "no space left to open the store, the reserve is used up for it");
                spent = true;
                open_tables(folder, number, &damages)?
            }
            opened => opened?,
        };
        let shards = loaded.topics.values_mut().flat_map(|topic| topic.shards.values_mut());
        if let Some(back) = shards.filter_map(|shard| shard.note(clock::machine())).max() {
            clock::was_put_back(back);
        }
        let place = |topic: &TopicName, (index, key): (u32, i64)| ShardRows { topic: topic.clone(), index, key };
        let all = loaded.topics.values().flat_map(|topic| {
            topic.shards.iter().map(|(index, shard)| place(&topic.record.name, (*index, shard.view.key)))
        });
        let places: Vec<ShardRows> = all.collect();
        let files = StoreFiles::open(folder).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => StoreError::Setup(format!(
                "{} has files that another duetime uses under other names (hard links); stop it, or choose another \
                 folder with --store embedded:PATH",
                folder.display()
            )),
            _ => StoreError::Unavailable { doing: "open the store", source: Box::new(error) },
        })?;
        let files = Arc::new(files);
        if !files.make_space(&conn) && DiskReserve::release_in(folder) {
            warn!(folder = %folder.display(), "no space left to copy the log, the reserve is used up for it");
            spent = true;
            files.make_space(&conn);
        }
        let (jobs, inbox) = mpsc::channel(REQUESTS_MAX);
        let (to_sync, to_be_synced) = sync_channel(syncer::WAITING_MAX);
        let (wakeups, _) = broadcast::channel(WAKEUPS_KEPT);
        let (broken, writing, progress) = (Broken::default(), Writing::default(), Arc::<AtomicU64>::default());
        let checkpoints = Checkpoints::start(folder, &mut conn, jobs.downgrade(), damages.clone(), broken.clone())?;
        let directory = ShardDirectory::default();
        let checkpoint = checkpoints.shared().clone();
        files.keep_log(spent);
        let ctx = WriteContext::new(conn, files.clone(), folder.to_owned(), loaded, directory.clone(), damages.clone());
        let writer = Writer {
            ctx,
            reserve: DiskReserve::new(folder, spent),
            checkpoints,
            sweep: Sweep::default(),
            wakeups: wakeups.clone(),
            to_sync,
            broken: broken.clone(),
            shortage: Shortage::default(),
            progress: progress.clone(),
        };
        let no_thread = |error| StoreError::Unavailable { doing: "start the writer", source: Box::new(error) };
        let (sync_broken, synced_files) = (broken.clone(), files.clone());
        let syncer = std::thread::Builder::new()
            .name("duetime-syncer".to_owned())
            .spawn(move || syncer::run(&synced_files, &to_be_synced, &sync_broken, synced))
            .map_err(no_thread)?;
        let watched = writing.clone();
        let writer = std::thread::Builder::new()
            .name("duetime-writer".to_owned())
            .spawn(move || {
                restart::run(writer, inbox, &watched);
                // The last answers are given before the folder is free.
                let ended = syncer.join();
                drop(lock);
                if ended.is_err() {
                    error!("the syncer panicked");
                }
            })
            .map_err(no_thread)?;
        let readers = Arc::new(Readers::new(folder.to_owned(), files.clone()));
        let (seen, of) = (damages.clone(), folder.to_owned());
        let verifier = BackgroundThread::spawn("duetime-verify", move |ended| verify::run(&of, &places, &seen, ended));
        let (watched, to_writer, watch_broken) = (files.clone(), jobs.downgrade(), broken.clone());
        let watch = BackgroundThread::spawn("duetime-watch", move |ended| {
            watch::run(&watched, &to_writer, &watch_broken, ended);
        });
        let background = vec![verifier.map_err(no_thread)?, watch.map_err(no_thread)?];
        Ok(Arc::new(Self {
            jobs: Some(jobs),
            writer: Some(writer),
            readers,
            directory,
            wakeups,
            broken,
            writing,
            damages,
            background,
            checkpoint,
            progress,
            unreadable: Mutex::default(),
            last_now: AtomicI64::new(clock::machine().as_millis()),
            file: folder.join(fault::DATABASE).display().to_string(),
        }))
    }

    /// The store's present, in calls that do not name theirs.
    pub fn present(&self) -> Timestamp {
        Timestamp::from_millis(self.last_now.load(Ordering::Relaxed))
    }

    fn note_present(&self, now: Timestamp) {
        self.last_now.store(now.as_millis(), Ordering::Relaxed);
    }

    /// Has the writer do it.
    pub async fn ask<A: Send + 'static>(
        &self,
        doing: &'static str,
        mode: CommitMode,
        size: (usize, usize),
        act: impl FnMut(&mut WriteContext) -> Result<A, Fault> + Send + 'static,
    ) -> Result<A, StoreError> {
        let ended = || self.writing.check(doing).err().unwrap_or_else(|| restart::interrupted(doing));
        let (reply, answer) = oneshot::channel();
        let job = Task { mode, size, doing, act, kept: None, reply };
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(Box::new(job)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.readers.close();
        self.background.clear();
        self.jobs = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            error!("the writer panicked");
        }
    }
}

pub fn plain(items: usize) -> (usize, usize) {
    (items, items * ITEM_BYTES)
}

/// How changes of dead letters are committed, and their items and bytes: what is removed goes from a full disk too.
pub fn cost_of_dead_edits(edits: &[DeadEdit]) -> (CommitMode, (usize, usize)) {
    let bytes = edits.iter().map(|edit| edit.bytes() + ITEM_BYTES).sum();
    let is_new = edits.iter().any(|edit| edit.rewritten().is_some());
    (if is_new { CommitMode::NewMessages } else { CommitMode::Synced }, (edits.len(), bytes))
}

#[async_trait]
impl TopicStore for EmbeddedStore {
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        let (records, unreadable) = self.readers.read("read the topics", read::topics).await?;
        *self.unreadable.lock() = unreadable;
        Ok(records)
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        let record = record.clone();
        let act = move |ctx: &mut WriteContext| topics::put(ctx, &record, seen);
        self.ask("keep a topic", CommitMode::OwnTransaction, plain(1), act).await
    }

    async fn delete_topic(&self, topic: &TopicName, how: Deletion) -> Result<bool, StoreError> {
        let name = topic.clone();
        let act = move |ctx: &mut WriteContext| topics::delete(ctx, &name, how);
        self.ask("delete a topic", CommitMode::OwnTransaction, plain(1), act).await
    }

    // Topics and messages are one file, which no failover replaces: what is read is kept, neither is lost without
    // the other, and a deletion is one transaction.
    async fn confirm(&self, _record: &TopicRecord) -> Result<(), StoreError> {
        Ok(())
    }

    async fn remains(&self, _topic: &TopicName) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn was_deleted(&self, _topic: &TopicName, _life: u64) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn adopt_topic(&self, topic: &TopicName, _ask: &Adopt) -> Result<Adopted, StoreError> {
        Adopted::nothing_lost(self.topics().await?, topic)
    }

    async fn finish_deletions(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn unreadable(&self) -> Vec<String> {
        self.unreadable.lock().clone()
    }
}

#[async_trait]
impl MessageStore for EmbeddedStore {
    async fn enqueue_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
        self.note_present(now);
        role.ask(|| self.enqueue_at_home(shard, now, batch), || self.enqueue_at_source(shard, now, batch)).await
    }

    async fn edit_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Edit],
    ) -> Result<BatchReply<Lookup<Edited>>, StoreError> {
        self.note_present(now);
        role.ask(|| self.edit_at_home(shard, now, batch), || self.edit_at_source(shard, now, batch)).await
    }

    async fn get_at(
        &self,
        shard: &Shard,
        role: Role,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        role.ask(|| self.get_at_home(shard, ids), || self.get_at_source(shard, ids)).await
    }

    async fn cancelled_claims(&self, shard: &Shard) -> Result<Vec<(MessageId, Score)>, StoreError> {
        Ok(self.directory.look(shard).map(|view| view.cancelled_claims()).unwrap_or_default())
    }

    async fn dead_letters(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError> {
        let key = self.directory.key(shard)?;
        let act = move |conn: &rusqlite::Connection| read::dead(conn, key, from, limit);
        self.readers.read_shard("read dead letters", (shard, &self.damages), act).await
    }

    async fn list(&self, shard: &Shard, range: &ListRange, limit: usize) -> Result<ListPage, StoreError> {
        let (key, range) = (self.directory.key(shard)?, range.clone());
        let act = move |conn: &rusqlite::Connection| read::list(conn, key, &range, limit);
        self.readers.read_shard("list messages", (shard, &self.damages), act).await
    }

    async fn resolve_dead_letters_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<BatchReply<Lookup<bool>>, StoreError> {
        self.note_present(now);
        role.ask(
            || self.settle_dead_at_home(shard, now, ids, action),
            || self.resolve_dead_letters_at_source(shard, now, ids, action),
        )
        .await
    }

    async fn edit_dead_letters_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        edits: &[DeadEdit],
    ) -> Result<BatchReply<Lookup<DeadEdited>>, StoreError> {
        self.note_present(now);
        role.ask(|| self.edit_dead_at_home(shard, now, edits), || self.edit_dead_at_source(shard, now, edits)).await
    }

    async fn restore(
        &self,
        shard: &Shard,
        now: Timestamp,
        by: u64,
        taken: &[Frozen],
    ) -> Result<BatchReply<bool>, StoreError> {
        self.note_present(now);
        Ok(self.restore_at_home(shard, now, by, taken).await?.into())
    }

    async fn expire_dead_letters(&self, shard: &Shard, now: Timestamp, kept: DeadKept) -> Result<u64, StoreError> {
        self.note_present(now);
        self.expire_dead_at_home(shard, now, kept).await
    }

    async fn undone(&self, shard: &Shard, now: Timestamp) -> Result<Undone, StoreError> {
        self.undone_at_home(shard, now).await
    }

    async fn keep_watermark(&self, shard: &Shard, at: Timestamp) -> Result<Timestamp, StoreError> {
        self.keep_watermark_at_home(shard, at).await
    }

    async fn bytes(&self, shards: &[Shard]) -> Result<u64, StoreError> {
        let (size, shards) = (plain(shards.len()), shards.to_vec());
        let act = move |ctx: &mut WriteContext| {
            let bytes = shards.iter().map(|shard| Ok(ctx.look(shard, |_, state| Ok(state.bytes))?));
            bytes.sum::<Result<u64, Fault>>()
        };
        self.ask("count bytes", CommitMode::Committed, size, act).await
    }

    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), StoreError> {
        let keys: Vec<i64> = shards.iter().filter_map(|shard| Some(self.directory.look(shard)?.key)).collect();
        let edges = edges.to_vec();
        let act = move |conn: &rusqlite::Connection| Ok((read::forecast(conn, &keys, &edges)?, 0));
        self.readers.read("count what falls due", act).await
    }
}

#[async_trait]
impl ClaimStore for EmbeddedStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.note_present(now);
        // A claim that removes must not come undone: its messages would be delivered twice.
        let once = request.delivery == DeliveryMode::AtMostOnce;
        let mode = if once { CommitMode::Synced } else { CommitMode::Committed };
        let (shard, size, request) = (shard.clone(), plain(request.limit), request.clone());
        let act =
            move |ctx: &mut WriteContext| ctx.on_shard(&shard, |conn, state| claim::claim(conn, state, now, &request));
        let (mut claim, taken) = self.ask("claim messages", mode, size, act).await?;
        claim.messages = taken.into_iter().map(claim::ClaimedRow::message).collect::<Result<_, _>>()?;
        Ok(claim)
    }

    async fn settle_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Settle],
        _wait: AckWait,
    ) -> Result<BatchReply<Lookup<Settled>>, StoreError> {
        self.note_present(now);
        role.ask(|| self.settle_at_home(shard, now, batch), || self.settle_at_source(shard, now, batch)).await
    }

    async fn deliver_in_place(&self, _: &Shard, _: Timestamp, _: &StreamTransfer) -> Result<Streamed, StoreError> {
        Err(no_streams())
    }

    fn has_streams(&self) -> bool {
        false
    }
}

#[async_trait]
impl ScheduleStore for EmbeddedStore {
    async fn counts(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<ShardCounts>>, StoreError> {
        self.note_present(now);
        let (size, shards) = (plain(shards.len()), shards.to_vec());
        let act = move |ctx: &mut WriteContext| {
            shards.iter().map(|shard| Ok(Some(ctx.look(shard, |conn, state| state.counts(conn, now))?))).collect()
        };
        self.ask("count messages", CommitMode::Committed, size, act).await
    }

    async fn next_due(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        Ok(shards.iter().map(|shard| self.directory.look(shard)?.head()).collect())
    }

    fn server_of(&self, _shard: &Shard) -> ServerId {
        ServerId::default()
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.wakeups.subscribe()
    }
}

#[async_trait]
impl StoreHealth for EmbeddedStore {
    /// It has no clock of its own.
    async fn clock_skew_ms(&self, _clock: &dyn Clock) -> Result<i64, StoreError> {
        Ok(0)
    }

    fn issues(&self) -> Vec<String> {
        self.damages.issues()
    }

    fn locate(&self, _shard: &Shard) -> ShardLocation {
        ShardLocation { file: Some(self.file.clone()), ..ShardLocation::default() }
    }

    async fn ready(&self) -> Result<(), StoreError> {
        if let Some(error) = self.broken.error() {
            return Err(error);
        }
        self.writing.check("serve")?;
        self.readers.read("ask the store whether it is ready", read::ready).await?;
        let before = self.progress.load(Ordering::Acquire);
        let probe = |ctx: &mut WriteContext| Ok(ctx.conn.execute_batch("BEGIN IMMEDIATE; ROLLBACK")?);
        let asked = self.ask("write", CommitMode::OwnTransaction, (0, 0), probe);
        match tokio::time::timeout(WRITES_WITHIN, asked).await {
            Ok(answer) => answer,
            // It is busy with the requests of others, and ends them.
            Err(_) if self.progress.load(Ordering::Acquire) != before => Ok(()),
            Err(_) => Err(StoreError::Unavailable { doing: "write", source: SILENT.into() }),
        }
    }
}

mod home;
#[cfg(test)]
mod tests;
