//! Claim: takes what is due.

use std::collections::HashMap;
use std::time::Duration;

use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::receipt::Receipt;
use duetime_core::store::{Claim, ClaimRequest, ClaimedMessage, Settle, Settlement, StoreError};
use duetime_core::{DeliveryMode, Score, Shard, Timestamp, envelope};
use duetime_redis::Sending;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::time::Instant;
use tracing::error;

use crate::enqueue::millis;
use crate::reply::{array, as_many, bytes, count, id, int, ints, odd, score, tuple};
use crate::settle::Waits;
use crate::store::RedisStore;

/// A call that waited longer is sent with the time it is by then.
const OLD_AFTER: Duration = Duration::from_millis(500);
/// Shards of which a claim that was given up is remembered.
const ABANDONED_MAX: usize = 8192;

/// The caller's present: its clock goes on while a call waits to be sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present {
    now: Timestamp,
    began: Instant,
}

impl Present {
    /// The caller says that it is `now`.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { now, began: Instant::now() }
    }

    /// For a call to which the caller's clock is nothing.
    pub(crate) fn none() -> Self {
        Self::new(Timestamp::ZERO)
    }

    /// What the caller's clock says by now, in milliseconds since the Unix epoch.
    pub(crate) fn millis(self) -> i64 {
        let waited = self.began.elapsed();
        if waited > OLD_AFTER { self.now.plus(waited).as_millis() } else { self.now.as_millis() }
    }
}

/// Claims that may have been carried out and were never answered, by shard: the next claim there has the
/// same name, and is given what the earlier one holds. So an outage, however long, spends no attempt.
#[derive(Debug, Default)]
pub(crate) struct Abandoned(Mutex<HashMap<Shard, ClaimRequest>>);

impl Abandoned {
    fn keep(&self, shard: &Shard, ask: &ClaimRequest) {
        let mut all = self.0.lock();
        if all.len() >= ABANDONED_MAX {
            // They are of shards nobody claims from any more; all that is lost is an attempt.
            all.clear();
        }
        all.insert(shard.clone(), ask.clone());
    }

    /// The request to ask by, if one was given up; not by a claim that wants less, or something else.
    fn earlier(&self, shard: &Shard, ask: &ClaimRequest) -> Option<u64> {
        let mut all = self.0.lock();
        let fits = all.get(shard).is_some_and(|earlier| {
            earlier.limit <= ask.limit && earlier.class == ask.class && earlier.delivery == ask.delivery
        });
        if fits { all.remove(shard).map(|earlier| earlier.request) } else { None }
    }
}

/// A claim on its way: one that ends without an answer, also because its caller went away, is abandoned.
struct OnItsWay<'a> {
    abandoned: &'a Abandoned,
    shard: &'a Shard,
    ask: ClaimRequest,
    answered: bool,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        // At most once, what was claimed is gone: there is nothing to be given again.
        if !self.answered && self.ask.delivery == DeliveryMode::AtLeastOnce {
            self.abandoned.keep(self.shard, &self.ask);
        }
    }
}

impl RedisStore {
    pub(crate) async fn take(&self, shard: &Shard, now: Timestamp, ask: &ClaimRequest) -> Result<Claim, StoreError> {
        let once = ask.delivery == DeliveryMode::AtMostOnce;
        let present = Present::new(now);
        let earlier = self.abandoned.earlier(shard, ask);
        let request = earlier.unwrap_or(ask.request);
        let ask_again = ClaimRequest { request, ..ask.clone() };
        let mut on_its_way = OnItsWay { abandoned: &self.abandoned, shard, ask: ask_again, answered: false };
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            cmd.arg(present.millis()).arg(ask.limit.min(BATCH_ITEMS_MAX)).arg(millis(ask.visibility));
            cmd.arg(ask.class.digit()).arg(ask.retry.max_attempts).arg(&request.to_be_bytes()[..]);
            cmd.arg(CLAIM_BYTES_MAX).arg(millis(ask.retry.initial)).arg(ask.retry.factor).arg(millis(ask.retry.max));
            cmd.arg(u8::from(once)).arg(u8::from(sending.repeated || earlier.is_some()));
        };
        let reply = match self.on_shard("claim messages", &self.scripts.claim, shard, present, None, fill).await {
            Err(error @ StoreError::Unavailable { .. }) => return Err(error),
            other => {
                on_its_way.answered = true;
                other?
            }
        };
        let (mut claim, unreadable) = read(reply, once)?;
        if !unreadable.is_empty() {
            claim.buried += unreadable.len() as u64;
            self.bury_unreadable(shard, now, unreadable, once).await?;
        }
        Ok(claim)
    }

    async fn bury_unreadable(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: Vec<Settle>,
        once: bool,
    ) -> Result<(), StoreError> {
        for item in &batch {
            error!(%shard, id = %item.id, reason = ?item.how, "stored body cannot be read");
        }
        if !once {
            self.settle_claims(shard, now, &batch, Waits::No).await?;
        }
        Ok(())
    }
}

/// The claim, and what was claimed but cannot be read.
pub(crate) fn read(reply: Value, once: bool) -> Result<(Claim, Vec<Settle>), StoreError> {
    let [now, next, left, buried, expired, alone, base, attempts, ids, bodies] = tuple(reply)?;
    let base = int(&base)?;
    let alone = int(&alone)?;
    let (suspect, again) = (alone & 1 == 1, alone & 2 == 2);
    let (ids, bodies) = (array(ids)?, array(bodies)?);
    if ids.len() != bodies.len() {
        return Err(odd("another number of bodies than of ids"));
    }
    let attempts = match attempts {
        Value::Int(same) => vec![same; ids.len()],
        list => as_many(ids.len(), ints(list)?)?,
    };
    let mut messages = Vec::with_capacity(ids.len());
    let mut unreadable = Vec::new();
    for ((name, body), tries) in ids.iter().zip(bodies).zip(attempts) {
        let id = id(name)?;
        let claimed = if once { Receipt::SETTLED } else { Score::from_raw(base.saturating_add(tries)) };
        let decoded = bytes(body).ok_or_else(|| "it is gone".to_owned());
        match decoded.and_then(|body| envelope::decode(&body).map_err(|error| error.to_string())) {
            Ok(body) => messages.push(ClaimedMessage {
                id,
                score: claimed,
                attempt: u8::try_from(tries).unwrap_or(u8::MAX),
                due_at: body.due_at,
                nonce: body.nonce,
                headers: body.headers,
                payload: body.payload,
                suspect,
            }),
            Err(reason) => unreadable.push(Settle { id, score: claimed, how: Settlement::Bury(reason) }),
        }
    }
    if again {
        // All have one score by now; what is left of their order is the due time.
        messages.sort_by_key(|message| message.due_at);
    }
    let claim = Claim {
        messages,
        now: Timestamp::from_millis(int(&now)?),
        next_due: score(&next)?.map(Score::visible_at),
        due_left: count(&left)?,
        buried: count(&buried)?,
        expired: count(&expired)?,
    };
    Ok((claim, unreadable))
}
