//! The reply cache: what a repeated call leaves in its shard, and is known by; see `recall.lua`.
//!
//! Calls of one shard that are under way at once have slots of their own, so a slot is used again only when the
//! call before it was answered, or cannot be carried out any more. Sessions share the slots of a shard: where
//! two meet in one, a repetition may be answered that nobody knows, and never wrongly.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::{Draw, Shard, StoreError};
use duetime_redis::Sending;
use parking_lot::Mutex;
use redis::Cmd;
use tokio::time::Instant;

/// Slots of a shard. Each is at most a field of some dozen bytes and the longest answer of one script.
const SLOTS: u32 = 64;
/// The first of them, a letter that can be read.
const FIRST_SLOT: u8 = b'0';
/// Groups of shards that take their slots from one set.
const GROUPS: usize = 1024;
/// No sending yet.
const NEVER_MS: i64 = i64::MIN;

/// Which slots of a group are in use.
#[derive(Debug, Default)]
struct ShardReplies {
    busy: u64,
    /// Those of calls whose callers went away, and until when they may be carried out.
    resting: Vec<(Instant, u32)>,
}

impl ShardReplies {
    fn take(&mut self) -> Option<u32> {
        let (now, busy) = (Instant::now(), &mut self.busy);
        self.resting.retain(|(until, slot)| {
            if *until <= now {
                *busy &= !(1 << slot);
            }
            *until > now
        });
        let free = (!self.busy).trailing_zeros();
        if free >= SLOTS {
            return None;
        }
        self.busy |= 1 << free;
        Some(free)
    }
}

/// The slots that this process uses for its repeatable calls.
#[derive(Debug)]
pub(crate) struct ReplyCache {
    session: String,
    /// Its first slot: another session begins elsewhere.
    first: u32,
    number: AtomicU64,
    rest_for: Duration,
    draw: Draw,
    groups: Vec<Mutex<ShardReplies>>,
}

fn session(draw: &Draw) -> String {
    format!("{:016x}", draw.next())
}

fn any_slot(draw: &Draw) -> u32 {
    u32::try_from(draw.below(u64::from(SLOTS))).expect("below a few")
}

impl ReplyCache {
    /// For calls that are waited for this long; `first`: the slot it begins with.
    pub(crate) fn new(response_timeout: Duration, first: Option<u32>, draw: Draw) -> Self {
        Self {
            session: session(&draw),
            first: first.unwrap_or_else(|| any_slot(&draw)) % SLOTS,
            number: AtomicU64::new(1),
            rest_for: response_timeout + CLOCK_SKEW_MAX,
            draw,
            groups: (0..GROUPS).map(|_| Mutex::default()).collect(),
        }
    }

    /// The next call on `shard`.
    pub(crate) fn call(&self, shard: &Shard) -> CachedCall<'_> {
        let group = BuildHasherDefault::<DefaultHasher>::default().hash_one((&self.session, &shard.topic, shard.index))
            as usize
            % GROUPS;
        let taken = self.groups[group].lock().take();
        // Beyond what there are slots for, a call is a session by itself.
        let session = if taken.is_some() { self.session.clone() } else { session(&self.draw) };
        let slot = taken.map_or_else(|| any_slot(&self.draw), |taken| (self.first + taken) % SLOTS);
        CachedCall {
            cache: self,
            group,
            taken,
            slot: [0, FIRST_SLOT + slot as u8],
            name: format!("{session} {}", self.number.fetch_add(1, Ordering::Relaxed)),
            since_ms: AtomicI64::new(NEVER_MS),
            unsure: AtomicBool::new(false),
            asks: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }
}

/// One call, however often it is sent.
#[derive(Debug)]
pub(crate) struct CachedCall<'a> {
    cache: &'a ReplyCache,
    group: usize,
    taken: Option<u32>,
    slot: [u8; 2],
    name: String,
    /// The time of the server, at least, when it was sent first.
    since_ms: AtomicI64,
    unsure: AtomicBool,
    asks: AtomicBool,
    over: AtomicBool,
}

/// What one sending of a call has to say; see `recall.lua`.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) since: String,
    slot: [u8; 2],
    name: String,
}

impl Named {
    /// The same for a part of the call's script: the whole of it has looked already.
    pub(crate) fn inner(mut self) -> Self {
        self.since.clear();
        self
    }

    /// Adds since, slot and name.
    pub(crate) fn add(&self, cmd: &mut Cmd) {
        cmd.arg(&self.since);
        self.add_slot(cmd);
    }

    /// Adds slot and name.
    pub(crate) fn add_slot(&self, cmd: &mut Cmd) {
        cmd.arg(&self.slot[..]).arg(&self.name);
    }
}

impl CachedCall<'_> {
    /// What to say in this sending.
    pub(crate) fn named(&self, sending: &Sending) -> Named {
        let first = self.since_ms.compare_exchange(NEVER_MS, sending.since_ms, Ordering::Relaxed, Ordering::Relaxed);
        let since_ms = first.err().unwrap_or(sending.since_ms);
        if sending.repeated {
            self.unsure.store(true, Ordering::Relaxed);
        }
        let since = match (self.is_unsure(), self.asks.load(Ordering::Relaxed)) {
            (false, _) => String::new(),
            (true, false) => since_ms.to_string(),
            (true, true) => format!("?{since_ms}"),
        };
        Named { since, slot: self.slot, name: format!("{} {}", self.name, sending.not_after_ms) }
    }

    /// An earlier sending may have been carried out; that stays so, whatever a later one is answered.
    pub(crate) fn is_unsure(&self) -> bool {
        self.unsure.load(Ordering::Relaxed)
    }

    /// What the call is answered after this error: that a full server refuses this sending says nothing of an earlier
    /// one, which may have been carried out.
    pub(crate) fn judged(&self, doing: &'static str, error: StoreError) -> StoreError {
        match error {
            StoreError::Full(why) if self.is_unsure() => {
                let source = format!("it may have been done, and since the server is full: {why}").into();
                StoreError::Unavailable { doing, source }
            }
            error => error,
        }
    }

    /// From now on it only asks whether it was carried out.
    pub(crate) fn only_ask(&self) {
        self.asks.store(true, Ordering::Relaxed);
    }

    /// Marks the call as under way, again where another script goes on with it.
    pub(crate) fn begins(&self) {
        self.over.store(false, Ordering::Relaxed);
    }

    /// Marks the call finished: no copy of it can still execute.
    pub(crate) fn is_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for CachedCall<'_> {
    fn drop(&mut self) {
        let Some(taken) = self.taken else { return };
        let mut group = self.cache.groups[self.group].lock();
        if self.over.load(Ordering::Relaxed) {
            group.busy &= !(1 << taken);
        } else {
            // Its caller went away; what was sent may still be carried out, and would take the slot back.
            group.resting.push((Instant::now() + self.cache.rest_for, taken));
        }
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::{ChangeId, RoutingId, TopicName};

    use super::*;

    fn shard() -> Shard {
        Shard::new(TopicName::new("t").unwrap(), 3, RoutingId { epoch: 1, change_id: ChangeId::default() })
    }

    fn sending(repeated: bool, since_ms: i64) -> Sending {
        Sending { repeated, not_after_ms: since_ms + 5_000, since_ms }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_is_used_again_when_its_call_is_over() {
        let cache = ReplyCache::new(Duration::from_secs(5), None, Draw::new(rand::random::<u64>));
        let first = cache.call(&shard());
        let second = cache.call(&shard());
        assert_ne!(first.slot, second.slot);
        let (slot, abandoned) = (first.slot, second.slot);
        first.is_over();
        drop((first, second));
        let third = cache.call(&shard());
        assert_eq!(third.slot, slot);
        assert_ne!(cache.call(&shard()).slot, abandoned, "it may still be carried out");
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(cache.call(&shard()).slot, abandoned);
    }

    #[test]
    fn a_call_beyond_the_slots_is_a_session_by_itself() {
        let cache = ReplyCache::new(Duration::from_secs(5), None, Draw::new(rand::random::<u64>));
        let calls: Vec<_> = (0..SLOTS).map(|_| cache.call(&shard())).collect();
        let more = cache.call(&shard());
        assert!(calls.iter().all(|call| call.name.starts_with(&cache.session)));
        assert!(!more.name.starts_with(&cache.session));
    }

    #[test]
    fn a_call_that_was_sent_once_unsure_stays_so() {
        let cache = ReplyCache::new(Duration::from_secs(5), None, Draw::new(rand::random::<u64>));
        let call = cache.call(&shard());
        assert_eq!(call.named(&sending(false, 100)).since, "");
        assert_eq!(call.named(&sending(true, 200)).since, "100");
        assert_eq!(call.named(&sending(false, 300)).since, "100");
        call.only_ask();
        assert_eq!(call.named(&sending(false, 400)).since, "?100");
    }
}
