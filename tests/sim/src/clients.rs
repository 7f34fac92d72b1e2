//! Clients: producers with ids of their own, and consumers. Each writes down what it sees.
//!
//! A producer makes one change of an id after the other; what may be in flight is not changed any
//! more, so that the order of the history is the order of what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::store::{Claim, ClaimRequest, Edit, Edited, Enqueue, EnqueueOutcome, Store as _};
use duetime_core::{
    Clock, DeliveryMode, Due, Headers, LeaseClass, MessageId, Nonce, OnConflict, Receipt, RetryPolicy, Shard, TopicName,
};
use duetime_router::{Catalog, RoutedStore, Router, SettleAnswer, SettleAsk};
use duetime_testkit::TokioClock;
use duetime_testkit::history::{Change, Outcome, Recorder, What, digest};

use crate::draw::Dice;

/// How long a claim hides its messages.
pub const VISIBILITY: Duration = Duration::from_secs(20);
/// Ahead of every end.
pub const FAR: Duration = Duration::from_secs(100_000);
/// Tries of one change whose answers are lost.
const TRIES: u32 = 40;

/// One node, as a client sees it.
#[derive(Clone, Debug)]
pub struct Door {
    pub router: Arc<Router>,
    pub routed: Arc<RoutedStore>,
    pub catalog: Arc<Catalog>,
}

/// A client, of all nodes: each try goes to any of them.
#[derive(Clone, Debug)]
pub struct Client {
    pub topic: TopicName,
    pub doors: Vec<Door>,
    pub clock: Arc<TokioClock>,
    pub history: Arc<Recorder>,
    pub dice: Arc<Dice>,
}

impl Client {
    fn door(&self) -> &Door {
        &self.doors[usize::try_from(self.dice.below(self.doors.len() as u64)).expect("few")]
    }

    fn note(&self, id: &MessageId, what: What) {
        self.history.note(self.topic.as_str(), id.as_str(), what);
    }

    /// Schedules, again and again as the same enqueue until it is answered.
    async fn enqueue(&self, id: &MessageId, delay: Duration, text: &str, on_conflict: OnConflict) -> &'static str {
        let due_at = self.clock.now().plus(delay);
        let change = Change::Enqueue { due_at_ms: due_at.as_millis(), payload: digest(text.as_bytes()) };
        self.note(id, What::Invoked(change));
        let item = Enqueue {
            id: id.clone(),
            due: Due::At(due_at),
            headers: Headers::default(),
            payload: text.to_owned().into(),
            on_conflict,
            nonce: Nonce(self.dice.next()),
        };
        for _ in 0..TRIES {
            if let Some(Ok(placed)) = self.door().router.enqueue(&self.topic, vec![item.clone()]).await.pop() {
                let word = match placed.outcome {
                    EnqueueOutcome::Scheduled => "scheduled",
                    EnqueueOutcome::Replaced => "replaced",
                    EnqueueOutcome::Duplicate => "duplicate",
                };
                self.note(id, What::Answered { outcome: word.to_owned() });
                return word;
            }
            self.dice.pause(20).await;
        }
        panic!("no answer to the enqueue of {id}");
    }

    /// Cancels or reschedules until it is answered; whether an earlier try went unanswered.
    async fn edit(&self, id: &MessageId, change: Change, edit: Edit) -> (Edited, bool) {
        self.note(id, What::Invoked(change));
        for n in 0..TRIES {
            if let Some(Ok(changed)) = self.door().router.edit(&self.topic, vec![edit.clone()]).await.pop() {
                let edited = changed.edited;
                let word = match edited {
                    Edited::Cancelled => "cancelled",
                    Edited::Rescheduled(_) => "rescheduled",
                    // A try whose answer was lost may have rescheduled it, and a consumer has had it since.
                    Edited::InFlight | Edited::Unknown if n > 0 && matches!(change, Change::Reschedule { .. }) => {
                        "rescheduled"
                    }
                    Edited::InFlight => "in_flight",
                    Edited::Dead => "dead",
                    // A try whose answer was lost may have cancelled it.
                    Edited::Unknown if n > 0 && change == Change::Cancel => "cancelled",
                    Edited::Unknown => "unknown",
                };
                self.note(id, What::Answered { outcome: word.to_owned() });
                return (edited, n > 0);
            }
            self.dice.pause(20).await;
        }
        panic!("no answer to a change of {id}");
    }

    async fn reschedule(&self, id: &MessageId, delay: Duration) {
        let due_at = self.clock.now().plus(delay);
        let change = Change::Reschedule { due_at_ms: due_at.as_millis() };
        let (edited, repeated) = self.edit(id, change, Edit::Reschedule(id.clone(), Due::At(due_at))).await;
        let was_claimed = repeated && delay < FAR && matches!(edited, Edited::InFlight | Edited::Unknown);
        assert!(was_claimed || matches!(edited, Edited::Rescheduled(_)), "{id}: {edited:?}, {repeated}");
    }

    async fn cancel(&self, id: &MessageId) {
        let (edited, repeated) = self.edit(id, Change::Cancel, Edit::Cancel(id.clone())).await;
        assert!(edited == Edited::Cancelled || (repeated && edited == Edited::Unknown), "{id}: {edited:?}");
    }

    /// Lives of a few ids, over and over.
    pub async fn produce(self, producer: u64, lives: u64) {
        for life in 0..lives {
            let id = MessageId::new(&format!("p{producer}-{}", life)).expect("a good id");
            let near = Duration::from_millis(self.dice.below(3_000));
            let kind = self.dice.below(6);
            let first = if kind == 0 { near } else { FAR };
            assert_eq!(self.enqueue(&id, first, "first", OnConflict::Reject).await, "scheduled", "{id}");
            self.dice.pause(30).await;
            match kind {
                0 => {}
                1 => {
                    self.cancel(&id).await;
                    assert_eq!(self.enqueue(&id, FAR, "second", OnConflict::Reject).await, "scheduled", "{id}");
                    self.dice.pause(30).await;
                    self.cancel(&id).await;
                }
                2 => self.reschedule(&id, near).await,
                3 => {
                    let replaced = self.enqueue(&id, near, "second", OnConflict::Replace).await;
                    // The same enqueue told again is answered as one that is there.
                    assert!(matches!(replaced, "replaced" | "scheduled"), "{id}: {replaced}");
                }
                4 => assert_eq!(self.enqueue(&id, near, "second", OnConflict::Reject).await, "duplicate", "{id}"),
                _ => {
                    self.reschedule(&id, FAR).await;
                    self.dice.pause(30).await;
                    self.reschedule(&id, near).await;
                }
            }
            self.dice.pause(60).await;
        }
    }

    /// Claims in all shards in turn; acks, nacks, holds.
    pub async fn consume(self, stop: Arc<AtomicBool>) {
        let mut index = 0;
        while !stop.load(Ordering::Relaxed) {
            self.dice.pause(20).await;
            let Some(record) = self.door().catalog.get(&self.topic) else { continue };
            index = (index + 1) % record.routing.reach();
            let request = ClaimRequest {
                request: self.dice.next(),
                limit: 4,
                visibility: VISIBILITY,
                class: LeaseClass::TOPIC,
                retry: RetryPolicy { max_attempts: 90, ..RetryPolicy::default() },
                delivery: DeliveryMode::AtLeastOnce,
            };
            let Some(claim) = self.claim(&record.routing.shard(&self.topic, index), &request).await else { continue };
            for message in claim.messages {
                let payload = digest(&message.payload);
                let until_ms = Some(message.score.visible_at().as_millis());
                self.note(&message.id, What::Handed { attempt: message.attempt, payload, until_ms });
                let receipt = Receipt::new(&self.topic, index, record.routing.epoch, message.id.clone(), message.score);
                if self.dice.permille(100) {
                    self.dice.pause(3_000).await;
                }
                let nack = self.dice.permille(150) && message.attempt < 20;
                let ask = if nack { SettleAsk::Nack(Some(Duration::from_millis(50))) } else { SettleAsk::Ack };
                let outcome = if nack { Outcome::Retry } else { Outcome::Accepted };
                self.settle(receipt, message.attempt, ask, outcome).await;
            }
        }
    }

    /// A claim whose answer is lost is repeated, now and then, as the same request.
    async fn claim(&self, shard: &Shard, request: &ClaimRequest) -> Option<Claim> {
        loop {
            match self.door().routed.claim(shard, self.clock.now(), request).await {
                Ok(claim) => return Some(claim),
                Err(_) if self.dice.permille(300) => return None,
                Err(_) => self.dice.pause(20).await,
            }
        }
    }

    async fn settle(&self, receipt: Receipt, attempt: u8, ask: SettleAsk, outcome: Outcome) {
        let deadline = receipt.score.visible_at();
        for n in 0..TRIES {
            let answer = self.door().router.settle(&self.topic, vec![(receipt.clone(), ask)]).await.pop();
            let in_time = self.clock.now() < deadline;
            match answer {
                Some(Ok((SettleAnswer::Ok | SettleAnswer::Extended(_), _))) => {
                    return self.note(&receipt.id, What::Settled { attempt, outcome });
                }
                Some(Ok((SettleAnswer::Expired, _))) => {
                    assert!(n > 0 || !in_time, "a valid receipt of {} was refused", receipt.id);
                    // An earlier try did it.
                    if n > 0 && in_time {
                        self.note(&receipt.id, What::Settled { attempt, outcome });
                    }
                    return;
                }
                _ => self.dice.pause(20).await,
            }
        }
    }
}
