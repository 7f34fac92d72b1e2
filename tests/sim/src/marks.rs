//! What the orders of a world have: a watermark, and a bound of what is in flight.
//!
//! The watermark is asked again and again through any node, and judged in the end (I19).
//!
//! Judged by plain messages, those that were enqueued once and never changed: what of them was there before a watermark was
//! asked for, and was due before the answer, was taken out by an ack or a removal by then, as the masters saw it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duetime_core::{Clock as _, MessageId, TopicName};
use duetime_testkit::history::{Change, Event, Outcome, What, digest};
use parking_lot::Mutex;

use crate::clients::Client;
use crate::producers::FLEETING;
use crate::world::ORDERS;

/// Longest time between two looks.
const APART_MS_MAX: u64 = 700;

/// Shards that the orders have at most.
pub const ORDERS_SHARDS_MAX: u32 = 8;
/// So often many orders fall due together, where a bound of what is in flight is to be reached.
pub const CROWDS: u64 = 8;

/// Whether the orders have a watermark in the world of this seed, where nothing else forbids it.
pub fn has_watermark(seed: u64) -> bool {
    seed.is_multiple_of(4) || seed % 8 == 3
}

/// How many orders may be in flight in the world of this seed, where nothing else forbids it. They never have more
/// shards. Every third world is without faults, so it is not that which says it.
pub fn max_in_flight(seed: u64) -> Option<u32> {
    match seed % 5 {
        0 => Some(ORDERS_SHARDS_MAX),
        1 => Some(2),
        3 => Some(4),
        _ => None,
    }
}

/// One question, and its answer.
#[derive(Clone, Copy, Debug)]
struct Ask {
    asked_ms: i64,
    answered_ms: i64,
    /// `None`: it was not answered, and may have been kept.
    at_ms: Option<i64>,
}

/// Every question, one after the other.
#[derive(Debug, Default)]
pub struct Asks(Mutex<Vec<Ask>>);

/// A message that was enqueued once.
#[derive(Debug, Default)]
struct Plain {
    /// How often something was done to it, its enqueue too.
    times: usize,
    made_ms: Option<i64>,
    taken_ms: Option<i64>,
}

impl Client {
    /// Asks for the watermark until `stop`.
    pub async fn ask_watermarks(self, asks: Arc<Asks>, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            self.dice().pause(APART_MS_MAX).await;
            let asked_ms = self.shared.clock.now().as_millis();
            let answer = self.door().await.router.watermarks.read(&self.topic).await;
            let at_ms = answer.ok().map(|found| found.expect("the orders have one").at.as_millis());
            asks.0.lock().push(Ask { asked_ms, answered_ms: self.shared.clock.now().as_millis(), at_ms });
        }
    }
}

impl Asks {
    /// Fails where a watermark went back, or was later than something that was not done.
    pub fn judge(&self, events: &[Event], due: &BTreeMap<(TopicName, MessageId), i64>) {
        let asks = self.0.lock();
        let given: Vec<i64> = asks.iter().filter_map(|ask| ask.at_ms).collect();
        assert!(given.is_sorted(), "I19: a watermark went back");
        let plain = plain(events);
        let ours = due.iter().filter(|((topic, _), _)| topic.as_str() == ORDERS);
        let unchanged = ours.filter_map(|((_, id), due_ms)| Some((id, *due_ms, plain.get(id.as_str())?)));
        for (id, due_ms, plain) in unchanged.filter(|(_, _, plain)| plain.times == 1) {
            let Some(made_ms) = plain.made_ms else { continue };
            let Some(first) = asks.iter().position(|ask| ask.at_ms.is_some_and(|at| at > due_ms)) else { continue };
            // One that was not answered may have been the one that was kept.
            let unanswered = asks[..first].iter().rev().take_while(|ask| ask.at_ms.is_none()).count();
            let (asked_ms, ask) = (asks[first - unanswered].asked_ms, asks[first]);
            let is_done = plain.taken_ms.is_some_and(|taken| taken <= ask.answered_ms);
            assert!(
                made_ms >= asked_ms || is_done,
                "I19: {id} was due at {due_ms}, is there since {made_ms}, and was taken out at {:?}; the watermark that was \
                 asked for at {asked_ms} was {:?} at {}",
                plain.taken_ms,
                ask.at_ms,
                ask.answered_ms
            );
        }
    }
}

fn plain(events: &[Event]) -> BTreeMap<&str, Plain> {
    let mut all: BTreeMap<&str, Plain> = BTreeMap::new();
    for event in events.iter().filter(|event| event.topic == ORDERS) {
        let one = all.entry(&event.id).or_default();
        match &event.what {
            What::Invoked(Change::Enqueue { payload, .. }) if *payload != digest(FLEETING.as_bytes()) => one.times += 1,
            // What expires is taken out by nobody.
            What::Invoked(_) | What::Dead { .. } => one.times += 2,
            What::Answered { outcome } if outcome == "scheduled" => one.made_ms = one.made_ms.or(Some(event.at_ms)),
            What::Answered { .. } => one.times += 1,
            What::Settled { outcome: Outcome::Accepted, .. } => {
                one.taken_ms = one.taken_ms.or(Some(event.at_ms));
            }
            _ => {}
        }
    }
    all
}
