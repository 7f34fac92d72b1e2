//! Claims what is due, several shards at once, as much as may be handed over.
//!
//! Upstream: `lane` says which shard is due. Downstream: `deliverer`. Before each claim it has asked
//! the breaker, the permits and the rate limit. A claim whose answer was lost is repeated under the
//! same name, so that it costs no attempt.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::{Claim, ClaimRequest};
use duetime_core::{LeaseClass, Shard, StoreError, Timestamp};
use duetime_metrics::Event;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::breaker::{Admission, Breaker};
use crate::config::CLAIMS_IN_FLIGHT;
use crate::lane::Taken;
use crate::places::Bounds;
use crate::work::{Ends, Held, Work};

/// One claim that was admitted: a shard and the permits for what it may bring.
#[derive(Debug)]
struct Admitted {
    taken: Taken,
    admission: Admission,
    permits: usize,
}

/// One claim that was answered or failed.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) shard: Shard,
    pub(crate) request: ClaimRequest,
    pub(crate) sent_at: Timestamp,
    pub(crate) sent: Instant,
    pub(crate) claim: Result<Claim, StoreError>,
}

impl Work {
    /// Asks the store once. When the answer takes so long that others shall not wait for what was
    /// reserved, `stalled` gives that back. Answers whether it did.
    pub(crate) async fn ask(&self, shard: Shard, request: ClaimRequest, stalled: impl FnOnce()) -> (Answer, bool) {
        let (sent_at, sent) = (self.clock.now(), Instant::now());
        let asked = self.store.claim(&shard, sent_at, &request);
        let (claim, has_stalled) = self.lane.unless_stalled(shard.index, asked, stalled).await;
        (Answer { shard, request, sent_at, sent, claim }, has_stalled)
    }

    /// Tells lane, meters and health about an answer; the claim itself is the caller's.
    pub(crate) fn note(&self, answer: &Answer) {
        let index = answer.shard.index;
        match &answer.claim {
            Ok(claim) => {
                self.health.ok();
                self.lane.answered(index, answer.sent_at, claim);
                let brought = claim.messages.len();
                if brought > 0 {
                    self.topic_meters.claim_batch_size.observe(brought as f64);
                }
                self.topic_meters.count(Event::Claimed, brought as u64);
                self.topic_meters.count(Event::Dead, claim.buried);
                self.topic_meters.claims_expired.inc_by(claim.expired);
            }
            Err(error) => {
                self.health.failed(error);
                let lost = matches!(error, StoreError::Unavailable { .. });
                self.lane.failed(index, lost.then(|| answer.request.clone()));
            }
        }
    }

    /// A new request for up to `limit` messages under the topic's own settings.
    pub(crate) fn request(&self, limit: usize) -> ClaimRequest {
        let config = &self.record.config;
        ClaimRequest {
            request: rand::random(),
            limit: limit.min(BATCH_ITEMS_MAX),
            visibility: config.visibility_timeout,
            class: LeaseClass::for_visibility(self.record.config.visibility_timeout),
            retry: config.retry,
            delivery: config.delivery,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Claimer {
    pub(crate) work: Work,
    pub(crate) breaker: std::sync::Arc<Breaker>,
    pub(crate) to: mpsc::Sender<Vec<Held>>,
}

impl Claimer {
    /// Claims until the stop, then waits for the claims that are under way: what they bring is the
    /// deliverer's to give back.
    pub(crate) async fn run(self, ends: Ends) {
        let mut claims = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = ends.stop.cancelled() => break,
                Some(answered) = claims.next(), if !claims.is_empty() => self.pass_on(answered).await,
                admitted = self.admit() => claims.push(self.claim(admitted)),
            }
        }
        loop {
            tokio::select! {
                biased;
                () = ends.abort.cancelled() => return,
                answered = claims.next() => match answered {
                    Some(answered) => self.pass_on(answered).await,
                    None => return,
                },
            }
        }
    }

    /// Waits until a claim may go. Holds nothing while it waits, so it may be dropped any time.
    async fn admit(&self) -> Admitted {
        loop {
            self.breaker.passable().await;
            self.work.room.available().await;
            self.work.rate.available().await;
            self.work.lane.due(|| self.bounds()).await;
            if let Some(admitted) = self.try_admit() {
                return admitted;
            }
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds { claims: CLAIMS_IN_FLIGHT, permits: self.work.room.most(), patient: true }
    }

    fn try_admit(&self) -> Option<Admitted> {
        let Work { room, rate, lane, .. } = &self.work;
        let taken = lane.take(self.bounds())?;
        let Some(admission) = self.breaker.admit() else {
            lane.put_back(taken);
            return None;
        };
        if let Some(repeat) = &taken.repeat {
            // Those messages may be ours already: nothing is gained by waiting for permits.
            let permits = repeat.limit;
            room.force(permits);
            rate.take(permits);
            lane.reserved(taken.shard.index, permits);
            return Some(Admitted { taken, admission, permits });
        }
        let permits = room.reserve(admission.limit.min(taken.permits));
        let tokens = rate.take(permits);
        room.give_back(permits - tokens, 0);
        if tokens == 0 {
            lane.put_back(taken);
            if admission.probe {
                self.breaker.probe_was_empty();
            }
            return None;
        }
        lane.reserved(taken.shard.index, tokens);
        Some(Admitted { taken, admission, permits: tokens })
    }

    async fn claim(&self, admitted: Admitted) -> (Answer, Admission, usize) {
        let Admitted { taken, admission, permits } = admitted;
        let Work { room, rate, .. } = &self.work;
        let request = taken.repeat.unwrap_or_else(|| self.work.request(permits));
        let stalled = || {
            room.give_back(permits, 0);
            rate.give_back(permits);
            if admission.probe {
                self.breaker.probe_was_empty();
            }
        };
        let (answer, has_stalled) = self.work.ask(taken.shard, request, stalled).await;
        if !has_stalled {
            return (answer, admission, permits);
        }
        // What it brought all the same is ours: nothing is gained by waiting for permits.
        let brought = answer.claim.as_ref().map_or(0, |claim| claim.messages.len());
        room.force(brought);
        rate.take(brought);
        (answer, Admission { probe: false, ..admission }, brought)
    }

    async fn pass_on(&self, (answer, admission, permits): (Answer, Admission, usize)) {
        self.work.note(&answer);
        let claim = answer.claim.unwrap_or_default();
        let brought = claim.messages.len();
        assert!(brought <= permits, "a claim brought more than it asked for");
        self.work.room.give_back(permits - brought, 0);
        self.work.rate.give_back(permits - brought);
        if brought == 0 {
            if admission.probe {
                self.breaker.probe_was_empty();
            }
            return;
        }
        let (record, index) = (&self.work.record, answer.shard.index);
        let held: Vec<Held> = claim
            .messages
            .into_iter()
            .map(|message| Held::new(record, index, claim.now, answer.sent, admission.probe, message))
            .collect();
        self.work.room.hold_bytes(held.iter().map(|held| held.hold.bytes).sum());
        // The deliverer outlives the claimer: it ends when this sender is gone.
        if self.to.send(held).await.is_err() {
            unreachable!("the deliverer takes batches until the claimer has ended");
        }
    }
}
