//! The calls on ids at their home: each becomes a job for the writer, reads go to a reader.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::resize_store::Frozen;
use duetime_core::store::{
    DeadAction, DeadEdit, DeadEdited, DeadKept, Edit, Edited, Enqueue, Enqueued, Notes, Settle, Settled, Settlement,
};
use duetime_core::{Lookup, MessageId, Shard, StoreError, StoredMessage, Timestamp, Undone};

use crate::enqueue::Ready;
use crate::job::CommitMode;
use crate::shard::ShardState;
use crate::write_context::WriteContext;
use crate::{edit, edit_dead, enqueue, read, restore, settle, watermark};

use super::{EmbeddedStore, ITEM_BYTES, cost_of_dead_edits, plain};

/// The calls on ids at their home.
impl EmbeddedStore {
    pub(super) async fn enqueue_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Enqueued>, StoreError> {
        let shard = shard.clone();
        let mut ready: Vec<Ready> = batch.iter().map(Ready::new).collect();
        let bytes = ready.iter().map(|item| item.len() + ITEM_BYTES).sum();
        let act = move |ctx: &mut WriteContext| {
            ctx.on_shard(&shard, |conn, state| Ok(enqueue::enqueue(conn, state, now, &mut ready)?))
        };
        self.ask("schedule messages", CommitMode::NewMessages, (batch.len(), bytes), act).await
    }

    pub(super) async fn edit_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Edit],
    ) -> Result<Vec<Edited>, StoreError> {
        let is_noted = shard.memory.is_on() && batch.iter().any(|item| matches!(item, Edit::Cancel(_)));
        if is_noted {
            match self.edit_with(shard, now, batch, (Notes::Written, CommitMode::NewMessages)).await {
                // What is there is changed all the same.
                Err(StoreError::Full(_)) => {}
                done => return done,
            }
        }
        self.edit_with(shard, now, batch, (Notes::Refused, CommitMode::Synced)).await
    }

    async fn edit_with(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Edit],
        (notes, mode): (Notes, CommitMode),
    ) -> Result<Vec<Edited>, StoreError> {
        let (shard, size, batch) = (shard.clone(), plain(batch.len()), batch.to_vec());
        let act = move |ctx: &mut WriteContext| {
            ctx.on_shard(&shard, |conn, state| Ok(edit::edit(conn, state, now, (&batch, notes))?))
        };
        self.ask("change messages", mode, size, act).await
    }

    pub(super) async fn get_at_home(
        &self,
        shard: &Shard,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        let (key, ids, memory, now) = (self.directory.key(shard)?, ids.to_vec(), shard.memory, self.present());
        let act = move |conn: &rusqlite::Connection| read::find(conn, key, &ids, (memory, now)).map(Into::into);
        self.readers.read_shard("read messages", (shard, &self.damages), act).await
    }

    pub(super) async fn settle_dead_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, StoreError> {
        let (shard, size, ids) = (shard.clone(), plain(ids.len()), ids.to_vec());
        let act = move |ctx: &mut WriteContext| {
            ctx.on_shard(&shard, |conn, state| Ok(settle::resolve_dead_letters(conn, state, now, &ids, action)?))
        };
        self.ask("settle dead letters", CommitMode::Synced, size, act).await
    }

    pub(super) async fn edit_dead_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        edits: &[DeadEdit],
    ) -> Result<Vec<DeadEdited>, StoreError> {
        let (shard, edits, (mode, size)) = (shard.clone(), edits.to_vec(), cost_of_dead_edits(edits));
        let act = move |ctx: &mut WriteContext| {
            ctx.on_shard(&shard, |conn, state| Ok(edit_dead::edit_dead(conn, state, now, &edits)?))
        };
        self.ask("change dead letters", mode, size, act).await
    }

    pub(super) async fn restore_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        by: u64,
        taken: &[Frozen],
    ) -> Result<Vec<bool>, StoreError> {
        let bytes = taken.iter().map(|one| one.body.as_ref().map_or(0, |body| body.len()) + ITEM_BYTES).sum();
        let (shard, size, taken) = (shard.clone(), (taken.len(), bytes), taken.to_vec());
        let act = move |ctx: &mut WriteContext| {
            ctx.on_shard(&shard, |conn, state| restore::restore(conn, state, now, (by, &taken)))
        };
        self.ask("put messages back", CommitMode::NewMessages, size, act).await
    }

    pub(super) async fn expire_dead_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        kept: DeadKept,
    ) -> Result<u64, StoreError> {
        let (shard, size) = (shard.clone(), plain(BATCH_ITEMS_MAX));
        let act = move |ctx: &mut WriteContext| {
            ctx.on_shard(&shard, |conn, state| Ok(settle::expire_dead_letters(conn, state, now, kept)?))
        };
        self.ask("expire dead letters", CommitMode::Synced, size, act).await
    }

    pub(super) async fn undone_at_home(&self, shard: &Shard, now: Timestamp) -> Result<Undone, StoreError> {
        self.note_present(now);
        let act = move |conn: &rusqlite::Connection, state: &mut ShardState| watermark::undone(conn, state, now);
        self.step("read what is not done", CommitMode::Synced, plain(1), shard, act).await
    }

    pub(super) async fn keep_watermark_at_home(&self, shard: &Shard, at: Timestamp) -> Result<Timestamp, StoreError> {
        let act = move |_: &rusqlite::Connection, state: &mut ShardState| Ok(watermark::keep(state, at));
        self.step("keep a watermark", CommitMode::Synced, plain(1), shard, act).await
    }

    pub(super) async fn settle_at_home(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<Settled>, StoreError> {
        let ends = |item: &Settle| item.action.end().is_some() || matches!(item.action, Settlement::Bury(_));
        let mode = if batch.iter().any(ends) { CommitMode::Synced } else { CommitMode::Committed };
        let bytes = batch.iter().map(Settle::body_bytes).sum::<usize>();
        let (items, spent) = plain(batch.len());
        let (shard, size, batch) = (shard.clone(), (items, spent + bytes), batch.to_vec());
        let act = move |ctx: &mut WriteContext| {
            ctx.on_shard(&shard, |conn, state| Ok(settle::settle(conn, state, now, &batch)?))
        };
        self.ask("settle claims", mode, size, act).await
    }
}
