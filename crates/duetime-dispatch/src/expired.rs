//! Messages that were not claimed before they expired: they are ended as their topic says, and nobody is handed them.
//!
//! Upstream: each claim, for a sink or a consumer. What the store does not end here comes again when its claim is over.

use duetime_core::store::{Claim, ClaimedMessage, Settle, Settled, Settlement};
use duetime_core::{Expiry, OnExpiry, Receipt, Shard, Timestamp};
use duetime_metrics::Event;

use crate::work::Work;

fn reason(message: &ClaimedMessage) -> String {
    let at = Expiry::of(&message.headers).map_or(Timestamp::ZERO, |expiry| expiry.of_due(message.due_at));
    format!("expired: it was not handed over before {at}")
}

impl Work {
    /// Takes out of `claim` what has expired by the store's clock, and ends it. Returns whether there was any.
    pub(crate) async fn end_expired(&self, shard: &Shard, claim: &mut Claim) -> bool {
        let now = claim.now;
        let has_passed = |message: &ClaimedMessage| Expiry::has_passed(&message.headers, message.due_at, now);
        if !claim.messages.iter().any(has_passed) {
            return false;
        }
        let (expired, kept) = std::mem::take(&mut claim.messages).into_iter().partition(has_passed);
        claim.messages = kept;
        // At most once for a sink: removed as they were claimed.
        let (removed, held): (Vec<ClaimedMessage>, Vec<ClaimedMessage>) =
            Vec::into_iter(expired).partition(|message| message.score == Receipt::SETTLED);
        let is_dead = self.record.config.on_expiry == OnExpiry::Dead;
        let end = |message: ClaimedMessage| {
            let action = if is_dead { Settlement::Bury(reason(&message)) } else { Settlement::Expire };
            Settle { id: message.id, score: message.score, action }
        };
        let batch: Vec<Settle> = held.into_iter().map(end).collect();
        let mut ended = 0;
        if !batch.is_empty() {
            match self.settle(shard, self.clock.now(), &batch).await {
                Ok(settled) => ended = settled.iter().filter(|settled| **settled == Settled::Ok).count() as u64,
                Err(error) => {
                    self.health.failed(&error);
                }
            }
        }
        self.topic_meters.count(Event::Expired, ended + removed.len() as u64);
        self.topic_meters.count(Event::Dead, if is_dead { ended } else { 0 });
        true
    }
}
