//! One id in each life of a topic, and a receipt of the life before that comes late.
//!
//! The two claims end in the same millisecond, so that nothing but the life distinguishes their receipts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::{Clock as _, MessageId, OnConflict, Receipt};
use duetime_router::{SettleAnswer, SettleAsk};
use duetime_testkit::history::{What, digest};
use tokio::time::Instant;

use crate::clients::Client;

/// The id.
pub const AGAIN: &str = "again";
/// The first claim ends so late, in another life of the topic.
const FIRST_CLAIM: Duration = Duration::from_secs(110);
/// No claim is for less.
const CLAIM_MIN: Duration = Duration::from_secs(2);

impl Client {
    /// Claims the id in this life, acks with the receipt of an earlier one, which is refused, and then with its own.
    pub async fn meet_again(&self, earlier: &mut Option<Receipt>) {
        let id = MessageId::new(AGAIN).expect("a good id");
        self.enqueue(&id, Duration::ZERO, false, AGAIN, OnConflict::Reject).await;
        let now = self.shared.clock.now();
        let until = earlier.as_ref().map_or(now.plus(FIRST_CLAIM), |earlier| earlier.score.visible_at());
        let visibility = until.since(now);
        let Some(record) = self.door().await.catalog.get(&self.topic).filter(|_| visibility >= CLAIM_MIN) else {
            return;
        };
        let shard = record.routing.home(&self.topic, &id);
        let request = self.request(1, visibility);
        let ahead = self.shared.all_ahead.load(Ordering::Relaxed);
        let Some(message) = self.claim(&shard, &request).await.and_then(|mut claim| claim.messages.pop()) else {
            return;
        };
        // As any consumer: what comes too late is thrown away.
        let now = self.shared.clock.now();
        if now >= message.score.visible_at() {
            return;
        }
        if ahead % 2 == 1 || ahead != self.shared.all_ahead.load(Ordering::Relaxed) {
            self.shared.excused.lock().insert((id.to_string(), now.as_millis()));
        }
        let payload = digest(&message.payload);
        self.note(&id, What::Handed { attempt: message.attempt, payload, until_ms: None });
        let own = Receipt::new(&self.topic, shard.index, shard.epoch, id, message.score);
        if let Some(late) = earlier.replace(own.clone()) {
            let answer = self.door().await.router.settle(&self.topic, vec![(late, SettleAsk::Ack)]).await.pop();
            let is_done = matches!(answer, Some(Ok((SettleAnswer::Ok, _))));
            assert!(!is_done, "I16: a receipt of an earlier life settled {}/{AGAIN}", self.topic);
        }
        let began = Instant::now();
        while self
            .door()
            .await
            .router
            .settle(&self.topic, vec![(own.clone(), SettleAsk::Ack)])
            .await
            .pop()
            .is_none_or(|r| r.is_err())
        {
            self.again(began, "an ack").await;
        }
    }
}
