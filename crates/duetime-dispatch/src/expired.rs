//! Messages that were not claimed before they expired: they are ended as their topic says, and nobody is handed them.
//!
//! Upstream: each claim, for a sink or a consumer. What the store does not end here comes again when its claim is over.

use duetime_core::store::{Claim, ClaimedMessage, Settle, Settled, Settlement};
use duetime_core::{End, Expiry, OnExpiry, Receipt, Repeat, Shard, Successor, Timestamp};
use duetime_metrics::Event;
use tracing::warn;

use crate::work::Work;

fn reason(message: &ClaimedMessage) -> String {
    let at = Expiry::of(&message.headers).map_or(Timestamp::ZERO, |expiry| expiry.of_due(message.due_at));
    format!("expired: it was not handed over before {at}")
}

impl Work {
    /// Says of messages that are removed as they are claimed how many of them ended a series: their topic took no such
    /// message, but was changed since.
    fn note_ended_series(&self, messages: &[ClaimedMessage]) {
        let ended = messages.iter().filter(|message| Repeat::is_in(&message.headers)).count();
        if ended > 0 {
            let topic = &self.record.name;
            warn!(%topic, ended, "series ended: the topic delivers at most once, so nothing writes the next message");
        }
    }

    /// Takes out of `claim` what has expired by the store's clock, and ends it. Returns whether there was any.
    pub(crate) async fn end_expired(&self, shard: &Shard, claim: &mut Claim) -> bool {
        let now = claim.now;
        if self.at_most_once() {
            self.note_ended_series(&claim.messages);
        }
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
            let next = Successor::of_claimed(&message, End::Expired, self.clock.now());
            let action = match next {
                _ if is_dead => Settlement::Bury(reason(&message)),
                Some(next) => Settlement::Repeat(next),
                None => Settlement::Expire,
            };
            Settle { id: message.id, score: message.score, action }
        };
        let batch: Vec<Settle> = held.into_iter().map(end).collect();
        let (mut ended, mut followed) = (0, 0);
        if !batch.is_empty() {
            match self.settle(shard, self.clock.now(), &batch).await {
                Ok(settled) => {
                    for (settle, _) in batch.iter().zip(&settled).filter(|(_, settled)| **settled == Settled::Ok) {
                        ended += 1;
                        if let Settlement::Repeat(next) = &settle.action {
                            followed += 1;
                            self.schedule.hint(shard.index, next.due_at);
                        }
                    }
                }
                Err(error) => {
                    self.health.failed(&error);
                }
            }
        }
        self.topic_meters.count(Event::Expired, ended + removed.len() as u64);
        self.topic_meters.count(Event::Scheduled, followed);
        self.topic_meters.count(Event::Dead, if is_dead { ended } else { 0 });
        true
    }
}
