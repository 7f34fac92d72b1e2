//! What earlier homes of ids remember, where an answer of the present ones is not enough.
//!
//! Upstream: `router`, of a topic that remembers.

use duetime_core::routing::shard_of;
use duetime_core::store::Enqueued;
use duetime_core::{MessageId, Nonce, Receipt, TopicName, TopicRecord};

use crate::calls::endings::SettleKind;
use crate::calls::ops::SettleOp;
use crate::calls::route::Answers;
use crate::router::{BODIES_AT_ONCE, Placed, Router, SettledIn, ack_wait, is_void};
use crate::settlement::{Next, SettleAsk, settlement};

impl Router {
    /// A shard that is not the id's home may have answered what it remembers: what lives at the home by now, or ended
    /// there later, is answered instead. Nothing was scheduled either way.
    pub(crate) async fn complete_remembered(
        &self,
        topic: &TopicName,
        named: &[(MessageId, Nonce)],
        placed: &mut Answers<Placed>,
    ) {
        let Ok(record) = self.topic(topic).await else { return };
        let (routing, seed) = (&record.routing, record.routing.seed(topic));
        let is_elsewhere = |(at, (id, _)): &(usize, &(MessageId, Nonce))| {
            let home = shard_of(id, seed, routing.shards);
            placed[*at].as_ref().is_ok_and(|placed| placed.became.is_some() && placed.shard != home)
        };
        let elsewhere: Vec<usize> = named.iter().enumerate().filter(is_elsewhere).map(|(at, _)| at).collect();
        for some in elsewhere.chunks(BODIES_AT_ONCE) {
            let ids = some.iter().map(|at| named[*at].0.clone()).collect();
            for (at, found) in some.iter().zip(self.find(topic, ids).await) {
                let nonce = named[*at].1;
                let (shard, answer) = match found {
                    Ok((shard, Ok(lives))) => (shard, Enqueued::refused_by(&lives, nonce)),
                    Ok((shard, Err(Some(outcome)))) => (shard, Enqueued::remembered(outcome, nonce)),
                    // What was remembered is too old by now, or the shard does not answer.
                    Ok((_, Err(None))) | Err(_) => continue,
                };
                if let Ok(placed) = &mut placed[*at] {
                    let Enqueued { outcome, due_at, became, .. } = answer;
                    *placed = Placed { outcome, due_at, shard, became, ..*placed };
                }
            }
        }
    }

    /// Asks the earlier homes of messages whether these acks are of what was delivered there.
    pub(crate) async fn look_back(
        &self,
        topic: &TopicName,
        record: &TopicRecord,
        receipts: &[Receipt],
        (kinds, nexts): (&[SettleKind], &[Next]),
        settled: &mut [SettledIn],
    ) {
        if record.remembered_counts(self.dispatcher.context.clock.now()).next().is_none() {
            return;
        }
        let void = (0..receipts.len()).filter(|at| kinds[*at] == SettleKind::Ack && is_void(&settled[*at]));
        let void: Vec<usize> = void.collect();
        let theirs: Vec<Receipt> = void.iter().map(|at| receipts[*at].clone()).collect();
        let ack = |at: &usize| settlement(record, &receipts[*at], SettleAsk::Ack, &nexts[*at]);
        let acks = void.iter().map(ack).collect();
        let op = SettleOp { wait: ack_wait(record), is_counted: true, looks_back: true };
        let again = self.settle_receipts(topic, op, &theirs, acks).await;
        void.into_iter().zip(again).for_each(|(at, answer)| settled[at] = answer);
    }
}
