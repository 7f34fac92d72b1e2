//! What the masters know and no client does: which acks, cancels and reschedules were carried out, which lives were
//! deleted, and which shards were emptied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use duetime_core::store::Edit;
use duetime_core::{MessageId, TopicName, routing};
use duetime_small_redis::{Db, Reply, ScriptCall, Witness};
use duetime_testkit::history::{Outcome, Recorder, What};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::net::printable;
use crate::scripts::{Kind, kind_of, name_of};
use crate::trace::{About, Trace};
use crate::world::ORDERS;

/// One shard, by topic and index.
type Seat = (String, u32);

/// What one script may do, as seen before it runs.
#[derive(Debug)]
enum Pending {
    Nothing,
    /// Acks: ids and attempts.
    Acks(Vec<(Bytes, u8)>),
    /// Cancels, or reschedules with the scores before.
    Edits(Vec<(Bytes, Option<f64>)>, bool),
    /// A shard with messages, of this life, may be emptied.
    Empties(u64),
}

#[derive(Debug, Default)]
struct Known {
    kinds: BTreeMap<String, (Kind, &'static str)>,
    pending: Option<Pending>,
    deleted: BTreeMap<(String, u64), Instant>,
    emptied: Vec<(Seat, u64, Instant)>,
    /// How many cancels, or reschedules, of a message were carried out.
    edited: BTreeMap<(String, String, bool), u64>,
    /// Messages that acks and removals took out, each with the attempt.
    taken: BTreeSet<(String, String, u8)>,
    /// The scores of what each shard has claimed, as of the last script on it, where there is a bound of what is in
    /// flight.
    claimed: BTreeMap<u32, Vec<f64>>,
    /// More were in flight.
    passed: Option<String>,
}

/// What the masters know and no client does.
#[derive(Debug)]
pub struct Masterwise {
    history: Arc<Recorder>,
    trace: Arc<Trace>,
    known: Mutex<Known>,
    /// How many orders may be in flight.
    max_in_flight: Option<u32>,
}

/// Bytes of one argument that a trace shows.
const ARGUMENT_SHOWN: usize = 48;
/// Arguments that a trace shows.
const ARGUMENTS_SHOWN: usize = 24;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number<T: std::str::FromStr>(bytes: Option<&Bytes>) -> Option<T> {
    std::str::from_utf8(bytes?).ok()?.parse().ok()
}

/// Topic and index in the key of a shard's messages.
fn seat_of(key: &[u8]) -> Option<Seat> {
    let key = text(key);
    let (stem, index) = key.rsplit_once(':')?;
    Some((stem.rsplit_once(':')?.1.to_owned(), index.parse().ok()?))
}

/// Messages, dead letters and frozen ones of a shard.
fn held(db: &Db, keys: &[Bytes]) -> usize {
    let entries = |key: &Bytes| db.size_of(key) - usize::from(db.score_of(key, b"").is_some());
    let frozen = db.size_of(&keys[5]) - usize::from(db.field_of(&keys[5], b"").is_some());
    entries(&keys[0]) + entries(&keys[2]) + frozen
}

impl Masterwise {
    pub fn new(history: Arc<Recorder>, trace: Arc<Trace>, max_in_flight: Option<u32>) -> Arc<Self> {
        Arc::new(Self { history, trace, known: Mutex::default(), max_in_flight })
    }

    /// When there were more orders in flight than may be.
    pub fn passed(&self) -> Option<String> {
        self.known.lock().passed.clone()
    }

    /// Counts what is claimed and has not run out, in all shards of the orders.
    fn count_claims(&self, db: &Db, key: &[u8], index: u32, now_ms: i64) {
        let Some(most) = self.max_in_flight else { return };
        let is_claimed = |score: &f64| score.is_finite() && (1.0..9.0).contains(&(score % 1_000.0 / 100.0).floor());
        let known = &mut *self.known.lock();
        known.claimed.insert(index, db.scores(key).filter(is_claimed).collect());
        #[expect(clippy::cast_precision_loss, reason = "scores are exact")]
        let top = (now_ms * 1_000 + 999) as f64;
        let in_flight = known.claimed.values().flatten().filter(|score| **score > top).count();
        if in_flight > most as usize && known.passed.is_none() {
            let by_shard = &known.claimed;
            known.passed = Some(format!("{in_flight} orders are in flight at {now_ms}, {most} may be: {by_shard:?}"));
        }
    }

    /// Whether an ack or a removal of this attempt took the message out.
    pub fn was_taken(&self, topic: &TopicName, id: &MessageId, attempt: u8) -> bool {
        self.known.lock().taken.contains(&(topic.to_string(), id.to_string(), attempt))
    }

    /// How often such an edit of this message was carried out.
    pub fn times_edited(&self, topic: &TopicName, edit: &Edit) -> u64 {
        let key = (topic.to_string(), id_of(edit).to_string(), cancels(edit));
        self.known.lock().edited.get(&key).copied().unwrap_or(0)
    }

    /// Shards that held messages when they were emptied, and whose life nobody had deleted.
    pub fn emptied(&self) -> Vec<String> {
        let known = self.known.lock();
        let good = |(seat, life, at): &&(Seat, u64, Instant)| {
            known.deleted.get(&(seat.0.clone(), *life)).is_some_and(|noted| noted <= at)
        };
        let bad = known.emptied.iter().filter(|one| !good(one));
        bad.map(|(seat, life, _)| format!("{}:{} of life {life}", seat.0, seat.1)).collect()
    }

    fn kind(&self, call: &ScriptCall<'_>) -> Kind {
        self.named(call).0
    }

    fn named(&self, call: &ScriptCall<'_>) -> (Kind, &'static str) {
        let look = || (kind_of(&text(call.text)), name_of(&text(call.text)));
        *self.known.lock().kinds.entry(call.sha.to_owned()).or_insert_with(look)
    }

    fn note(&self, call: &ScriptCall<'_>, reply: &Reply) {
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        self.trace.note(About::Script, &bytes, || {
            let seat = call.keys.first().map(|key| seat_of(key).map_or_else(|| text(key), |(t, n)| format!("{t}:{n}")));
            let args = call.args.iter().take(ARGUMENTS_SHOWN).map(|arg| printable(arg, ARGUMENT_SHOWN));
            let args: Vec<String> = args.collect();
            let reply = printable(&bytes, 8 * ARGUMENT_SHOWN).replace("\\r\\n", " ");
            format!("{} {} {} [{}] = {reply}", call.from, self.named(call).1, seat.unwrap_or_default(), args.join(" "))
        });
    }
}

pub fn id_of(edit: &Edit) -> &MessageId {
    edit.id()
}

fn cancels(edit: &Edit) -> bool {
    edit.is_cancel()
}

fn acks(db: &Db, call: &ScriptCall<'_>) -> Vec<(Bytes, u8)> {
    let (args, mut found) = (call.args, Vec::new());
    let (mut at, claims) = (3, number::<usize>(args.get(2)).unwrap_or(0));
    for _ in 0..claims {
        let (Some(score), Some(count)) = (number::<f64>(args.get(at)), number::<usize>(args.get(at + 1))) else {
            break;
        };
        let ids = args.get(at + 2..at + 2 + count).unwrap_or_default();
        let mine = ids.iter().filter(|id| db.score_of(&call.keys[0], id) == Some(score));
        found.extend(mine.map(|id| (id.clone(), attempt(score))));
        at += 2 + count;
    }
    found
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "two digits")]
fn attempt(score: f64) -> u8 {
    (score % 100.0) as u8
}

/// Where a script's own second argument is: one further at the home of its ids than at their source.
fn shift(at_source: bool) -> usize {
    if at_source { 4 } else { 0 }
}

impl Witness for Masterwise {
    fn before(&self, db: &Db, call: &ScriptCall<'_>) {
        if call.keys.is_empty() {
            return;
        }
        let (messages, args) = (&call.keys[0], call.args);
        let pending = match self.kind(call) {
            Kind::Ack => Pending::Acks(acks(db, call)),
            Kind::Settle { at_source } => {
                let items = args.get(5 + shift(at_source)..).unwrap_or_default().chunks_exact(5);
                let acks = items.filter(|item| matches!(item[2].as_ref(), b"a" | b"t")).filter_map(|item| {
                    let score = number::<f64>(Some(&item[1]))?;
                    (db.score_of(messages, &item[0]) == Some(score)).then(|| (item[0].clone(), attempt(score)))
                });
                Pending::Acks(acks.collect())
            }
            Kind::Cancel { at_source } => {
                let ids = args.get(5 + shift(at_source)..).unwrap_or_default();
                let score = |id: &Bytes| db.score_of(messages, id).or_else(|| db.score_of(&call.keys[2], id));
                Pending::Edits(
                    ids.iter().map(|id| (id.clone(), score(id))).filter(|one| one.1.is_some()).collect(),
                    true,
                )
            }
            Kind::CancelIf { at_source } => {
                let items = args.get(5 + shift(at_source)..).unwrap_or_default().chunks_exact(3);
                let there = items.map(|item| (item[0].clone(), db.score_of(messages, &item[0])));
                Pending::Edits(there.filter(|one| one.1.is_some()).collect(), true)
            }
            Kind::Reschedule { at_source } => {
                let items = args.get(7 + shift(at_source)..).unwrap_or_default().chunks_exact(3);
                Pending::Edits(items.map(|item| (item[0].clone(), db.score_of(messages, &item[0]))).collect(), false)
            }
            Kind::Makes if call.keys.len() >= 7 && held(db, call.keys) > 0 => {
                Pending::Empties(number(db.field_of(&call.keys[4], b"epoch")).map_or(0, routing::life_of))
            }
            Kind::TopicSwap | Kind::Makes | Kind::Other => Pending::Nothing,
        };
        self.known.lock().pending = Some(pending);
    }

    fn after(&self, db: &Db, call: &ScriptCall<'_>, reply: &Reply) {
        self.note(call, reply);
        if call.keys.is_empty() {
            return;
        }
        let pending = self.known.lock().pending.take();
        if self.kind(call) == Kind::TopicSwap
            && *reply == Reply::Int(1)
            && let Some(life) = number::<u64>(call.args.get(6))
        {
            let topic = text(&call.args[0]);
            self.known.lock().deleted.entry((topic, life)).or_insert_with(Instant::now);
        }
        let Some((topic, index)) = seat_of(&call.keys[0]) else { return };
        if topic == ORDERS {
            self.count_claims(db, &call.keys[0], index, self.history.now().as_millis());
        }
        match pending {
            Some(Pending::Acks(acks)) => {
                for (id, attempt) in acks.iter().filter(|(id, _)| db.score_of(&call.keys[0], id).is_none()) {
                    self.known.lock().taken.insert((topic.clone(), text(id), *attempt));
                    let what = What::Settled { attempt: *attempt, outcome: Outcome::Accepted };
                    self.history.note(&topic, &text(id), what);
                }
            }
            Some(Pending::Edits(edits, cancelled)) => {
                for (id, before) in edits {
                    let live = db.score_of(&call.keys[0], &id);
                    let done = match cancelled {
                        true => live.is_none() && db.score_of(&call.keys[2], &id).is_none(),
                        false => before.is_some() && live != before,
                    };
                    if done {
                        *self.known.lock().edited.entry((topic.clone(), text(&id), cancelled)).or_default() += 1;
                    }
                }
            }
            Some(Pending::Empties(life)) if held(db, call.keys) == 0 => {
                self.known.lock().emptied.push(((topic, index), life, Instant::now()));
            }
            _ => {}
        }
    }
}
