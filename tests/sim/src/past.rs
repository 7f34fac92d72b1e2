//! What a topic remembers of messages that are gone: asked by producers, and judged in the end (I18).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use duetime_core::store::{Enqueue, EnqueueOutcome};
use duetime_core::{Due, End, Headers, MessageId, Nonce, OnConflict, Outcome, Receipt};
use duetime_router::{SettleAnswer, SettleAsk};
use duetime_testkit::history::{Change, Event, FinalState, What, digest};
use tokio::time::Instant;

use crate::clients::{Client, FAR};
use crate::producers::FLEETING;
use crate::world::ORDERS;

/// Longer than every world, whatever its clocks do.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(31 * 24 * 3600);

/// What clients and masters saw of one message.
#[derive(Default)]
struct Seen {
    /// An enqueue was acknowledged.
    is_made: bool,
    is_handed: bool,
    /// It is one that expires.
    is_fleeting: bool,
    /// A cancel, or a purge, was asked for.
    is_cancel_asked: bool,
    /// The last answer was that it is cancelled, and nothing was asked for after it.
    is_cancelled: bool,
}

fn seen(events: &[Event]) -> BTreeMap<&str, Seen> {
    let mut all: BTreeMap<&str, Seen> = BTreeMap::new();
    for event in events.iter().filter(|event| event.topic == ORDERS) {
        let one = all.entry(&event.id).or_default();
        match &event.what {
            What::Invoked(change) => {
                one.is_cancelled = false;
                one.is_cancel_asked |= matches!(change, Change::Cancel);
                one.is_fleeting |=
                    matches!(change, Change::Enqueue { payload, .. } if *payload == digest(FLEETING.as_bytes()));
            }
            What::Answered { outcome } => {
                one.is_made |= matches!(outcome.as_str(), "scheduled" | "replaced");
                one.is_cancelled = outcome == "cancelled";
            }
            What::Handed { .. } => one.is_handed = true,
            _ => {}
        }
    }
    all
}

impl Client {
    /// Enqueues the id of a message that was cancelled: it is remembered.
    pub async fn is_remembered(&self, id: &MessageId) {
        let item = Enqueue {
            id: id.clone(),
            due: Due::In(FAR),
            headers: Headers::default(),
            payload: Bytes::from_static(b"never"),
            on_conflict: OnConflict::Reject,
            nonce: Nonce(self.dice().next()),
        };
        let began = Instant::now();
        loop {
            let answer = self.door().await.router.enqueue(&self.topic, vec![item.clone()]).await.pop();
            if let Some(Ok(placed)) = answer {
                assert_eq!(placed.outcome, EnqueueOutcome::Duplicate, "I18: {id} is scheduled twice");
                let end = placed.became.map(|became| became.end);
                let is_cancelled = matches!(end, Some(End::Cancelled | End::CancelledInFlight));
                assert!(is_cancelled, "I18: {id} was cancelled, and is remembered as {end:?}");
                return;
            }
            self.again(began, "an enqueue of what is remembered").await;
        }
    }

    async fn became(&self, id: &MessageId) -> Option<Outcome> {
        let began = Instant::now();
        loop {
            let found = self.door().await.router.find(&self.topic, vec![id.clone()]).await.pop();
            if let Some(Ok((_, found))) = found {
                return found.err().flatten();
            }
            self.again(began, "a look for what is gone").await;
        }
    }

    /// Judges what is remembered of all that is gone.
    pub async fn judge_past(&self, events: &[Event], left: &FinalState) {
        let is_left = |id: &str| left.left.iter().any(|left| left.topic == ORDERS && left.id == id);
        for (id, seen) in seen(events).into_iter().filter(|(id, seen)| seen.is_made && !is_left(id)) {
            let id = MessageId::new(id).expect("a good id");
            let Some(became) = self.became(&id).await else { panic!("I18: {id} is gone, and unknown") };
            match became.end {
                End::Delivered => {
                    assert!(seen.is_handed, "I18: {id} is remembered as delivered, and nobody had it");
                    assert!(!seen.is_cancelled, "I18: {id} was cancelled, and is remembered as delivered");
                    self.acked_again(&id, &became).await;
                }
                End::Cancelled | End::CancelledInFlight | End::Dead => {
                    assert!(seen.is_cancel_asked, "I18: {id} is remembered as cancelled, and nobody asked for it");
                }
                End::Moved => {
                    let is_asked = self.shared.moved.lock().contains(&id);
                    assert!(is_asked, "I18: {id} is remembered as moved, and nobody moved it");
                }
                End::Expired => assert!(seen.is_fleeting, "I18: {id} is remembered as expired, and it does not expire"),
                End::CancelledBefore => panic!("I18: {id} was there, and is remembered as never enqueued"),
            }
        }
    }

    async fn acked_again(&self, id: &MessageId, became: &Outcome) {
        let began = Instant::now();
        loop {
            let door = self.door().await;
            let Some(record) = door.catalog.get(&self.topic) else { panic!("the topic is there") };
            let receipt = Receipt::new(&self.topic, 0, record.routing.epoch, id.clone(), became.score);
            let answer = door.router.settle(&self.topic, vec![(receipt, SettleAsk::Ack)]).await.pop();
            if let Some(Ok((answer, _))) = answer {
                assert_eq!(answer, SettleAnswer::Already, "I18: {id} was acked by this receipt");
                return;
            }
            self.again(began, "an ack that is repeated").await;
        }
    }
}
