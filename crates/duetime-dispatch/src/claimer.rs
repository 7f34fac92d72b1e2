//! Claims what is due, several shards at once, as much as may be delivered.
//!
//! Upstream: `schedule` says which shard is due. Downstream: `deliverer`. Before each claim it has asked
//! the breaker, the permits and the rate limit. A claim whose answer was lost is repeated under the
//! same name, so that it costs no attempt.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::{Claim, ClaimRequest};
use duetime_core::{DeliveryMode, LeaseClass, StoreError, Timestamp};
use duetime_metrics::Event;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::debug;

use crate::breaker::{Admission, Breaker};
use crate::budget::Permit;
use crate::config::CLAIMS_IN_FLIGHT;
use crate::in_flight::InFlightGuard;
use crate::schedule::Taken;
use crate::server_load::Bounds;
use crate::work::{Claimed, Shutdown, Work, bytes_of};

/// One claim that was admitted: a shard and the permit for what it may bring.
#[derive(Debug)]
struct Admitted {
    taken: Taken,
    admission: Admission,
    permit: Permit,
}

/// One claim that was answered or failed.
#[derive(Debug)]
pub(crate) struct ClaimAnswer {
    pub(crate) taken: Taken,
    pub(crate) request: ClaimRequest,
    pub(crate) sent_at: Timestamp,
    pub(crate) sent: Instant,
    pub(crate) claim: Result<Claim, StoreError>,
    /// Some of what it brought had expired, and was taken out.
    pub(crate) had_expired: bool,
}

impl Work {
    /// Asks the store once. When the answer takes longer than others should wait for what was
    /// reserved, `stalled` gives that back. Answers whether it did.
    pub(crate) async fn ask(
        &self,
        mut taken: Taken,
        request: ClaimRequest,
        stalled: impl FnOnce(),
    ) -> (ClaimAnswer, bool) {
        // From here on it may be done though nobody hears the answer.
        taken.repeat = Some(request.clone());
        let (sent_at, sent) = (self.clock.now(), Instant::now());
        let asked = self.store.claim(&taken.shard, sent_at, &request);
        let (mut claim, has_stalled) = self.schedule.unless_stalled(taken.shard.index, asked, stalled).await;
        let had_expired = match &mut claim {
            Ok(claim) => self.end_expired(&taken.shard, claim).await,
            Err(_) => false,
        };
        (ClaimAnswer { taken, request, sent_at, sent, claim, had_expired }, has_stalled)
    }

    /// Informs schedule, budget, meters and health of an answer; the claim itself is the caller's.
    pub(crate) fn note(&self, answer: &mut ClaimAnswer) {
        match &answer.claim {
            Ok(claim) => {
                self.health.ok();
                self.schedule.answered(&mut answer.taken, answer.sent_at, claim, answer.had_expired);
                let brought = claim.messages.len();
                self.budget.measured(brought, claim.messages.iter().map(bytes_of).sum());
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
                if lost && answer.request.delivery == DeliveryMode::AtMostOnce {
                    self.topic_meters.claims_unanswered.inc();
                }
                self.schedule.failed(&mut answer.taken, lost.then(|| answer.request.clone()));
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
            retry: config.retry.clone(),
            delivery: config.delivery,
        }
    }
}

/// Claims what is due, several shards at once, as much as may be delivered.
#[derive(Debug)]
pub(crate) struct Claimer {
    pub(crate) work: Work,
    pub(crate) breaker: std::sync::Arc<Breaker>,
    pub(crate) to: mpsc::Sender<Vec<Claimed>>,
}

impl Claimer {
    /// Claims until the stop, then waits for the claims that are under way: what they bring is the
    /// deliverer's to give back.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let mut claims = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.stop.cancelled() => break,
                Some(answered) = claims.next(), if !claims.is_empty() => self.pass_on(answered).await,
                admitted = self.admit() => claims.push(self.claim(admitted)),
            }
        }
        loop {
            tokio::select! {
                biased;
                () = shutdown.abort.cancelled() => return,
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
            self.work.budget.available().await;
            self.work.rate.available().await;
            self.work.schedule.due(|| self.bounds()).await;
            if let Some(admitted) = self.try_admit() {
                return admitted;
            }
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds { claims: CLAIMS_IN_FLIGHT, permits: self.work.budget.most(), patient: true }
    }

    fn try_admit(&self) -> Option<Admitted> {
        let Work { budget, rate, schedule, .. } = &self.work;
        let mut taken = schedule.take(self.bounds())?;
        // A claim from before the topic's delivery changed is not repeated.
        taken.repeat.take_if(|repeat| repeat.delivery != self.work.record.config.delivery);
        let Some(admission) = self.breaker.admit() else {
            schedule.put_back(taken);
            return None;
        };
        if let Some(repeat) = &taken.repeat {
            // Those messages may be ours already: nothing is gained by waiting for permits.
            let permit = budget.force(repeat.limit, 0);
            rate.take(repeat.limit);
            schedule.reserved(taken.shard.index, repeat.limit);
            return Some(Admitted { taken, admission, permit });
        }
        let mut permit = budget.reserve(admission.limit.min(taken.permits)).unwrap_or_default();
        let tokens = rate.take(permit.messages());
        if tokens == 0 {
            schedule.put_back(taken);
            if admission.probe {
                self.breaker.probe_was_empty();
            }
            return None;
        }
        drop(permit.split(permit.messages() - tokens, 0));
        schedule.reserved(taken.shard.index, tokens);
        Some(Admitted { taken, admission, permit })
    }

    async fn claim(&self, admitted: Admitted) -> (ClaimAnswer, Admission, Permit) {
        let Admitted { mut taken, admission, mut permit } = admitted;
        let Work { budget, rate, .. } = &self.work;
        let permits = permit.messages();
        let request = taken.repeat.take().unwrap_or_else(|| self.work.request(permits));
        let stalled = || {
            permit.set(0, 0);
            rate.give_back(permits);
            if admission.probe {
                self.breaker.probe_was_empty();
            }
        };
        let (answer, has_stalled) = self.work.ask(taken, request, stalled).await;
        if !has_stalled {
            return (answer, admission, permit);
        }
        // What it brought all the same is ours: nothing is gained by waiting for permits.
        let brought = answer.claim.as_ref().map_or(0, |claim| claim.messages.len());
        rate.take(brought);
        (answer, Admission { probe: false, ..admission }, budget.force(brought, 0))
    }

    async fn pass_on(&self, (mut answer, admission, mut permit): (ClaimAnswer, Admission, Permit)) {
        self.work.note(&mut answer);
        let claim = answer.claim.unwrap_or_default();
        let brought = claim.messages.len();
        assert!(brought <= permit.messages(), "a claim brought more than it asked for");
        self.work.rate.give_back(permit.messages() - brought);
        permit.set(brought, claim.messages.iter().map(bytes_of).sum());
        if brought == 0 {
            if admission.probe {
                self.breaker.probe_was_empty();
            }
            return;
        }
        let (record, index) = (&self.work.record, answer.taken.shard.index);
        let claimed = |message| {
            let part = permit.split(1, bytes_of(&message));
            let guard = InFlightGuard::new(self.work.schedule.clone(), index, part);
            Claimed::new(record, index, (claim.now, claim.later), answer.sent, admission.probe, guard, message)
        };
        let held: Vec<Claimed> = claim.messages.into_iter().map(claimed).collect();
        // The deliverer outlives the claimer, unless it has failed: then they are due again when the claim ends.
        if self.to.send(held).await.is_err() {
            debug!(topic = %record.name, brought, "nobody is there to deliver what was claimed");
        }
    }
}
