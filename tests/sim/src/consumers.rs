//! Consumers: claims in all shards in turn; acks, nacks, extends, gives back, refuses for good, holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::store::{Claim, ClaimRequest, ClaimedMessage, Settle, Settled, Settlement};
use duetime_core::{
    ClaimStore as _, Clock as _, Expiry, Receipt, Repeat, RetryPolicy, Score, Shard, Timestamp, max_attempts,
};
use duetime_router::{SettleAnswer, SettleAsk};
use duetime_testkit::at_home::SettledAtHome as _;
use duetime_testkit::claim_request;
use duetime_testkit::history::{Change, Outcome, What, digest};
use tokio::time::Instant;

use crate::clients::Client;
use crate::mutation::Mutation;
use crate::producers::{POISON, SCARCE, SLOW};

/// Attempts a message has.
pub const ATTEMPTS_MAX: u8 = 90;
/// Up to this attempt a consumer may give a message back.
const GIVEN_BACK_MAX: u8 = 20;
/// A nack is for this long: more than a replica is ever behind.
const NACKED_FOR: Duration = Duration::from_secs(2);
/// A message whose delivery had no answer is not claimed again sooner.
const OPEN_FOR: Duration = Duration::from_secs(60);
/// Longest time between two claims of a consumer.
const CLAIMS_APART_MS_MAX: u64 = 240;
/// Longest a consumer holds what it claimed.
const HELD_MS_MAX: u64 = 3_000;

/// How one settlement is asked for: as consumers do, or as the engine.
enum Ask {
    Consumer(SettleAsk),
    Engine(Settlement),
}

impl Client {
    /// A new claim of up to `limit` messages.
    pub fn request(&self, limit: usize, visibility: Duration) -> ClaimRequest {
        let retry = RetryPolicy { max_attempts: ATTEMPTS_MAX, ..RetryPolicy::default() };
        ClaimRequest { request: self.dice().next(), visibility, retry, ..claim_request(limit) }
    }

    /// Claims and settles until `stop`.
    pub async fn consume(self, stop: Arc<AtomicBool>) {
        let mut index = 0;
        while !stop.load(Ordering::Relaxed) {
            self.dice().pause(CLAIMS_APART_MS_MAX).await;
            let Some(record) = self.door().await.catalog.get(&self.topic) else {
                self.dice().pause(500).await;
                continue;
            };
            index = (index + 1) % record.routing.reach();
            let request = self.request(4, Duration::from_millis(self.shared.visibility_ms.load(Ordering::Relaxed)));
            let shard = record.routing.shard(&self.topic, index);
            let upsets = self.shared.upsets.load(Ordering::Relaxed);
            let ahead = self.shared.all_ahead.load(Ordering::Relaxed);
            let sent = self.shared.clock.now();
            let Some(claim) = self.claim(&shard, &request).await else { continue };
            let (since, meanwhile) = (ahead, self.shared.all_ahead.load(Ordering::Relaxed));
            // Odd while all clocks are ahead.
            let ahead = since % 2 == 1 || since != meanwhile;
            if !ahead {
                self.check_deadlines(&claim, &request, sent);
            }
            // Somebody else may have it by now: what comes too late is thrown away, as the engine does.
            for message in &claim.messages {
                let most = request.retry.attempts_of(&message.headers);
                assert!(message.attempt <= most, "I8: {} has attempt {} of {most}", message.id, message.attempt);
            }
            let in_time = |message: &ClaimedMessage| self.shared.clock.now() < message.score.visible_at();
            let held: Vec<_> = claim.messages.into_iter().filter(in_time).collect();
            let has_passed = |message: &ClaimedMessage| Expiry::has_passed(&message.headers, message.due_at, claim.now);
            let (expired, held): (Vec<_>, Vec<_>) = held.into_iter().partition(has_passed);
            for message in &expired {
                self.expire(&shard, message).await;
            }
            // The consumer has all of them from now on, though it works on one after the other.
            held.iter()
                .filter(|message| message.payload != SLOW.as_bytes())
                .for_each(|message| self.hand(message, ahead));
            for message in held.iter().filter(|message| in_time(message)) {
                self.settle(&shard, message, upsets).await;
            }
        }
    }

    /// Checks that a claim holds no longer than it was asked for, also where the claim before it was for longer.
    fn check_deadlines(&self, claim: &Claim, request: &ClaimRequest, sent: Timestamp) {
        for message in &claim.messages {
            let held = message.score.visible_at().since(claim.now);
            // What a claim without an answer took is given to the next one, for as long as the first one asked.
            let unanswered = Duration::from_millis(self.shared.unanswered_ms.load(Ordering::Relaxed));
            let most = request.visibility.max(unanswered) * 2 + Duration::from_secs(3);
            assert!(held <= most, "{} is held for {held:?}, asked was {:?}", message.id, request.visibility);
            // Where an answer was lost, the next claim of the shard is given what the earlier one holds.
            let hidden = message.score.visible_at().since(sent);
            assert!(
                !self.shared.all_answered || hidden >= request.visibility,
                "{} is hidden for {hidden:?} only",
                message.id
            );
        }
    }

    fn hand(&self, message: &ClaimedMessage, ahead: bool) {
        let payload = digest(&message.payload);
        let until_ms = Some(message.score.visible_at().as_millis()).filter(|_| self.shared.deadlines_hold);
        if ahead {
            let at_ms = self.shared.clock.now().as_millis();
            self.shared.excused.lock().insert((message.id.to_string(), at_ms));
        }
        self.note(&message.id, What::Handed { attempt: message.attempt, payload, until_ms });
    }

    /// Ends what was not handed over in time, as the engine does: in one try, for it is claimed anew if that fails. To who
    /// asks it is a cancel.
    async fn expire(&self, shard: &Shard, message: &ClaimedMessage) {
        self.note(&message.id, What::Invoked(Change::Cancel));
        let settle = Settle { id: message.id.clone(), score: message.score, action: Settlement::Expire };
        let settled = self.door().await.routed.settle(shard, self.shared.clock.now(), &[settle]).await;
        match settled {
            // A failover may undo it, as it waits for no replica.
            Ok(settled) if settled[0] == Settled::Ok && self.shared.deadlines_hold => {
                self.answered(&message.id, "cancelled");
            }
            _ => self.note(&message.id, What::Unanswered),
        }
    }

    /// A claim; what one took whose answer was lost is given to the next claim of its node, or is due again.
    pub async fn claim(&self, shard: &Shard, request: &ClaimRequest) -> Option<Claim> {
        let claimed = self.door().await.routed.claim(shard, self.shared.clock.now(), request).await.ok();
        if claimed.is_none() {
            let hidden_ms = u64::try_from(request.visibility.as_millis()).expect("short");
            self.shared.unanswered_ms.fetch_max(hidden_ms, Ordering::Relaxed);
        }
        claimed
    }

    /// The delivery of a message has no answer: it may arrive at any time.
    async fn leave_open(&self, shard: &Shard, message: &ClaimedMessage, upsets: u64) {
        let how = Settlement::Unanswered { wait: OPEN_FOR, charged: self.dice().permille(500) };
        let settle = Settle { id: message.id.clone(), score: message.score, action: how };
        let settled = self.door().await.routed.settle(shard, self.shared.clock.now(), &[settle]).await;
        if settled.is_ok_and(|settled| settled[0] != Settled::Expired) {
            self.shared.unanswered.lock().insert(message.id.clone(), upsets);
        }
    }

    /// A message is removed to be handed out by one consumer alone, but for a failover or a restore that brings it back.
    pub fn hand_out_once(&self, message: &ClaimedMessage) {
        let upsets = self.shared.upsets.load(Ordering::Relaxed);
        let before = self.shared.removed.lock().insert((message.id.clone(), message.nonce.0), upsets);
        let once = before.is_none_or(|before| before != upsets) || !self.shared.deadlines_hold;
        assert!(once, "{} was removed to be handed out, and again", message.id);
        let taken = self.shared.witness.was_taken(&self.topic, &message.id, message.attempt);
        assert!(taken, "{} is said to be removed by a consumer that did not remove it", message.id);
    }

    /// As a node gives it with the message.
    fn receipt(&self, shard: &Shard, message: &ClaimedMessage, score: Score) -> Receipt {
        Receipt::new(&self.topic, shard.index, shard.epoch, message.id.clone(), score)
            .of_attempts(max_attempts::of(&message.headers))
            .of_series(Repeat::is_in(&message.headers))
    }

    async fn settle(&self, shard: &Shard, message: &ClaimedMessage, upsets: u64) {
        if message.payload == SLOW.as_bytes() {
            return self.leave_open(shard, message, upsets).await;
        }
        if self.dice().permille(100) {
            self.dice().pause(HELD_MS_MAX).await;
        }
        let shared = &self.shared;
        let is_ill = |text: &str| message.payload == text.as_bytes() && !shared.healed.lock().contains(&message.id);
        let (poisoned, scarce) = (is_ill(POISON), is_ill(SCARCE));
        let may_give_back = message.attempt < GIVEN_BACK_MAX;
        let (ask, outcome) = match self.dice().below(20) {
            n if scarce && n < 10 => (Ask::Engine(Settlement::Nack(NACKED_FOR)), Outcome::Retry),
            _ if scarce => (Ask::Consumer(SettleAsk::Nack(Some(NACKED_FOR), None)), Outcome::Retry),
            _ if poisoned => (Ask::Engine(Settlement::Bury("refused for good".to_owned())), Outcome::Rejected),
            0..=2 if may_give_back => (Ask::Consumer(SettleAsk::Nack(Some(NACKED_FOR), None)), Outcome::Retry),
            3 if may_give_back => (Ask::Engine(Settlement::Nack(NACKED_FOR)), Outcome::Retry),
            4..=6 => (Ask::Engine(Settlement::Ack), Outcome::Accepted),
            7..=9 => (Ask::Engine(Settlement::Remove), Outcome::Accepted),
            _ => (Ask::Consumer(SettleAsk::Ack), Outcome::Accepted),
        };
        let mut score = message.score;
        if self.dice().permille(100) {
            let longer = Duration::from_millis(shared.visibility_ms.load(Ordering::Relaxed)) + HELD_MS_MAX_EXTRA;
            let receipt = self.receipt(shard, message, score);
            let ask = SettleAsk::Extend(Some(longer));
            match self.door().await.router.settle(&self.topic, vec![(receipt, ask)]).await.pop() {
                Some(Ok((SettleAnswer::Extended(receipt), _))) => score = receipt.score,
                // Whether it was extended is not known: let it run out, which is sooner where the visibility timeout
                // was lowered meanwhile.
                _ => {
                    self.note(&message.id, What::Settled { attempt: message.attempt, outcome: Outcome::Retry });
                    return;
                }
            }
        }
        if outcome == Outcome::Retry {
            // It may be done, and the message claimed again, before its answer is here.
            self.note(&message.id, What::Settled { attempt: message.attempt, outcome });
        }
        // Acks are noted by the master that carries them out.
        let note_refused = || {
            if outcome == Outcome::Rejected {
                self.note(&message.id, What::Settled { attempt: message.attempt, outcome });
            }
        };
        let removes = matches!(ask, Ask::Engine(Settlement::Remove));
        let ask = match ask {
            Ask::Engine(_) if removes && shared.left_out.is_some_and(Mutation::is_removal_by_ack) => {
                Ask::Engine(Settlement::Ack)
            }
            ask => ask,
        };
        let (began, mut repeated) = (Instant::now(), false);
        while began.elapsed() < Duration::from_secs(60) {
            let door = self.door().await;
            let before = door.net.disturbed.load(Ordering::Relaxed);
            let settled = match &ask {
                Ask::Consumer(ask) => {
                    let receipt = self.receipt(shard, message, score);
                    let answer = door.router.settle(&self.topic, vec![(receipt, ask.clone())]).await.pop();
                    answer
                        .and_then(Result::ok)
                        .map(|(answer, _)| matches!(answer, SettleAnswer::Ok | SettleAnswer::Extended(_)))
                }
                Ask::Engine(how) => {
                    let settle = Settle { id: message.id.clone(), score, action: how.clone() };
                    let answer = door.routed.settle(shard, shared.clock.now(), &[settle]).await;
                    answer.ok().map(|settled| settled[0] == Settled::Ok || !removes && settled[0] != Settled::Expired)
                }
            };
            repeated |= door.net.disturbed.load(Ordering::Relaxed) != before;
            let calm = shared.upsets.load(Ordering::Relaxed) == upsets && self.topic.as_str() == crate::world::ORDERS;
            let in_time = shared.clock.now() < score.visible_at();
            match settled {
                Some(true) => {
                    if removes {
                        self.hand_out_once(message);
                    }
                    return note_refused();
                }
                Some(false) => {
                    assert!(repeated || !calm || !in_time, "a valid receipt of {} was refused", message.id);
                    // An earlier try may have done it.
                    if repeated {
                        note_refused();
                    }
                    return;
                }
                None => {
                    repeated = true;
                    self.dice().pause(100).await;
                }
            }
        }
        // What was sent cannot be carried out any more: each call ends with that.
        note_refused();
    }
}

/// An extension is longer than the claim was.
const HELD_MS_MAX_EXTRA: Duration = Duration::from_secs(2);
