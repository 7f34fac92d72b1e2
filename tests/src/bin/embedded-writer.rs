//! A process that works on an embedded store until it is killed, and says on stdout what it
//! does: a small letter before a request, the capital once it is acknowledged.
//!
//! `embedded-writer FOLDER SEED NOW_MS`. Lines: `E`nqueue id due, `C`ancel id, `R`eschedule id due,
//! `A`ck id; `!` for an answer that breaks the contract.

use duetime_testkit::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{ClaimRequest, Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled, Settlement};
use duetime_core::{
    ChangeId, ClaimStore as _, Due, MessageId, Nonce, RetryPolicy, RoutingId, Shard, Timestamp, TopicName,
};
use duetime_store_embedded::EmbeddedStore;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{claim_request, plain_message};
use duetime_tests::crash::{Draw, FAR, SHARDS, TOPIC, VISIBILITY};

const PRODUCERS: u64 = 8;
const CONSUMERS: u64 = 4;

/// One write for all lines, so that none is torn by the end.
fn say(kind: char, items: impl IntoIterator<Item = String>) {
    let text: String = items.into_iter().map(|item| format!("{kind} {item}\n")).collect();
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).expect("the parent reads until it has killed us");
}

fn shard(index: u64) -> Shard {
    Shard::new(
        TopicName::new(TOPIC).expect("a good name"),
        (index % SHARDS) as u32,
        RoutingId { epoch: duetime_core::routing::LIFE + 1, change_id: ChangeId(1) },
    )
}

async fn produce(store: Arc<EmbeddedStore>, mut draw: Draw, worker: u64, now: Timestamp) {
    let mut far: Vec<MessageId> = Vec::new();
    // A worker keeps to one shard, so that it finds its messages again.
    let shard = shard(worker);
    for n in 0u64.. {
        let batch: Vec<Enqueue> = (0..1 + draw.below(24))
            .map(|item| {
                let (kind, due) = if draw.below(2) == 0 { ("far", now.plus(FAR)) } else { ("near", now) };
                let id = format!("{kind}-{}-{worker}-{n}-{item}", draw.seed);
                Enqueue {
                    payload: id.repeat(1 + draw.below(8) as usize).into(),
                    nonce: Nonce(draw.next()),
                    ..plain_message(&id, Due::At(due))
                }
            })
            .collect();
        let due = |item: &Enqueue| match item.due {
            Due::At(at) => format!("{} {}", item.id, at.as_millis()),
            Due::In(_) => unreachable!("all are absolute"),
        };
        say('e', batch.iter().map(due));
        let answers = store.enqueue(&shard, now, &batch).await.expect("the store takes messages");
        say('E', batch.iter().map(due));
        let odd = answers.iter().filter(|a| a.outcome != EnqueueOutcome::Scheduled);
        say('!', odd.map(|a| format!("a new message answered {a:?}")));
        far.extend(batch.into_iter().filter(|m| m.id.as_str().starts_with("far")).map(|m| m.id));

        let cancelled: Vec<MessageId> = far.drain(..far.len() / 2).collect();
        let edits: Vec<Edit> = cancelled.iter().cloned().map(Edit::Cancel).collect();
        say('c', cancelled.iter().map(ToString::to_string));
        let answers = store.edit(&shard, now, &edits).await.expect("the store cancels");
        say('C', cancelled.iter().map(ToString::to_string));
        say('!', answers.iter().filter(|a| **a != Edited::Cancelled).map(|a| format!("a cancel answered {a:?}")));

        let due = now.plus(FAR).plus(Duration::from_millis(1 + draw.below(1000)));
        let moved: Vec<MessageId> = far.iter().take(3).cloned().collect();
        let edits: Vec<Edit> = moved.iter().cloned().map(|id| Edit::Reschedule(id, Due::At(due))).collect();
        say('r', moved.iter().map(|id| format!("{id} {}", due.as_millis())));
        let answers = store.edit(&shard, now, &edits).await.expect("the store moves");
        say('R', moved.iter().map(|id| format!("{id} {}", due.as_millis())));
        let odd = answers.iter().filter(|a| **a != Edited::Rescheduled(due));
        say('!', odd.map(|a| format!("a move answered {a:?}")));
    }
}

async fn consume(store: Arc<EmbeddedStore>, mut draw: Draw, now: Timestamp) {
    loop {
        let shard = shard(draw.next());
        let request = ClaimRequest {
            request: draw.next(),
            visibility: VISIBILITY,
            retry: RetryPolicy { max_attempts: 99, initial: Duration::ZERO, ..RetryPolicy::default() },
            ..claim_request(1 + draw.below(32) as usize)
        };
        let claim = store.claim(&shard, now, &request).await.expect("the store gives messages");
        let wrong = claim.messages.iter().filter(|m| !m.payload.starts_with(m.id.as_str().as_bytes()));
        say('!', wrong.map(|m| format!("{} came with another payload", m.id)));
        let early = claim.messages.iter().filter(|m| m.id.as_str().starts_with("far"));
        say('!', early.map(|m| format!("{} came early", m.id)));
        // Some are left to their deadline, as by a consumer that dies.
        let settles: Vec<Settle> = claim
            .messages
            .into_iter()
            .filter(|_| draw.below(5) > 0)
            .map(|m| Settle { id: m.id, score: m.score, action: Settlement::Ack })
            .collect();
        if settles.is_empty() {
            let_pass(Duration::from_millis(1), Because::AskedAgain).await;
            continue;
        }
        say('a', settles.iter().map(|s| s.id.to_string()));
        let answers = store.settle(&shard, now, &settles).await.expect("the store settles");
        say('A', settles.iter().map(|s| s.id.to_string()));
        say('!', answers.iter().filter(|a| **a != Settled::Ok).map(|a| format!("an ack answered {a:?}")));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, seed, now] = &args[..] else { panic!("embedded-writer FOLDER SEED NOW_MS") };
    let seed: u64 = seed.parse().expect("a number");
    let now = Timestamp::from_millis(now.parse().expect("milliseconds"));
    let store = EmbeddedStore::open(Path::new(folder), Default::default()).expect("the folder can be opened");
    let producers = (0..PRODUCERS).map(|n| tokio::spawn(produce(store.clone(), Draw::new(seed, n), n, now)));
    let producers: Vec<_> = producers.collect();
    let consumers = (0..CONSUMERS).map(|n| tokio::spawn(consume(store.clone(), Draw::new(seed, 100 + n), now)));
    for task in producers.into_iter().chain(consumers.collect::<Vec<_>>()) {
        if let Err(error) = task.await {
            say('!', [format!("a worker ended: {error}")]);
        }
    }
}
