//! What was promised about each message, and whether it is kept.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use duetime_core::store::{ClaimRequest, Settle, Settled, Settlement};
use duetime_core::{ClaimStore as _, MessageId, RetryPolicy, Timestamp};
use duetime_store_embedded::EmbeddedStore;
use duetime_testkit::{claim_request, promised};
use duetime_tests::crash::FAR;

use super::shards;

/// Ids asked for at once.
const ASKED: usize = 200;

#[derive(Debug, Default)]
struct Promise {
    /// The enqueue was acknowledged.
    taken: bool,
    /// A cancel or an ack was sent.
    ending: bool,
    /// It was acknowledged.
    ended: bool,
    dues: Vec<i64>,
}

#[derive(Debug, Default)]
pub struct Ledger(HashMap<String, Promise>);

impl Ledger {
    /// Reads what a killed process was asked to do. Its last line may be torn.
    pub fn heard(&mut self, said: &str) {
        for line in said.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let mut words = line.trim_end().split(' ');
            let (kind, id) = (words.next().unwrap(), words.next().unwrap());
            promised!(kind != "!", "the store broke its contract: {line}");
            let due = words.next().map(|due| due.parse::<i64>().unwrap());
            let promise = self.0.entry(id.to_owned()).or_default();
            match kind {
                "e" | "r" => promise.dues.push(due.unwrap()),
                "E" => promise.taken = true,
                "R" => promise.dues = vec![due.unwrap()],
                "c" | "a" => promise.ending = true,
                "C" | "A" => promise.ended = true,
                _ => panic!("a line of another kind: {line}"),
            }
        }
    }

    /// Holds the store against every promise, then takes what it has as the truth.
    pub async fn check(&mut self, store: &EmbeddedStore, now: Timestamp) {
        let mut ids: Vec<String> = self.0.keys().cloned().collect();
        ids.sort();
        let mut there = HashMap::new();
        for shard in shards() {
            for asked in ids.chunks(ASKED) {
                let asked: Vec<MessageId> = asked.iter().map(|id| MessageId::new(id).unwrap()).collect();
                for message in store.get(&shard, &asked).await.unwrap().into_iter().flatten() {
                    promised!(message.payload.starts_with(message.id.as_str().as_bytes()), "{} changed", message.id);
                    let due = message.due_at.as_millis();
                    promised!(there.insert(message.id.to_string(), due).is_none(), "{} lives twice", message.id);
                }
            }
        }
        let survey = store.all_counts(&shards(), now).await.unwrap();
        let counted: u64 = survey.iter().map(|s| s.scheduled + s.in_flight + s.dead).sum();
        promised!(counted == there.len() as u64, "{counted} are counted, and {} are there", there.len());
        self.0.retain(|id, promise| {
            let Some(due) = there.get(id) else {
                promised!(!promise.taken || promise.ending, "{id} was acknowledged and is lost: {promise:?}");
                // Checked once more than it was acknowledged; the drain looks for all that came back.
                return false;
            };
            promised!(!promise.ended, "{id} was cancelled or acknowledged and is back: {promise:?}");
            promised!(promise.dues.contains(due), "{id} is due at {due}: {promise:?}");
            *promise = Promise { taken: true, dues: vec![*due], ..Promise::default() };
            true
        });
    }

    /// Claims all there is: exactly what must be there, each once.
    pub async fn drain(&self, store: &EmbeddedStore, now: Timestamp) {
        let now = now.plus(FAR).plus(FAR);
        let mut drained = HashSet::new();
        for shard in shards() {
            for request in 0.. {
                let request = ClaimRequest {
                    request: u64::MAX - request,
                    visibility: Duration::from_secs(60),
                    retry: RetryPolicy { max_attempts: 99, initial: Duration::ZERO, ..RetryPolicy::default() },
                    ..claim_request(256)
                };
                let claim = store.claim(&shard, now, &request).await.unwrap();
                if claim.messages.is_empty() {
                    assert_eq!(claim.due_left, 0);
                    break;
                }
                let ack = |m: &duetime_core::store::ClaimedMessage| {
                    promised!(drained.insert(m.id.to_string()), "{} was claimed twice", m.id);
                    Settle { id: m.id.clone(), score: m.score, action: Settlement::Ack }
                };
                let acks: Vec<Settle> = claim.messages.iter().map(ack).collect();
                let settled = store.settle(&shard, now, &acks).await.unwrap();
                promised!(
                    settled.iter().all(|answer| *answer == Settled::Ok),
                    "an ack in time is refused: {settled:?}"
                );
            }
        }
        let wanted: HashSet<String> = self.0.keys().cloned().collect();
        promised!(drained == wanted, "what is there is claimable, and nothing else: {drained:?}, {wanted:?}");
        let survey = store.all_counts(&shards(), now).await.unwrap();
        promised!(survey.iter().all(|s| s.scheduled + s.in_flight + s.dead + s.due == 0), "{survey:?}");
    }
}
