//! What of a shard is not done, and the watermark that is kept beside a topic's first shard.

use duetime_core::store::StoreError;
use duetime_core::watermark::UNDONE_DROPPED_MAX;
use duetime_core::{Score, Shard, Timestamp, Undone, UndoneMessage, UndoneState};
use duetime_redis::Sending;
use redis::{Cmd, Value};

use crate::caller_time::CallerTime;
use crate::calls::Calls;
use crate::reply::{id, int, score, text, tuple, unexpected_reply};

pub(crate) async fn read_undone(calls: &Calls, shard: &Shard, now: Timestamp) -> Result<Undone, StoreError> {
    if !shard.memory.watermark {
        return Err(StoreError::Setup(format!("topic {} has no watermark", shard.topic)));
    }
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(UNDONE_DROPPED_MAX);
    };
    let (script, present) = (&calls.scripts.watermark, CallerTime::new(now));
    read(calls.on_shard_replicated("read what is not done", script, shard, present, None, fill).await?.0)
}

pub(crate) fn read(reply: Value) -> Result<Undone, StoreError> {
    let [now, first, first_score, old, due, old_score, moving, moving_due] = tuple(reply)?;
    let millis = |value: &Value| -> Result<Option<Timestamp>, StoreError> {
        let word = text(value.clone()).ok_or_else(|| unexpected_reply("a time was expected"))?;
        let number = |_| unexpected_reply("a time was expected");
        Ok(if word.is_empty() { None } else { Some(Timestamp::from_millis(word.parse().map_err(number)?)) })
    };
    // The entry that is never claimed has no score.
    let scheduled = |at: Score| {
        let state = UndoneState::of(at, false);
        Ok::<_, StoreError>(UndoneMessage { id: Some(id(&first)?), due_at: at.visible_at(), state })
    };
    let first = score(&first_score)?.map(scheduled).transpose()?;
    let entry = millis(&due)?.map(|due_at| {
        let at = if text(old_score.clone()).is_some_and(|word| !word.is_empty()) { score(&old_score)? } else { None };
        let state = at.map_or(UndoneState::Due, |at| UndoneState::of(at, true));
        let id = if at.is_some() { Some(id(&old)?) } else { None };
        Ok::<_, StoreError>(UndoneMessage { id, due_at, state })
    });
    let moved = millis(&moving_due)?.map(|due_at| {
        Ok::<_, StoreError>(UndoneMessage { id: Some(id(&moving)?), due_at, state: UndoneState::Moving })
    });
    let (entry, moved) = (entry.transpose()?, moved.transpose()?);
    // An entry says more of a message that is the first one too.
    let oldest = [entry, first, moved].into_iter().flatten().min_by_key(|one| one.due_at);
    let now = millis(&now)?.ok_or_else(|| unexpected_reply("a present was expected"))?;
    Ok(Undone { now, oldest })
}

pub(crate) async fn keep(calls: &Calls, shard: &Shard, at: Timestamp) -> Result<Timestamp, StoreError> {
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(at.as_millis());
    };
    let (script, none) = (&calls.scripts.keep_watermark, CallerTime::none());
    let (kept, _) = calls.on_shard_replicated("keep a watermark", script, shard, none, None, fill).await?;
    Ok(Timestamp::from_millis(int(&kept)?))
}
