//! Delivery in place: from the shard to its own stream, in the same cluster slot.

use duetime_core::in_place::{StreamTransfer, Streamed};
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::store::StoreError;
use duetime_core::{OnExpiry, Score, Shard, Timestamp};
use duetime_redis::Sending;
use redis::{Cmd, Value};

use crate::caller_time::CallerTime;
use crate::calls::Calls;
use crate::keys::Keys;
use crate::reply::{array, count, int, score, tuple};
use crate::retry::run_until_answered;

pub(crate) async fn move_to_stream(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    ask: &StreamTransfer,
) -> Result<Streamed, StoreError> {
    let (present, key) = (CallerTime::new(now), calls.keys.messages(shard));
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(present.millis()).arg(ask.limit.min(BATCH_ITEMS_MAX));
        cmd.arg(&ask.request.to_be_bytes()[..]).arg(CLAIM_BYTES_MAX);
        cmd.arg(shard.topic.as_str());
        match ask.how.max_length {
            Some(most) => cmd.arg(most),
            None => cmd.arg(""),
        };
        cmd.arg(u8::from(ask.on_expiry == OnExpiry::Dead));
    };
    let reply = run_until_answered("hand messages over to a stream", shard, None, |epoch| {
        let arguments = calls.arguments(Keys::fill_with_stream, shard, epoch, present, &fill);
        calls.link.script(&calls.scripts.hand_over, &key, arguments)
    });
    reply.await.and_then(read).map_err(|error| match error {
        StoreError::Damaged(why) => StoreError::Damaged(format!(
            "shard {shard}: {why}; look at its stream {:?}, and move the key away if it is none or takes no entries",
            calls.keys.stream(shard)
        )),
        other => other,
    })
}

pub(crate) fn read(reply: Value) -> Result<Streamed, StoreError> {
    let [now, next, left, buried, ran_out, handed, since, expired] = tuple(reply)?;
    let since = array(since)?;
    let visible = since.chunks_exact(2).map(|pair| Ok((Timestamp::from_millis(int(&pair[0])?), count(&pair[1])?)));
    Ok(Streamed {
        count: count(&handed)?,
        visible: visible.collect::<Result<_, StoreError>>()?,
        now: Timestamp::from_millis(int(&now)?),
        next_due: score(&next)?.map(Score::visible_at),
        due_left: count(&left)?,
        buried: count(&buried)?,
        ran_out: count(&ran_out)?,
        expired: count(&expired)?,
    })
}
