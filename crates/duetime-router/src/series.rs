//! Messages that come again: which topics take them, and what follows one that a consumer acks.
//!
//! Upstream: `router`.

use duetime_core::in_place::IN_PLACE_ENDS_SERIES;
use duetime_core::store::Enqueue;
use duetime_core::{DeliveryMode, End, MessageId, Receipt, Repeat, Successor, TopicName, TopicRecord};

use crate::calls::topic_limits::TopicAdmission;
use crate::error::RouteError;
use crate::router::{BODIES_AT_ONCE, Router};
use crate::settlement::{Next, SettleAsk, is_ack_of_series};

impl Router {
    /// Refuses messages of a series where nobody would write the next one.
    pub(crate) fn refuse_series(
        &self,
        mut admission: TopicAdmission,
        record: &TopicRecord,
        items: &[Enqueue],
    ) -> TopicAdmission {
        if !items.iter().any(|item| Repeat::is_in(&item.headers)) {
            return admission;
        }
        let Some(why) = self.why_no_series(record) else { return admission };
        admission.refused.resize(items.len(), None);
        for (refused, item) in admission.refused.iter_mut().zip(items) {
            if Repeat::is_in(&item.headers) {
                *refused = Some(RouteError::CannotRepeat { topic: record.name.clone(), why });
            }
        }
        admission
    }

    fn why_no_series(&self, record: &TopicRecord) -> Option<&'static str> {
        if record.config.delivery == DeliveryMode::AtMostOnce {
            let why = "it delivers at most once, so a message is gone before it is known to be delivered, and nothing \
                       writes the next one; set its delivery to at-least-once";
            return Some(why);
        }
        self.dispatcher.catalog.delivers_in_place(record).then_some(IN_PLACE_ENDS_SERIES)
    }

    /// What follows the messages of these receipts that are acked and are of a series: by what their shards hold. Where
    /// a message is another by now, its claim's score is another too, and the settlement is refused by that.
    ///
    /// One look for each [`BODIES_AT_ONCE`] of them; none where there are none.
    pub(crate) async fn successors(
        &self,
        topic: &TopicName,
        asks: &[(Receipt, SettleAsk)],
    ) -> Vec<Result<Next, RouteError>> {
        let mut nexts: Vec<Result<Next, RouteError>> = asks.iter().map(|_| Ok(None)).collect();
        let acks: Vec<usize> = (0..asks.len()).filter(|at| is_ack_of_series(&asks[*at])).collect();
        for some in acks.chunks(BODIES_AT_ONCE) {
            let ids: Vec<MessageId> = some.iter().map(|at| asks[*at].0.id.clone()).collect();
            let found = self.get(topic, ids).await;
            let now = self.dispatcher.context.clock.now();
            for (at, found) in some.iter().zip(found) {
                nexts[*at] = found.map(|(_, message)| {
                    let message = message?;
                    let parts = (&message.headers, &message.payload);
                    Successor::of(parts, (message.due_at, message.nonce), End::Delivered, now)
                });
            }
        }
        nexts
    }
}
