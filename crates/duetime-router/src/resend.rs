//! Dead letters that are redriven in another topic, or with another payload.
//!
//! In another topic a letter is scheduled first, under its id, and removed then, if it is still the letter that was read:
//! whatever ends in between, it is in one of the two topics or in both, and never in none. The enqueue has a nonce that is
//! made from the letter, so one that is repeated schedules nothing twice while the message lives, or is remembered, in its
//! new topic: whoever asks for it refuses a topic that does not remember. A message that came twice all the same has one
//! delivery id.
//!
//! With another payload in the same topic it is one change of the letter, which its shard carries out only while that is the
//! letter that was read. The nonce of the edited message is made from what the request says of the letter, so a
//! repetition finds what it did.
//!
//! Upstream: the HTTP API. Downstream: the router.

use std::time::Duration;

use bytes::Bytes;
use duetime_core::dead_origin::DeadOrigin;
use duetime_core::store::{DeadChange, DeadEdit, DeadEdited, Enqueue};
use duetime_core::{
    Due, Expiry, Headers, MessageId, MessageState, Nonce, OnConflict, Previous, StoredMessage, Timestamp, TopicName,
    TopicRecord, dead_origin,
};
use duetime_request::RequestDeadline;

use crate::calls::ops::FoundMessage;
use crate::calls::route::Answers;
use crate::error::RouteError;
use crate::router::Router;

/// How long letters that are scheduled in another topic may be removed, also when the time for forwarding is over: the
/// sooner they are, the less depends on what that topic remembers.
const REMOVE_WITHIN: Duration = Duration::from_secs(5);
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
    /// It is scheduled in another topic, and its letter was cancelled, purged, redriven, replaced or moved meanwhile,
    /// perhaps by a repetition of this very request: what was asked for then and this may both be delivered.
    Beside,
    /// An earlier request edited it so; nothing was done.
    Already,
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

/// A letter that was read and is meant.
struct Letter {
    /// Its place among the answers.
    place: usize,
    died_at: Timestamp,
    message: StoredMessage,
}

/// Redrives dead letters of `from`, each by itself; no id twice. An error of one can be repeated, it is safe.
///
/// Cost: two calls for 16 letters of one shard, three where they leave their topic.
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
    let (mut answers, mut letters) = (Vec::with_capacity(ids.len()), Vec::new());
    for (id, found) in ids.iter().zip(router.find(from, ids.to_vec()).await) {
        answers.push(found.map(|(_, found)| match how.check((from, id), found, payload_bytes_max, now) {
            Ok((died_at, mut message)) => {
                if how.to != *from {
                    // Whoever brings it back, or elsewhere, begins anew: it may be forwarded again.
                    message.headers = dead_origin::without(&message.headers);
                }
                letters.push(Letter { place: answers.len(), died_at, message });
                Resent::Done
            }
            Err(why) => why,
        }));
    }
    if how.to == *from {
        edit_letters(router, from, letters, how, &mut answers).await;
    } else {
        let scheduled = schedule_letters(router, from, letters, how, &mut answers).await;
        remove_letters(router, from, scheduled, &mut answers).await;
    }
    answers
}

/// What became of a letter that is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forwarded {
    /// It is scheduled in the other topic, and its letter is gone.
    Done,
    /// Another node forwarded it, or somebody acted on it meanwhile.
    Elsewhere,
    /// It stays where it is, for this reason.
    Stays(&'static str),
}

/// Forwards letters that were just read in `from` to another topic, as a redrive in that topic does: with the nonce that such
/// a redrive would give them, so that whoever repeats it, or does it at the same time, schedules none twice.
///
/// Cost: two calls to the store for each shard of the other topic and of this one.
pub(crate) async fn forward(
    router: &Router,
    from: &TopicName,
    to: &TopicRecord,
    found: Vec<StoredMessage>,
) -> Vec<Result<Forwarded, RouteError>> {
    let how = Resend { to: to.name.clone(), payload: None, died_at: None };
    let (mut kept_back, mut letters) = (Vec::with_capacity(found.len()), Vec::new());
    for mut message in found {
        let place = kept_back.len();
        kept_back.push(match forwardable(from, to, &mut message) {
            Ok(died_at) => {
                letters.push(Letter { place, died_at, message });
                None
            }
            Err(why) => Some(why),
        });
    }
    let mut answers: Answers<Resent> = kept_back.iter().map(|_| Ok(Resent::Done)).collect();
    let scheduled = schedule_letters(router, from, letters, &how, &mut answers).await;
    let removing = remove_letters(router, from, scheduled, &mut answers);
    match RequestDeadline::of_task() {
        Some(deadline) => deadline.renewed(REMOVE_WITHIN).scope(removing).await,
        None => removing.await,
    }
    let of_resent = |resent: Resent| match resent {
        Resent::Done => Forwarded::Done,
        Resent::Duplicate => Forwarded::Stays("that topic has a message of its id, or remembers one"),
        _ => Forwarded::Elsewhere,
    };
    let each = kept_back.into_iter().zip(answers);
    each.map(|(why, answer)| why.map_or_else(|| answer.map(of_resent), |why| Ok(Forwarded::Stays(why)))).collect()
}

/// Makes a letter what is forwarded of it; its time of death, or why it stays.
fn forwardable(from: &TopicName, to: &TopicRecord, message: &mut StoredMessage) -> Result<Timestamp, &'static str> {
    let Some(death) = &message.death else { return Err("it is no dead letter any more") };
    if dead_origin::of(&message.headers).is_some() {
        return Err("it was forwarded once already");
    }
    if message.payload.len() as u64 > to.config.max_payload {
        return Err("it is larger than max_payload of that topic");
    }
    let origin = DeadOrigin { topic: from, death, attempts: message.attempts };
    let Some(headers) = origin.kept_in(&message.headers) else {
        return Err("it has no space for the header that says where it comes from");
    };
    let died_at = death.at;
    message.headers = headers;
    Ok(died_at)
}

/// Has edited messages take the places of their letters.
async fn edit_letters(
    router: &Router,
    from: &TopicName,
    letters: Vec<Letter>,
    how: &Resend,
    answers: &mut Answers<Resent>,
) {
    let now = router.dead.now();
    let places: Vec<usize> = letters.iter().map(|letter| letter.place).collect();
    let edits = letters.into_iter().map(|letter| how.edit(from, letter, now)).collect();
    for (place, edited) in places.into_iter().zip(router.dead.edit(from, edits).await) {
        answers[place] = edited.map(|edited| match edited {
            DeadEdited::Done => Resent::Done,
            DeadEdited::Already => Resent::Already,
            DeadEdited::Changed => Resent::OtherLetter,
            DeadEdited::Unknown => Resent::Unknown,
        });
    }
}

/// Schedules letters in the other topic; those that are scheduled, by their places, with how each is removed.
async fn schedule_letters(
    router: &Router,
    from: &TopicName,
    letters: Vec<Letter>,
    how: &Resend,
    answers: &mut Answers<Resent>,
) -> Vec<(usize, DeadEdit)> {
    let now = router.dead.now();
    let removal = |letter: &Letter| DeadEdit {
        id: letter.message.id.clone(),
        nonce: letter.message.nonce,
        died_at: letter.died_at,
        change: DeadChange::MoveOut,
    };
    let removals: Vec<_> = letters.iter().map(|letter| (letter.place, removal(letter))).collect();
    let items = letters.into_iter().map(|letter| how.enqueue(from, letter, now)).collect();
    let mut scheduled = Vec::new();
    for ((place, removal), placed) in removals.into_iter().zip(router.enqueue(&how.to, items).await) {
        match placed {
            Ok(placed) if placed.outcome.is_unchanged() => answers[place] = Ok(Resent::Duplicate),
            Ok(_) => scheduled.push((place, removal)),
            Err(error) => answers[place] = Err(error),
        }
    }
    scheduled
}

/// Removes the letters of what is scheduled in another topic.
async fn remove_letters(
    router: &Router,
    from: &TopicName,
    scheduled: Vec<(usize, DeadEdit)>,
    answers: &mut Answers<Resent>,
) {
    let (places, removals): (Vec<usize>, Vec<_>) = scheduled.into_iter().unzip();
    for (place, removed) in places.into_iter().zip(router.dead.edit(from, removals).await) {
        match removed {
            Ok(DeadEdited::Done) => {}
            Ok(DeadEdited::Already | DeadEdited::Changed | DeadEdited::Unknown) => answers[place] = Ok(Resent::Beside),
            Err(error) => answers[place] = Err(error),
        }
    }
}

impl Resend {
    /// The message as the dead letter that is meant, with the time of its death.
    fn check(
        &self,
        (from, id): (&TopicName, &MessageId),
        found: FoundMessage,
        payload_bytes_max: u64,
        now: Timestamp,
    ) -> Result<(Timestamp, StoredMessage), Resent> {
        if self.is_done(from, id, &found) {
            return Err(Resent::Already);
        }
        let message = found.map_err(|_| Resent::Unknown)?;
        let Some(died_at) = message.death.as_ref().map(|death| death.at) else { return Err(Resent::Unknown) };
        if self.died_at.is_some_and(|meant| meant != died_at) {
            return Err(Resent::OtherLetter);
        }
        if Expiry::has_passed(&message.headers, now, now) {
            return Err(Resent::Expired);
        }
        let bytes = self.payload.as_ref().unwrap_or(&message.payload).len() as u64;
        if bytes > payload_bytes_max { Err(Resent::TooLarge(payload_bytes_max)) } else { Ok((died_at, message)) }
    }

    /// Whether this very edit was made before: the message of its nonce is there, dead again perhaps, or is remembered.
    /// Where nobody said which letter is meant, that is one which waits with what was asked for.
    fn is_done(&self, from: &TopicName, id: &MessageId, found: &FoundMessage) -> bool {
        if self.to != *from {
            return false;
        }
        match (self.died_at, found) {
            (Some(died_at), Ok(message)) => message.nonce == self.nonce(from, id, died_at),
            (Some(died_at), Err(became)) => became.is_some_and(|one| one.nonce == self.nonce(from, id, died_at)),
            (None, Ok(message)) => {
                let is_edited = Previous::of(&message.headers).is_some();
                message.state != MessageState::Dead && is_edited && Some(&message.payload) == self.payload.as_ref()
            }
            (None, Err(_)) => false,
        }
    }

    /// The nonce of the message that takes the place of the letter which died then.
    fn nonce(&self, from: &TopicName, id: &MessageId, died_at: Timestamp) -> Nonce {
        Nonce(0).derived(&self.cause(from, id, died_at))
    }

    /// What a letter and its edit are: one that died again is another.
    fn cause(&self, from: &TopicName, id: &MessageId, died_at: Timestamp) -> Vec<u8> {
        let mut cause = format!("{from} {id} {} ", died_at.as_millis()).into_bytes();
        cause.extend(self.payload.iter().flatten());
        cause
    }

    /// What is delivered in the place of a letter that has these: edited, it keeps its former payload.
    fn content(&self, headers: Headers, payload: Bytes, now: Timestamp) -> (Headers, Bytes) {
        match &self.payload {
            Some(edited) => (Previous::new(&payload, now).kept_in(&headers), edited.clone()),
            None => (headers, payload),
        }
    }

    fn edit(&self, from: &TopicName, letter: Letter, now: Timestamp) -> DeadEdit {
        let Letter { died_at, message, .. } = letter;
        let nonce = self.nonce(from, &message.id, died_at);
        let (headers, payload) = self.content(message.headers, message.payload, now);
        let change = DeadChange::Rewrite { nonce, headers, payload };
        DeadEdit { id: message.id, nonce: message.nonce, died_at, change }
    }

    fn enqueue(&self, from: &TopicName, letter: Letter, now: Timestamp) -> Enqueue {
        let Letter { died_at, message, .. } = letter;
        let nonce = message.nonce.derived(&self.cause(from, &message.id, died_at));
        let (headers, payload) = self.content(message.headers, message.payload, now);
        Enqueue { id: message.id, due: Due::At(now), headers, payload, on_conflict: OnConflict::Reject, nonce }
    }
}
