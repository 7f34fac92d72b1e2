//! Who pays, over any trace of outages, latencies and settings: the whole engine against a target with a script.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Delivery, RetryPolicy, ShardCount, TopicConfig, Verdict};
use duetime_testkit::violation::is_long;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::time::Instant;

use super::doubles::{TestSink, no_answer, refused, retry, unavailable};
use super::node::{TestNode, ids, ms, secs, with_sink};
use crate::DispatchConfig;

/// What the target answers to all while it is down.
#[derive(Clone, Copy, Debug)]
enum Down {
    Retry,
    Refused,
    NoAnswer,
    Unavailable,
    /// Each of them, in turn.
    All,
}

#[derive(Clone, Debug)]
struct Trace {
    /// Alternating, up first, in milliseconds.
    spans: Vec<u64>,
    down: Down,
    visibility_ms: u64,
    calls_max: usize,
    batch_max: usize,
    max_attempts: u8,
    /// Calls take up to this part of a fifth of the visibility timeout, of 100; and decide within.
    slowness: u64,
    /// When good messages are due, in milliseconds.
    good: Vec<u64>,
    bad: usize,
    seed: u64,
}

impl Trace {
    /// No call is so slow that the claim of its messages runs out.
    fn longest_ms(&self) -> u64 {
        self.visibility_ms / 5 * self.slowness / 100
    }
}

fn traces() -> impl Strategy<Value = Trace> {
    let down = prop_oneof![
        Just(Down::Retry),
        Just(Down::Refused),
        Just(Down::NoAnswer),
        Just(Down::Unavailable),
        Just(Down::All)
    ];
    let target = (proptest::collection::vec(1u64..9_000, 0..9), down, 0u64..=100, any::<u64>());
    let topic = (prop_oneof![Just(400u64), Just(2_000), Just(30_000)], 1usize..5, 1usize..9, 2u8..5);
    (target, topic, proptest::collection::vec(0u64..30_000, 1..60), 0usize..4).prop_map(
        |((spans, down, slowness, seed), (visibility_ms, calls_max, batch_max, max_attempts), good, bad)| Trace {
            spans,
            down,
            visibility_ms,
            calls_max,
            batch_max,
            max_attempts,
            slowness,
            good,
            bad,
            seed,
        },
    )
}

/// What the target saw of one message.
#[derive(Clone, Debug, Default)]
struct Seen {
    outages: BTreeSet<usize>,
    calls: usize,
    accepted: Option<u8>,
}

#[derive(Debug)]
struct ScriptedTarget {
    trace: Trace,
    began: Instant,
    seen: Mutex<BTreeMap<String, Seen>>,
    random: Mutex<u64>,
}

impl ScriptedTarget {
    /// The number of the outage at present.
    fn outage(&self) -> Option<usize> {
        let (at, mut ends) = (self.began.elapsed(), Duration::ZERO);
        for (n, span) in self.trace.spans.iter().enumerate() {
            ends += ms(*span);
            if at < ends {
                return (n % 2 == 1).then_some(n);
            }
        }
        None
    }

    /// Below `most`.
    fn random(&self, most: u64) -> u64 {
        let mut state = self.random.lock();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % most.max(1)
    }

    fn down(&self) -> Verdict {
        match self.trace.down {
            Down::Retry => retry(),
            Down::Refused => refused(),
            Down::NoAnswer => no_answer(),
            Down::Unavailable => unavailable(),
            Down::All => [retry, refused, no_answer, unavailable][self.random(4) as usize](),
        }
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        let took = self.random(self.trace.longest_ms());
        let before = self.random(took);
        tokio::time::sleep(ms(before)).await;
        let outage = self.outage();
        let verdicts = batch.iter().map(|message| {
            let mut seen = self.seen.lock();
            let seen = seen.entry(message.id.to_string()).or_default();
            seen.calls += 1;
            match outage {
                Some(outage) => {
                    seen.outages.insert(outage);
                    self.down()
                }
                None if message.id.as_str().starts_with("bad") => retry(),
                None => {
                    seen.accepted = Some(message.attempt);
                    Verdict::Accepted
                }
            }
        });
        let verdicts = verdicts.collect();
        tokio::time::sleep(ms(took - before)).await;
        verdicts
    }
}

async fn check(trace: Trace) -> Result<(), TestCaseError> {
    let retry = RetryPolicy { max_attempts: trace.max_attempts, initial: ms(100), ..RetryPolicy::default() };
    let shards = ShardCount::Fixed(2);
    let config = TopicConfig { retry, visibility_timeout: ms(trace.visibility_ms), shards, ..with_sink() };
    let sink = TestSink::new(trace.calls_max, trace.batch_max);
    let (seen, random) = (Mutex::default(), Mutex::new(trace.seed));
    let target = Arc::new(ScriptedTarget { trace: trace.clone(), began: Instant::now(), seen, random });
    let scripted = target.clone();
    sink.behave(Box::new(move |batch| {
        let target = scripted.clone();
        Box::pin(async move { target.deliver(&batch).await })
    }));
    let node = TestNode::with(config, sink, DispatchConfig::default()).await;
    node.put_all(&ids("bad", trace.bad), ms(0)).await;
    for (n, due) in trace.good.iter().enumerate() {
        node.put(&format!("good-{n}"), ms(*due)).await;
    }
    node.pass(ms(trace.spans.iter().sum::<u64>().max(30_000))).await;
    // Others are accepted beside the bad ones for as long as those have attempts left, and no more than the sink takes.
    let apart = secs(1).max(ms(trace.longest_ms()));
    for n in 0..200 {
        node.put(&format!("late-{n}"), ms(0)).await;
        node.pass(apart).await;
    }
    let dead: BTreeMap<String, u8> = node.dead().await.into_iter().map(|(id, attempts, _)| (id, attempts)).collect();
    for (id, seen) in target.seen.lock().iter() {
        if id.starts_with("bad") {
            // What cannot be held until others are accepted pays when it fails again.
            prop_assert!(dead.contains_key(id), "{id} never ends: {seen:?}");
            let (most, refuses) = (usize::from(trace.max_attempts), matches!(trace.down, Down::Refused | Down::All));
            let least = if refuses && seen.outages.len() >= 2 { 2 } else { most };
            prop_assert!(seen.calls >= least, "{id} paid too much: {seen:?}");
            continue;
        }
        // What paid for two refusals is a dead letter.
        let refuses = matches!(trace.down, Down::Refused | Down::All);
        let most = if refuses { 2 } else { usize::from(trace.max_attempts) };
        match seen.accepted {
            Some(attempt) => {
                prop_assert!(usize::from(attempt) <= 1 + seen.outages.len(), "{id} paid too much: {seen:?}");
            }
            None => prop_assert!(dead.contains_key(id) && seen.outages.len() >= most, "{id}: {seen:?}"),
        }
    }
    Ok(())
}

/// Traces that are drawn, and in a long run.
const CASES: u32 = 8;
const CASES_LONG: u32 = 24;

fn cases() -> u32 {
    if is_long() { CASES_LONG } else { CASES }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_outage_costs_at_most_one_attempt_and_makes_no_dead_letter_and_a_bad_message_ends(trace in traces()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(check(trace))?;
    }
}
