//! How a call reaches its shard: the link, the names of the keys, the scripts, and what is done around each script.
//!
//! Upstream: the operations, one file each. Knows none of them.

use std::sync::Arc;

use duetime_core::store::StoreError;
use duetime_core::{Draw, Memory, RoutingId, Shard};
use duetime_metrics::Meters;
use duetime_redis::{Backing, Link, Script, Sending};
use redis::{Cmd, Value};
use tracing::error;

use crate::caller_time::CallerTime;
use crate::config::Durability;
use crate::keys::Keys;
use crate::reply_cache::{CachedCall, ReplyCache};
use crate::retry::run_until_answered;
use crate::scripts::Scripts;

/// A write to the meta of a shard that changes nothing, for WAIT to wait for. It makes no meta.
const MARK: &str = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HSET', KEYS[1], 'mark', '')";
/// The same, with the flag that makes a full server run it.
const MARK_ALLOW_OOM: &str = "#!lua flags=allow-oom
return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HSET', KEYS[1], 'mark', '')";

/// What every operation needs: connections, keys, scripts, durability, metrics, the reply cache and chance.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) link: Arc<Link>,
    pub(crate) keys: Keys,
    pub(crate) scripts: Scripts,
    pub(crate) durability: Durability,
    pub(crate) meters: Arc<Meters>,
    pub(crate) replies: ReplyCache,
    pub(crate) draw: Draw,
}

impl Calls {
    /// Logs a refusal that an operator must know of.
    pub(crate) fn refused(&self, refusal: &StoreError) {
        if let StoreError::Occupied { .. } | StoreError::Lost(_) | StoreError::Vanished { .. } = refusal {
            self.meters.shard_refusal(refusal.kind());
            error!(error = %refusal, "a shard is not made anew; see an empty master in docs/OPERATIONS.md");
        }
    }

    /// Runs a script on the five keys of `shard`; [`head`] is its first argument. `call`: of one with the reply cache.
    pub(crate) async fn on_shard(
        &self,
        doing: &'static str,
        script: &Script,
        shard: &Shard,
        now: CallerTime,
        call: Option<&CachedCall<'_>>,
        fill: impl Fn(&mut Cmd, &Sending) + Send + Sync,
    ) -> Result<Value, StoreError> {
        let key = self.keys.messages(shard);
        let arguments = |record| self.arguments(Keys::fill, shard, record, now, &fill);
        run_until_answered(doing, shard, call, |record| self.link.script(script, &key, arguments(record))).await
    }

    /// The same on all seven keys of `shard`, for a script that writes nothing.
    pub(crate) async fn on_whole_shard(
        &self,
        doing: &'static str,
        script: &Script,
        shard: &Shard,
        fill: impl Fn(&mut Cmd, &Sending) + Send + Sync,
    ) -> Result<Value, StoreError> {
        let key = self.keys.messages(shard);
        let arguments = |epoch| self.arguments(Keys::fill_all, shard, epoch, CallerTime::none(), &fill);
        run_until_answered(doing, shard, None, |epoch| self.link.script(script, &key, arguments(epoch))).await
    }

    /// As [`Self::on_shard`], and waits for as many replicas as configured; answers how many have it.
    pub(crate) async fn on_shard_confirmed(
        &self,
        doing: &'static str,
        script: &Script,
        shard: &Shard,
        now: CallerTime,
        call: Option<&CachedCall<'_>>,
        fill: impl Fn(&mut Cmd, &Sending) + Send + Sync,
    ) -> Result<(Value, Option<u32>), StoreError> {
        let replicas = self.durability.replicas();
        if replicas == 0 {
            return Ok((self.on_shard(doing, script, shard, now, call, fill).await?, None));
        }
        let mut mark = redis::cmd("EVAL");
        mark.arg(if self.link.is_legacy() { MARK } else { MARK_ALLOW_OOM }).arg(1).arg(self.keys.meta(shard));
        let key = self.keys.messages(shard);
        let arguments = |record| self.arguments(Keys::fill, shard, record, now, &fill);
        let sent = |record| self.link.confirmed(script, &key, replicas, &mark, arguments(record));
        let (value, reached) = run_until_answered(doing, shard, call, sent).await?;
        self.meters.replica_wait(reached >= u32::from(replicas));
        Ok((value, Some(reached)))
    }

    /// Runs a script of the resize, on all keys of `shard`; its answer is replicated.
    pub(crate) async fn on_shard_replicated(
        &self,
        doing: &'static str,
        script: &Script,
        shard: &Shard,
        now: CallerTime,
        call: Option<&CachedCall<'_>>,
        fill: impl Fn(&mut Cmd, &Sending) + Send + Sync,
    ) -> Result<(Value, Backing), StoreError> {
        let (key, replicas) = (self.keys.messages(shard), self.durability.replicas());
        let arguments = |record| self.arguments(Keys::fill_all, shard, record, now, &fill);
        run_until_answered(doing, shard, call, |record| self.link.replicated(script, &key, replicas, arguments(record)))
            .await
    }

    /// What a script on a shard is sent: the keys that `fill_keys` adds, [`head`], and what `fill` adds.
    pub(crate) fn arguments<'a, F>(
        &'a self,
        fill_keys: fn(&Keys, &mut Cmd, &Shard),
        shard: &'a Shard,
        record: RoutingId,
        now: CallerTime,
        fill: &'a F,
    ) -> impl Fn(&mut Cmd, &Sending) + Send + Sync + use<'a, F>
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        move |cmd, sending| {
            fill_keys(&self.keys, cmd, shard);
            cmd.arg(head(record, sending, now, shard.memory));
            fill(cmd, sending);
        }
    }
}

/// The longest time that the first argument of a script can hold: in the year 2286.
const TIME_MAX_MS: i64 = 9_999_999_999_999;

/// Below it is every version of a topic that a script is told, in ten digits and four bytes.
const SINCE_END: u64 = 1 << 32;

/// The first argument of every script on a shard; see `prelude.lua`.
fn head(record: RoutingId, sending: &Sending, now: CallerTime, memory: Memory) -> String {
    let (till, now) = (sending.not_after_ms.clamp(0, TIME_MAX_MS), now.millis().clamp(0, TIME_MAX_MS));
    let (window, since) = (memory.window_ms(), memory.since % SINCE_END);
    let mark = if memory.watermark { '+' } else { ' ' };
    format!("{} {} {till:013} {now:013} {window:011}{mark}{since:010}", record.epoch, record.change_id)
}
