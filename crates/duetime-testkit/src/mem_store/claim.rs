//! Claims: what is due, oldest first, hidden from others until its deadline.

use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX, CLOCK_SKEW_MAX};
use duetime_core::store::{Claim, ClaimRequest, ClaimedMessage};
use duetime_core::{DeliveryMode, End, LeaseClass, MessageId, Receipt, Score, StoreError, Timestamp};

use super::shard::{Answered, REQUESTS_KEPT, ShardState};

/// Refuses clocks that are too far apart for a claim or a relative time.
pub(super) fn agree(own: Timestamp, caller: Timestamp) -> Result<(), StoreError> {
    let apart_ms = own.as_millis() - caller.as_millis();
    let is_far = i128::from(apart_ms).unsigned_abs() > CLOCK_SKEW_MAX.as_millis();
    if is_far { Err(StoreError::ClockSkew(apart_ms)) } else { Ok(()) }
}

impl ShardState {
    pub(super) fn claim(
        &mut self,
        own: Timestamp,
        caller: Timestamp,
        request: &ClaimRequest,
    ) -> Result<Claim, StoreError> {
        agree(own, caller)?;
        let (now, later) = (own.min(caller), own.max(caller));
        let mut claim = Claim { now, later, ..Claim::default() };

        if let Some(answered) = self.answered.iter().find(|a| a.request == request.request).cloned() {
            let still_held = answered.held.iter().filter(|(id, score)| self.live.get(id) == Some(score));
            claim.messages =
                still_held.map(|(id, score)| self.claimed(id, *score, score.attempts(), answered.suspect)).collect();
        } else {
            let picked = self.pick(now, request, &mut claim);
            self.hold(request, picked, &mut claim);
        }
        claim.next_due = self.head();
        claim.due_left = self.due(now);
        Ok(claim)
    }

    /// Which messages this claim takes: the longest run of ordinary ones, or of suspects, or one that is claimed alone.
    fn pick(&mut self, now: Timestamp, request: &ClaimRequest, claim: &mut Claim) -> Vec<(MessageId, Score, bool)> {
        let mut picked = Vec::new();
        let mut bytes = 0;
        let last = Score::due_at_most(now);
        let limit = request.limit.min(BATCH_ITEMS_MAX);
        let looked_at: Vec<_> = self.in_order().into_iter().filter(|(score, _)| *score <= last).take(limit).collect();
        for (score, id) in looked_at {
            let attempts = score.attempts();
            let ran_out = score.class().is_held();
            let is_suspect = ran_out || score.class() == LeaseClass::SUSPECT;
            let is_alone = is_suspect && request.retry.suspect_is_alone(attempts);
            if picked.first().is_some_and(|(_, _, suspect)| is_alone || is_suspect != *suspect) {
                break;
            }
            if attempts >= request.retry.max_attempts {
                claim.expired += u64::from(ran_out);
                let how = if is_suspect { "; the last claim ended without a verdict" } else { "" };
                self.bury(&id, attempts, now, &format!("used up its {attempts} attempts{how}"));
                claim.buried += 1;
                continue;
            }
            let Some(size) = self.bodies.get(&id).map(|body| body.encode().len()) else {
                claim.expired += u64::from(ran_out);
                self.bury(&id, attempts, now, "its body is missing in the store");
                claim.buried += 1;
                continue;
            };
            let visible_at = score.visible_at().plus(request.retry.backoff(attempts, 0.0));
            let waits = Score::new(visible_at, LeaseClass::SUSPECT, attempts);
            if ran_out && waits > last {
                claim.expired += 1;
                self.live.insert(id, waits);
                continue;
            }
            bytes += size;
            if bytes > CLAIM_BYTES_MAX && !picked.is_empty() {
                break;
            }
            claim.expired += u64::from(ran_out);
            picked.push((id, score, is_suspect));
            if is_alone {
                break;
            }
        }
        picked
    }

    /// Hides what was picked until the claim's one deadline, or removes it (at most once).
    fn hold(&mut self, request: &ClaimRequest, picked: Vec<(MessageId, Score, bool)>, claim: &mut Claim) {
        if picked.is_empty() {
            return;
        }
        let suspect = picked[0].2;
        let mut held = Vec::new();
        let (deadline, class) = match request.delivery {
            DeliveryMode::AtLeastOnce => self.unique_deadline(claim.later, request.visibility, request.class),
            DeliveryMode::AtMostOnce => (Timestamp::ZERO, request.class),
        };
        for (id, score, _) in picked {
            let attempt = score.attempts() + 1;
            if request.delivery == DeliveryMode::AtMostOnce {
                claim.messages.push(self.claimed(&id, Receipt::SETTLED, attempt, suspect));
                self.end(&id, End::Delivered, Score::from_raw(i64::from(attempt)));
                continue;
            }
            let score = Score::new(deadline, class, attempt);
            self.live.insert(id.clone(), score);
            claim.messages.push(self.claimed(&id, score, attempt, suspect));
            held.push((id, score));
        }
        self.answered.push_back(Answered { request: request.request, suspect, held });
        if self.answered.len() > REQUESTS_KEPT {
            self.answered.pop_front();
        }
    }

    fn claimed(&self, id: &MessageId, score: Score, attempt: u8, suspect: bool) -> ClaimedMessage {
        let body = &self.bodies[id];
        ClaimedMessage {
            id: id.clone(),
            score,
            attempt,
            due_at: body.due_at,
            nonce: body.nonce,
            headers: body.headers.clone(),
            payload: body.payload.clone(),
            suspect,
        }
    }
}
