//! The small Redis against a real one: the same calls of the product's scripts, at the same times, have the same
//! answers and leave the same keys.
//!
//! The calls are those that the product makes on a small Redis: in the suites of its contracts, and in a drawn
//! sequence. Each is made again on both servers, with the server's time as it was then in place of TIME.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use duetime_core::store::{ClaimRequest, DeadAction, Edit, Enqueue, Settle, Settlement};
use duetime_core::{
    ChangeId, Clock, DeliveryMode, Draw, Due, Headers, LeaseClass, MessageId, Nonce, OnConflict, RetryPolicy, Score,
    ShardCount, Store, Timestamp, TopicConfig, TopicName, TopicRecord,
};
use duetime_metrics::Meters;
use duetime_small_redis::{Db, Reply, ScriptCall, Server, SmallRedis, Witness};
use duetime_store_redis::{RedisStore, RedisStoreConfig, Surroundings};
use duetime_testkit::TokioClock;
use duetime_testkit::at_home::{MessagesAtHome as _, SettledAtHome as _};
use duetime_testkit::conformance::{StoreFactory, resize, store};
use duetime_testkit::servers::RedisServer;
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Drawn sequences; `PROPTEST_CASES` asks for more.
const CASES: u32 = 24;
/// Calls of the suites that one run compares at most.
const CALLS_MAX: usize = 20_000;

#[derive(Clone, Debug)]
struct Call {
    text: String,
    now_us: i64,
    keys: Vec<Bytes>,
    args: Vec<Bytes>,
}

impl Call {
    /// The script as it runs at its time, whatever the server's is.
    fn pinned(&self) -> String {
        let (seconds, rest) = (self.now_us.div_euclid(1_000_000), self.now_us.rem_euclid(1_000_000));
        let time = format!("({{'{seconds}', '{rest}'}})");
        self.text.replace("redis.call('TIME')", &time).replace("call('TIME')", &time)
    }

    fn command(&self) -> redis::Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(self.pinned()).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.args) {
            cmd.arg(&part[..]);
        }
        cmd
    }

    /// In no order that is promised.
    fn has_no_order(&self) -> bool {
        self.text.contains("HGETALL")
    }

    /// A cursor is each server's own.
    fn has_cursor(&self) -> bool {
        self.text.contains("ZSCAN")
    }
}

#[derive(Debug, Default)]
struct Calls(Mutex<Vec<Call>>);

impl Witness for Calls {
    fn before(&self, _: &Db, call: &ScriptCall<'_>) {
        let (text, keys, args) =
            (String::from_utf8_lossy(call.text).into_owned(), call.keys.to_vec(), call.args.to_vec());
        let mut calls = self.0.lock();
        if calls.len() < CALLS_MAX {
            calls.push(Call { text, now_us: call.now_us, keys, args });
        }
    }

    fn after(&self, _: &Db, _: &ScriptCall<'_>, _: &Reply) {}
}

/// Stores on one small Redis whose calls are kept.
struct Recorded {
    clock: Arc<TokioClock>,
    server: Arc<Server>,
    calls: Arc<Calls>,
}

impl Recorded {
    fn new() -> Self {
        let clock = TokioClock::at(Timestamp::from_millis(2_000_000_000_000));
        let (shown, calls) = (clock.clone(), Arc::<Calls>::default());
        let server = Server::new("small:6379", move || shown.now().as_millis() * 1000).with_witness(calls.clone());
        Self { clock, server: Arc::new(server), calls }
    }
}

#[async_trait]
impl StoreFactory for Recorded {
    async fn store(&self) -> Arc<dyn Store> {
        let dial = SmallRedis::of(std::slice::from_ref(&self.server));
        let config = RedisStoreConfig {
            url: "redis://small:6379".to_owned().into(),
            surroundings: Surroundings { dial: Some(dial), clock: Some(self.clock.clone()), draw: None },
            ..RedisStoreConfig::default()
        };
        RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}

/// An answer as text; an error by its first word.
fn shown(value: &redis::Value) -> String {
    match value {
        redis::Value::Nil => "nil".to_owned(),
        redis::Value::Int(number) => number.to_string(),
        redis::Value::BulkString(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        redis::Value::SimpleString(text) => text.clone(),
        redis::Value::Okay => "OK".to_owned(),
        redis::Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        redis::Value::ServerError(error) => format!("-{}", error.code()),
        other => format!("{other:?}"),
    }
}

/// The same without an order.
fn sorted(value: &redis::Value) -> String {
    let mut characters: Vec<char> = shown(value).chars().collect();
    characters.sort_unstable();
    characters.into_iter().collect()
}

async fn ask(connection: &mut redis::aio::MultiplexedConnection, cmd: &redis::Cmd) -> redis::Value {
    connection.send_packed_command(cmd).await.expect("the server answers")
}

async fn words(connection: &mut redis::aio::MultiplexedConnection, words: &[&[u8]]) -> redis::Value {
    let mut cmd = redis::Cmd::new();
    for word in words {
        cmd.arg(*word);
    }
    ask(connection, &cmd).await
}

fn list(value: redis::Value) -> Vec<redis::Value> {
    if let redis::Value::Array(items) = value { items } else { panic!("a list was expected: {value:?}") }
}

fn bytes_of(value: &redis::Value) -> Vec<u8> {
    match value {
        redis::Value::BulkString(bytes) => bytes.clone(),
        redis::Value::SimpleString(text) => text.clone().into_bytes(),
        other => panic!("a string was expected: {other:?}"),
    }
}

/// All that a server keeps, by key. What a stream's entries are called is left out.
async fn dump(connection: &mut redis::aio::MultiplexedConnection, keys: &[Vec<u8>]) -> Vec<String> {
    let mut found = Vec::new();
    for key in keys {
        let kind = bytes_of(&words(connection, &[b"TYPE", key]).await);
        let text = match kind.as_slice() {
            b"hash" => {
                let parts = list(words(connection, &[b"HGETALL", key]).await);
                let mut pairs: Vec<String> =
                    parts.chunks(2).map(|pair| format!("{} {}", shown(&pair[0]), shown(&pair[1]))).collect();
                pairs.sort();
                pairs.join(" ")
            }
            b"zset" => shown(&words(connection, &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]).await),
            b"stream" => {
                let entries = list(words(connection, &[b"XRANGE", key, b"-", b"+"]).await);
                entries.into_iter().map(|entry| shown(&list(entry)[1])).collect::<Vec<_>>().join(" ")
            }
            b"none" => String::new(),
            _ => shown(&words(connection, &[b"GET", key]).await),
        };
        found.push(format!("{} {} {text}", key.escape_ascii(), String::from_utf8_lossy(&kind)));
    }
    found
}

/// Makes the calls again on both servers; the first difference.
async fn compare(calls: &[Call], real: &RedisServer) -> Result<usize, String> {
    let client = redis::Client::open(real.url()).unwrap();
    let patient = redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut real = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
    words(&mut real, &[b"FLUSHALL"]).await;
    words(&mut real, &[b"SCRIPT", b"FLUSH"]).await;
    let now_us = calls.first().map_or(0, |call| call.now_us);
    let server = Arc::new(Server::new("again:6379", move || now_us));
    let stream = duetime_small_redis::connect(&server, "here:1", Arc::new(duetime_small_redis::Direct)).unwrap();
    let login = client.get_connection_info().redis_settings();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let made = redis::aio::MultiplexedConnection::new_with_config(login, stream, config).await;
    let (mut small, driver) = made.unwrap();
    let driving = tokio::spawn(driver);
    let mut keys: Vec<Vec<u8>> = calls.iter().flat_map(|call| call.keys.iter().map(|key| key.to_vec())).collect();
    keys.sort();
    keys.dedup();
    for (number, call) in calls.iter().enumerate() {
        let cmd = call.command();
        let (one, other) = (ask(&mut small, &cmd).await, ask(&mut real, &cmd).await);
        let same = match (call.has_cursor(), call.has_no_order()) {
            (true, _) => true,
            (_, true) => sorted(&one) == sorted(&other),
            _ => shown(&one) == shown(&other),
        };
        if !same {
            let (one, other) = (shown(&one), shown(&other));
            return Err(format!("call {number}, {:?}\n{}\nsmall: {one}\n real: {other}", call.args, call.text));
        }
    }
    let (one, other) = (dump(&mut small, &keys).await, dump(&mut real, &keys).await);
    driving.abort();
    match one.iter().zip(&other).find(|(one, other)| one != other) {
        Some((one, other)) => Err(format!("after all:\nsmall: {one}\n real: {other}")),
        None => Ok(calls.len()),
    }
}

/// The calls that `work` makes, in time that is moved.
fn recorded(work: impl AsyncFnOnce(&Recorded)) -> Vec<Call> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let recorded = Recorded::new();
        work(&recorded).await;
        recorded.calls.0.lock().clone()
    })
}

fn real<T>(work: impl AsyncFnOnce(&RedisServer) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = RedisServer::start().await;
        work(&server).await
    })
}

#[test]
fn every_call_of_the_suites_is_answered_as_by_a_real_server() {
    let calls = recorded(async |recorded| {
        store::run_all(recorded).await;
        resize::run_all(recorded).await;
    });
    let compared = real(async |server| compare(&calls, server).await);
    let compared = compared.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(compared > 1_000, "{compared} calls");
}

/// A drawn sequence of operations on few ids.
async fn drawn(recorded: &Recorded, seed: u64, operations: usize) {
    let state = Arc::new(Mutex::new(seed));
    let draw = Draw::new(move || {
        let mut state = state.lock();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 16
    });
    let store = recorded.store().await;
    let config = TopicConfig { shards: ShardCount::Fixed(2), ..TopicConfig::default() };
    let name = TopicName::new("drawn").unwrap();
    let record = store
        .put_topic(&TopicRecord::new(name, config, 1, ChangeId(draw.next()), recorded.clock.now()), None)
        .await
        .unwrap();
    let id = |n: u64| MessageId::new(&format!("id-{n}")).unwrap();
    let mut held: Vec<(u32, MessageId, Score)> = Vec::new();
    for _ in 0..operations {
        let index = u32::try_from(draw.below(2)).unwrap();
        let (shard, now) = (record.routing.shard(&record.name, index), recorded.clock.now());
        match draw.below(7) {
            0 | 1 => {
                let item = |_| Enqueue {
                    id: id(draw.below(12)),
                    due: if draw.below(2) == 0 {
                        Due::At(now)
                    } else {
                        Due::In(Duration::from_millis(draw.below(3_000)))
                    },
                    headers: Headers::default(),
                    payload: vec![b'x'; usize::try_from(draw.below(300)).unwrap()].into(),
                    on_conflict: [OnConflict::Reject, OnConflict::Replace, OnConflict::Earliest, OnConflict::Latest]
                        [usize::try_from(draw.below(4)).unwrap()],
                    nonce: Nonce(draw.below(8)),
                };
                let _ = store.enqueue(&shard, now, &(0..1 + draw.below(9)).map(item).collect::<Vec<_>>()).await;
            }
            2 => {
                let edit = |_| match draw.below(2) {
                    0 => Edit::Cancel(id(draw.below(12))),
                    _ => Edit::Reschedule(id(draw.below(12)), Due::In(Duration::from_millis(draw.below(2_000)))),
                };
                let _ = store.edit(&shard, now, &(0..1 + draw.below(5)).map(edit).collect::<Vec<_>>()).await;
            }
            3 | 4 => {
                let visibility = Duration::from_millis(1 + draw.below(9_000));
                let request = ClaimRequest {
                    request: draw.below(6),
                    limit: usize::try_from(1 + draw.below(6)).unwrap(),
                    visibility,
                    class: LeaseClass::for_visibility(visibility),
                    retry: RetryPolicy { max_attempts: 3, ..RetryPolicy::default() },
                    delivery: if draw.below(6) == 0 { DeliveryMode::AtMostOnce } else { DeliveryMode::AtLeastOnce },
                };
                if let Ok(claim) = store.claim(&shard, now, &request).await {
                    held.extend(claim.messages.into_iter().map(|message| (index, message.id, message.score)));
                }
            }
            5 => {
                let mut batch = Vec::new();
                for _ in 0..1 + draw.below(3) {
                    let Some(at) = held.iter().position(|one| one.0 == index) else { break };
                    let (_, id, score) = held.swap_remove(at);
                    let how = match draw.below(6) {
                        0 | 1 => Settlement::Ack,
                        2 => Settlement::Nack(Duration::from_millis(draw.below(2_000))),
                        3 => Settlement::Release,
                        _ => Settlement::Bury("for a test".to_owned()),
                    };
                    batch.push(Settle { id, score, action: how });
                }
                let _ = store.settle(&shard, now, &batch).await;
            }
            _ => {
                let action = if draw.below(2) == 0 { DeadAction::Redrive } else { DeadAction::Purge };
                let ids: Vec<MessageId> = (0..1 + draw.below(4)).map(|_| id(draw.below(12))).collect();
                let _ = store.resolve_dead_letters(&shard, now, &ids, action).await;
                let _ = store.dead_letters(&shard, None, 10).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(draw.below(1_500))).await;
    }
}

#[test]
fn drawn_calls_are_answered_as_by_a_real_server() {
    real(async |server| {
        let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
        let drawn_seeds = (any::<u64>(), 1..120usize);
        let handle = tokio::runtime::Handle::current();
        let outcome = runner.run(&drawn_seeds, |(seed, operations)| {
            let calls = std::thread::spawn(move || recorded(async |recorded| drawn(recorded, seed, operations).await));
            let calls = calls.join().expect("it runs");
            let compared = tokio::task::block_in_place(|| handle.block_on(compare(&calls, server)));
            compared.map(drop).map_err(TestCaseError::fail)
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}
