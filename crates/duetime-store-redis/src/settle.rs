//! Settles claims, and dead letters.

use duetime_core::limits::{BATCH_ITEMS_MAX, REASON_BYTES_MAX};
use duetime_core::store::{DeadAction, Settle, Settled, Settlement, StoreError};
use duetime_core::{MessageId, Score, Shard, Timestamp};
use duetime_redis::Sending;
use redis::{Cmd, Value};

use crate::claim::Present;
use crate::enqueue::millis;
use crate::keys::wake_stem;
use crate::reply::{int, ints, odd, proves};
use crate::store::RedisStore;

/// The longest beginning of `reason` that is kept.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

/// Adds one settlement's arguments.
pub(crate) fn name(cmd: &mut Cmd, item: &Settle) {
    cmd.arg(item.id.as_str()).arg(item.score.raw());
    match &item.how {
        Settlement::Ack => cmd.arg("a").arg("").arg(""),
        Settlement::Nack(delay) => cmd.arg("n").arg(millis(*delay)).arg(""),
        Settlement::Release => cmd.arg("r").arg("").arg(""),
        Settlement::Extend(visibility, class) => cmd.arg("e").arg(millis(*visibility)).arg(class.digit()),
        Settlement::Bury(reason) => cmd.arg("b").arg(cut(reason)).arg(""),
    };
}

/// Reads one outcome of the settle script.
pub(crate) fn read(outcome: i64) -> Settled {
    match outcome {
        0 => Settled::Expired,
        1 => Settled::Ok,
        score => Settled::Extended(Score::from_raw(score)),
    }
}

impl RedisStore {
    pub(crate) async fn settle_claims(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<Settled>, StoreError> {
        let mut answers = vec![Settled::Expired; batch.len()];
        // A score that no claim can have proves nothing, whatever message happens to have it.
        let proofs: Vec<usize> = (0..batch.len()).filter(|at| proves(batch[*at].score)).collect();
        for part in proofs.chunks(BATCH_ITEMS_MAX) {
            if part.iter().all(|at| batch[*at].how == Settlement::Ack) {
                self.ack(shard, now, batch, part, &mut answers).await?;
            } else {
                self.settle_mixed(shard, now, batch, part, &mut answers).await?;
            }
        }
        Ok(answers)
    }

    async fn ack(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
        part: &[usize],
        answers: &mut [Settled],
    ) -> Result<(), StoreError> {
        let mut order = part.to_vec();
        order.sort_by_key(|at| (batch[*at].score, batch[*at].id.as_str().as_bytes()));
        let claims: Vec<&[usize]> = order.chunk_by(|a, b| batch[*a].score == batch[*b].score).collect();
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            cmd.arg(u8::from(sending.repeated)).arg(claims.len());
            for claim in &claims {
                cmd.arg(batch[claim[0]].score.raw()).arg(claim.len());
                for at in *claim {
                    cmd.arg(batch[*at].id.as_str());
                }
            }
        };
        match self.on_shard("ack messages", &self.scripts.ack, shard, Present::new(now), fill).await? {
            Value::Int(1) => order.iter().for_each(|at| answers[*at] = Settled::Ok),
            list => {
                let done = ints(list)?;
                if done.len() != order.len() {
                    return Err(odd("another number of outcomes than of receipts"));
                }
                for (at, done) in order.iter().zip(done) {
                    answers[*at] = if done == 1 { Settled::Ok } else { Settled::Expired };
                }
            }
        }
        Ok(())
    }

    async fn settle_mixed(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
        part: &[usize],
        answers: &mut [Settled],
    ) -> Result<(), StoreError> {
        let (request, present) = (rand::random::<[u8; 8]>(), Present::new(now));
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            cmd.arg(u8::from(sending.repeated)).arg(&request[..]).arg(present.millis()).arg(part.len());
            part.iter().for_each(|at| name(cmd, &batch[*at]));
        };
        let outcomes = ints(self.on_shard("settle claims", &self.scripts.settle, shard, present, fill).await?)?;
        if outcomes.len() != part.len() {
            return Err(odd("another number of outcomes than of receipts"));
        }
        for (at, outcome) in part.iter().zip(outcomes) {
            answers[*at] = read(outcome);
        }
        Ok(())
    }

    pub(crate) async fn settle_dead_letters(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, StoreError> {
        let mut answers = Vec::with_capacity(ids.len());
        for part in ids.chunks(BATCH_ITEMS_MAX) {
            let fill = |cmd: &mut Cmd, sending: &Sending| self.name_dead(cmd, shard, part, action, sending);
            let done =
                self.on_shard("settle dead letters", &self.scripts.settle_dead, shard, Present::new(now), fill).await?;
            for outcome in crate::reply::array(done)? {
                answers.push(int(&outcome)? == 1);
            }
        }
        Ok(answers)
    }

    /// Adds the arguments of the settle_dead script behind the epoch.
    pub(crate) fn name_dead(
        &self,
        cmd: &mut Cmd,
        shard: &Shard,
        part: &[MessageId],
        action: DeadAction,
        sending: &Sending,
    ) {
        cmd.arg(if action == DeadAction::Redrive { "r" } else { "p" });
        cmd.arg(self.keys.wake_channel()).arg(wake_stem(shard)).arg(u8::from(sending.repeated));
        for id in part {
            cmd.arg(id.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_at_a_letter() {
        assert_eq!(cut("short"), "short");
        let long = "ж".repeat(REASON_BYTES_MAX);
        assert_eq!(cut(&long).len(), REASON_BYTES_MAX);
        assert!(cut(&format!("x{long}")).len() < REASON_BYTES_MAX);
    }
}
