//! Messages that come again, acked by consumers while the shard count changes.

use duetime_core::{Repeat, RepeatAsk};

use super::*;
use crate::router::BODIES_AT_ONCE;

const EVERY: Duration = Duration::from_secs(3_600);

impl Fixture {
    /// Begins a series of one an hour, which is due now, and claims its first message.
    async fn first(&self, id: &MessageId) -> (Timestamp, Receipt) {
        let now = self.clock.now();
        let mut item = Enqueue { due: Due::At(now), ..message(id.as_str()) };
        item.repeat(&RepeatAsk { every: Some(EVERY), ..RepeatAsk::default() }, true, now).unwrap();
        self.router.enqueue(&self.topic, vec![item]).await.remove(0).unwrap();
        (now, self.claimed(id).await)
    }

    async fn claimed(&self, id: &MessageId) -> Receipt {
        let record = self.catalog.get(&self.topic).unwrap();
        let shard = record.routing.home(&self.topic, id);
        let claim = self.store.claim(&shard, self.clock.now(), &claim_request(1)).await.unwrap();
        let message = claim.messages.into_iter().next().expect("it is due");
        let receipt = Receipt::new(&self.topic, shard.index, shard.epoch, id.clone(), message.score);
        receipt.of_series(Repeat::is_in(&message.headers))
    }

    async fn ack(&self, receipt: &Receipt) -> SettleAnswer {
        let asks = vec![(receipt.clone(), SettleAsk::Ack)];
        self.router.settle(&self.topic, asks).await.remove(0).unwrap().0
    }

    async fn due(&self, id: &MessageId) -> Option<Timestamp> {
        let found = self.router.get(&self.topic, vec![id.clone()]).await.remove(0).unwrap().1;
        found.map(|message| message.due_at)
    }
}

#[tokio::test]
async fn an_ack_of_a_consumer_writes_the_next_message_wherever_the_one_before_lives() {
    let fixture = Fixture::remembering(2).await;
    let id = fixture.moving_id(&[2, 4, 8]);
    let (start, receipt) = fixture.first(&id).await;
    assert!(receipt.repeats);
    assert_eq!(fixture.ack(&receipt).await, SettleAnswer::Ok);
    assert_eq!(fixture.due(&id).await, Some(start.plus(EVERY)));
    assert_eq!(fixture.ack(&receipt).await, SettleAnswer::Already, "a repetition writes nothing");
    assert_eq!(fixture.due(&id).await, Some(start.plus(EVERY)));
    // It is claimed where it lives, and acked where it has moved to; then it is on its way when it is acked.
    for (turn, shards, moves) in [(2, 4, true), (3, 8, false)] {
        fixture.clock.advance(EVERY);
        let receipt = fixture.claimed(&id).await;
        fixture.resize(shards, moves).await;
        assert_eq!(fixture.ack(&receipt).await, SettleAnswer::Ok, "{shards} shards");
        assert_eq!(fixture.due(&id).await, Some(start.plus(EVERY * turn)), "{shards} shards");
    }
    assert_eq!((fixture.counted(Event::Delivered), fixture.counted(Event::Scheduled)), (3, 4));
}

#[tokio::test]
async fn an_ack_that_comes_after_a_cancel_or_a_replacement_writes_nothing() {
    let fixture = Fixture::remembering(2).await;
    let (cancelled, replaced) = (id("cancelled"), id("replaced"));
    let (_, receipt) = fixture.first(&cancelled).await;
    fixture.router.edit(&fixture.topic, vec![Edit::Cancel(cancelled.clone())]).await.remove(0).unwrap();
    assert_eq!(fixture.ack(&receipt).await, SettleAnswer::Cancelled);
    assert_eq!(fixture.due(&cancelled).await, None);
    let (start, receipt) = fixture.first(&replaced).await;
    let other =
        Enqueue { on_conflict: OnConflict::Replace, due: Due::At(start.plus(EVERY * 9)), ..message("replaced") };
    fixture.router.enqueue(&fixture.topic, vec![other]).await.remove(0).unwrap();
    assert_eq!(fixture.ack(&receipt).await, SettleAnswer::Expired);
    assert_eq!(fixture.due(&replaced).await, Some(start.plus(EVERY * 9)));
    assert_eq!(fixture.counted(Event::Delivered), 0);
}

#[tokio::test]
async fn a_request_with_more_acks_of_series_than_bodies_are_held_writes_each_next_message_once() {
    let fixture = Fixture::remembering(2).await;
    let one = id("one");
    let (start, receipt) = fixture.first(&one).await;
    let asks = vec![(receipt, SettleAsk::Ack); 2 * BODIES_AT_ONCE + 1];
    let answers = fixture.router.settle(&fixture.topic, asks).await;
    let words: Vec<SettleAnswer> = answers.into_iter().map(|answer| answer.unwrap().0).collect();
    assert_eq!(words.len(), 2 * BODIES_AT_ONCE + 1);
    assert_eq!(words.iter().filter(|word| **word == SettleAnswer::Ok).count(), 1);
    assert_eq!(fixture.due(&one).await, Some(start.plus(EVERY)));
}
