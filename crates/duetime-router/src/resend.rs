//! Dead letters that are redriven in another topic, or with another payload.
//!
//! A letter is scheduled first, under its id, and removed then, if it is still of the same enqueue: whatever ends in
//! between, it is in one of the two topics or in both, and never in none. The enqueue has a nonce that is made from the
//! letter, so one that is repeated schedules nothing twice while the message lives, or is remembered, in its new topic:
//! whoever asks for it refuses a topic that does not remember. A message that came twice all the same has one delivery id.
//!
//! With another payload in the same topic it is one enqueue that replaces the letter.
//!
//! Upstream: the HTTP API. Downstream: the router.

use bytes::Bytes;
use duetime_core::store::{Enqueue, EnqueueOutcome};
use duetime_core::{
    Due, Expiry, MessageId, MessageState, Nonce, OnConflict, Previous, StoredMessage, Timestamp, TopicName,
};

use crate::calls::route::Answers;
use crate::error::RouteError;
use crate::router::Router;

/// Letters whose payloads are in memory at once.
const STEP: usize = 16;

/// Where dead letters go, and as what.
#[derive(Clone, Debug)]
pub struct Resend {
    /// The topic; its own, where they have another payload.
    pub to: TopicName,
    /// What is delivered instead of the letter's payload, which is kept as its [`Previous`].
    pub payload: Option<Bytes>,
    /// The time of death of the letter that is meant: another one of its id is left as it is.
    pub died_at: Option<Timestamp>,
}

/// What became of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resent {
    /// It is scheduled, and its letter is gone.
    Done,
    /// It is scheduled, and its letter was cancelled, purged, redriven, replaced or moved meanwhile, perhaps by a
    /// repetition of this very request: what was asked for then and this may both be delivered.
    Beside,
    /// It is no dead letter.
    Unknown,
    /// It is not the letter that was meant; nothing was done.
    OtherLetter,
    /// The other topic has a message of this id, or remembers it; the letter stays.
    Duplicate,
    /// The other topic takes no payload of more bytes than this; the letter stays.
    TooLarge(u64),
    /// It was to be handed over until a time that has passed; the letter stays.
    Expired,
}

/// Redrives dead letters of `from`, each by itself. An error of one can be repeated, it is safe.
///
/// Cost: two calls for 16 letters of one shard, and one for each letter that leaves its topic.
pub async fn resend(
    router: &Router,
    from: &TopicName,
    ids: &[MessageId],
    how: &Resend,
) -> Vec<Result<Resent, RouteError>> {
    let payload_bytes_max = match router.current_topic(&how.to).await {
        Ok(record) => record.config.max_payload,
        Err(error) => return ids.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut all = Vec::with_capacity(ids.len());
    for some in ids.chunks(STEP) {
        all.extend(step(router, from, some, how, payload_bytes_max).await);
    }
    all
}

async fn step(
    router: &Router,
    from: &TopicName,
    ids: &[MessageId],
    how: &Resend,
    payload_bytes_max: u64,
) -> Answers<Resent> {
    let now = router.dead.now();
    let mut answers = Vec::with_capacity(ids.len());
    let (mut items, mut places) = (Vec::new(), Vec::new());
    for found in router.get(from, ids.to_vec()).await {
        answers.push(found.map(|(_, message)| {
            match message.ok_or(Resent::Unknown).and_then(|one| how.check(one, payload_bytes_max, now)) {
                Ok(letter) => {
                    places.push((answers.len(), (letter.id.clone(), letter.nonce)));
                    items.push(how.enqueue(from, letter, now));
                    Resent::Done
                }
                Err(why) => why,
            }
        }));
    }
    let mut scheduled = Vec::new();
    for ((at, letter), placed) in places.into_iter().zip(router.enqueue(&how.to, items).await) {
        answers[at] = placed.map(|placed| match placed.outcome {
            EnqueueOutcome::ReplacedInFlight => Resent::Beside,
            one if one.is_unchanged() => Resent::Duplicate,
            _ => Resent::Done,
        });
        if matches!(answers[at], Ok(Resent::Done)) {
            scheduled.push((at, letter));
        }
    }
    if how.to != *from {
        remove_letters(router, from, scheduled, &mut answers).await;
    }
    answers
}

/// Removes the letters of what is scheduled in another topic.
async fn remove_letters(
    router: &Router,
    from: &TopicName,
    scheduled: Vec<(usize, (MessageId, Nonce))>,
    answers: &mut Answers<Resent>,
) {
    let (places, letters): (Vec<usize>, Vec<_>) = scheduled.into_iter().unzip();
    let removed = router.dead.move_out(from, letters).await.done;
    for (at, removed) in places.into_iter().zip(removed) {
        match removed {
            Ok(true) => {}
            Ok(false) => answers[at] = Ok(Resent::Beside),
            Err(error) => answers[at] = Err(error),
        }
    }
}

impl Resend {
    /// The message as the dead letter that is meant.
    fn check(&self, message: StoredMessage, payload_bytes_max: u64, now: Timestamp) -> Result<StoredMessage, Resent> {
        if message.state != MessageState::Dead {
            return Err(Resent::Unknown);
        }
        let died_at = message.death.as_ref().map(|death| death.at);
        if self.died_at.is_some() && self.died_at != died_at {
            return Err(Resent::OtherLetter);
        }
        if Expiry::has_passed(&message.headers, now, now) {
            return Err(Resent::Expired);
        }
        let bytes = self.payload.as_ref().unwrap_or(&message.payload).len() as u64;
        if bytes > payload_bytes_max { Err(Resent::TooLarge(payload_bytes_max)) } else { Ok(message) }
    }

    fn enqueue(&self, from: &TopicName, letter: StoredMessage, now: Timestamp) -> Enqueue {
        let died_at = letter.death.as_ref().map_or(0, |death| death.at.as_millis());
        // One that died again is another enqueue.
        let mut cause = format!("{from} {} {died_at} ", letter.id).into_bytes();
        cause.extend(self.payload.iter().flatten());
        let headers = match &self.payload {
            Some(_) => Previous::new(&letter.payload, now).kept_in(&letter.headers),
            None => letter.headers,
        };
        Enqueue {
            id: letter.id,
            due: Due::At(now),
            headers,
            payload: self.payload.clone().unwrap_or(letter.payload),
            on_conflict: if self.to == *from { OnConflict::Replace } else { OnConflict::Reject },
            nonce: letter.nonce.derived(&cause),
        }
    }
}
