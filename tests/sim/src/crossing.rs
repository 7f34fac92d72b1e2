//! A world in which ids are claimed at their source shard while the shard count changes, cancelled, enqueued again and
//! claimed at their new home until the same millisecond: the receipt of the earlier life settles nothing.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{ClaimedMessage, Edit};
use duetime_core::{Clock as _, MessageId, OnConflict, Receipt, Shard};
use duetime_router::{SettleAnswer, SettleAsk};
use duetime_testkit::history::{Change, What, digest};

use crate::clients::Client;
use crate::world::{Node, World, orders};

/// Ids that are claimed.
const MESSAGES: usize = 40;
/// The first claim of an id.
const FIRST_CLAIM: Duration = Duration::from_secs(60);
/// A claim comes to its shard after so long at most.
const ON_ITS_WAY_MS_MAX: u64 = 8;

/// Enqueues, changes the shard count, and has ids claimed in two lives.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client) -> u32 {
    let ids: Vec<MessageId> =
        (0..MESSAGES).map(|n| MessageId::new(&format!("twice-{n}")).expect("a good id")).collect();
    client.enqueue_all(&ids, Duration::ZERO, false, "first", OnConflict::Reject).await;
    let last = 2 + u32::try_from(world.dice.below(3)).expect("few");
    world.request(&nodes[0], &orders(), last).await;
    for index in 0.. {
        let Some(record) = client.door().await.catalog.get(&orders()) else { break };
        if index == MESSAGES || !record.routing.is_moving() {
            break;
        }
        let shard = record.routing.shard(&orders(), 0);
        if let Some(first) = client.claim_one(&shard, FIRST_CLAIM).await {
            let earlier = Receipt::new(&orders(), shard.index, shard.epoch, first.id.clone(), first.score);
            client.live_again(&first, earlier).await;
        }
    }
    client.finish(&ids).await;
    last
}

impl Client {
    async fn claim_one(&self, shard: &Shard, visibility: Duration) -> Option<ClaimedMessage> {
        let request = self.request(1, visibility);
        let message = self.claim(shard, &request).await?.messages.pop()?;
        let payload = digest(&message.payload);
        self.note(&message.id, What::Handed { attempt: message.attempt, payload, until_ms: None });
        Some(message)
    }

    /// Cancels what is claimed, enqueues it again, claims it, and acks with both receipts.
    async fn live_again(&self, first: &ClaimedMessage, earlier: Receipt) {
        let id = &first.id;
        self.edit_all(&[(Change::Cancel, Edit::Cancel(id.clone()))]).await;
        self.enqueue(id, Duration::ZERO, false, "second", OnConflict::Reject).await;
        let Some(record) = self.door().await.catalog.get(&orders()) else { return };
        let home = record.routing.home(&orders(), id);
        let until = first.score.visible_at().since(self.shared.clock.now());
        let early = Duration::from_millis(self.dice().below(ON_ITS_WAY_MS_MAX));
        let Some(second) = self.claim_one(&home, until.saturating_sub(early)).await else { return };
        if second.id == *id {
            let answer = self.settle_one(earlier).await;
            let settled = matches!(answer, Some(SettleAnswer::Ok));
            assert!(!settled, "I16: a receipt of an earlier life of {id} settled the next one");
        }
        self.settle_one(Receipt::new(&orders(), home.index, home.epoch, second.id, second.score)).await;
    }

    async fn settle_one(&self, receipt: Receipt) -> Option<SettleAnswer> {
        let answer = self.door().await.router.settle(&orders(), vec![(receipt, SettleAsk::Ack)]).await.pop();
        answer?.ok().map(|(answer, _)| answer)
    }

    /// Cancels whatever is left.
    async fn finish(&self, ids: &[MessageId]) {
        for id in ids {
            self.edit_all(&[(Change::Cancel, Edit::Cancel(id.clone()))]).await;
        }
    }
}
