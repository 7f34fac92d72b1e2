//! Very many messages fall due at one millisecond, on a real node: no script keeps Redis from its other
//! callers for long, and each message comes once.

use std::collections::HashSet;
use std::time::Duration;

use duetime_client::{Client, NewMessage};
use duetime_core::{Clock as _, Due, MessageId, Timestamp, TopicName, routing};
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::{WallClock, in_time, promised, violation};
use tokio::time::Instant;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const TOPIC: &str = "orders";
const SHARDS: u32 = 8;
/// Messages that somebody makes for one shard.
const HOT: usize = 1_600;
const BATCH: usize = 2_000;
/// Redis notes a command that takes longer than this.
const SLOW: Duration = Duration::from_millis(10);
/// A process that is not run for a moment looks slow as well: one call of so many may be noted. A script
/// that walked all messages would be noted each time.
const NOTED_OF: usize = 10;
const PATIENCE: Duration = Duration::from_secs(280);
/// From the first enqueue to the common due time, for each message.
const ENQUEUED_IN: Duration = Duration::from_micros(600);

fn count() -> usize {
    if violation::is_long() { 1_000_000 } else { 50_000 }
}

fn config() -> String {
    format!("[topics.{TOPIC}]\nshards = {SHARDS}\nvisibility_timeout = \"5m\"\n")
}

/// Script calls that the server noted as slow.
fn slow_scripts(redis: &RedisServer) -> Vec<Duration> {
    let mut found = Vec::new();
    let text = redis.cli(&["EVAL", SLOW_CALLS, "0"]);
    for line in text.lines().filter(|line| !line.is_empty()) {
        found.push(Duration::from_micros(line.parse().expect("microseconds")));
    }
    found
}

/// How many calls of scripts there were, and how long one takes.
fn script_calls(redis: &RedisServer) -> (usize, Duration) {
    let (mut calls, mut micros) = (0, 0);
    for line in redis.cli(&["INFO", "commandstats"]).lines().filter(|line| line.starts_with("cmdstat_evalsha:")) {
        let number = |name: &str| {
            let found = line.split([':', ',']).find_map(|field| field.strip_prefix(name));
            found.and_then(|text| text.parse::<usize>().ok()).expect("a whole number")
        };
        (calls, micros) = (calls + number("calls="), micros + number("usec="));
    }
    (calls, Duration::from_micros(u64::try_from(micros / calls.max(1)).unwrap()))
}

/// Microseconds of each noted call of a script.
const SLOW_CALLS: &str = "local found = {} \
    for _, entry in ipairs(redis.call('SLOWLOG', 'GET', '1000')) do \
      local name = string.upper(entry[4][1]) \
      if name == 'EVALSHA' or name == 'EVAL' or name == 'FCALL' then found[#found + 1] = tostring(entry[3]) end \
    end \
    return found";

#[tokio::test(flavor = "multi_thread")]
async fn very_many_messages_due_at_one_millisecond_come_once_and_keep_redis_from_nobody() {
    let redis = RedisServer::start().await;
    redis.cli(&["CONFIG", "SET", "slowlog-log-slower-than", &SLOW.as_micros().to_string()]);
    redis.cli(&["CONFIG", "SET", "slowlog-max-len", "1000"]);
    let node = Node::start(PROGRAM, &redis.url(), &config()).await;
    let client = Client::new(&node.url(), None).unwrap();
    let count = count();
    let due = WallClock.now().plus(ENQUEUED_IN * u32::try_from(count).unwrap());
    let due = Timestamp::from_millis(due.as_millis());
    let ids: Vec<usize> = (0..count).collect();
    for part in ids.chunks(BATCH) {
        let new = |n: &usize| NewMessage::new("close the order").id(format!("o-{n}")).due(Due::At(due));
        let answers = client.enqueue_many(TOPIC, &part.iter().map(new).collect::<Vec<_>>()).await.unwrap();
        promised!(answers.iter().all(|answer| answer.done().is_some()), "all are taken");
    }
    let end = Instant::now() + PATIENCE;
    let mut seen = HashSet::with_capacity(count);
    while seen.len() < count {
        in_time!(Instant::now() < end, "{} of {count} came\n{}", seen.len(), node.output());
        let ask = duetime_client::Claim { max: 256, wait: Duration::from_secs(1), ..duetime_client::Claim::default() };
        let claimed = client.claim(TOPIC, &ask).await.unwrap().messages;
        let early = WallClock.now() < due;
        promised!(claimed.is_empty() || !early, "{} came early", claimed.len());
        for message in &claimed {
            promised!(seen.insert(message.id.clone()), "{} came twice", message.id);
        }
        let receipts: Vec<String> = claimed.into_iter().map(|message| message.receipt).collect();
        if !receipts.is_empty() {
            client.ack(TOPIC, &receipts).await.unwrap();
        }
    }
    let told = client.topic(TOPIC).await.unwrap();
    promised!((told.scheduled, told.in_flight, told.dead) == (0, 0, 0), "something is left: {told:?}");
    let slow = slow_scripts(&redis);
    let (calls, mean) = script_calls(&redis);
    println!("{count} messages; {calls} calls of scripts, {mean:?} each; of them {} took long: {slow:?}", slow.len());
    assert!(calls > count / 256, "{calls} calls of scripts");
    in_time!(mean < SLOW / 2, "a script takes {mean:?}");
    in_time!(slow.len() * NOTED_OF <= calls, "{} of {calls} calls took longer than {SLOW:?}: {slow:?}", slow.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_made_for_one_shard_by_what_is_known_of_a_topic_are_spread_all_the_same() {
    let redis = RedisServer::start().await;
    let node = Node::start(PROGRAM, &redis.url(), &config()).await;
    let client = Client::new(&node.url(), None).unwrap();
    // Whoever knows the name, the number of shards and this program, and no more.
    let seed = routing::topic_seed(&TopicName::new(TOPIC).unwrap());
    let meant = |n: &u32| routing::shard_of(&MessageId::new(&n.to_string()).unwrap(), seed, SHARDS) == 0;
    let due = Due::In(Duration::from_secs(3_600));
    let messages: Vec<NewMessage> =
        (0u32..).filter(meant).take(HOT).map(|n| NewMessage::new("x").id(n.to_string()).due(due)).collect();
    client.enqueue_many(TOPIC, &messages).await.unwrap();
    let shards = client.shards(TOPIC).await.unwrap().shards;
    let most = shards.iter().map(|shard| shard.scheduled).max().unwrap();
    let mean = HOT as u64 / u64::from(SHARDS);
    assert!(most < 2 * mean, "one shard of {SHARDS} has {most} of {HOT} messages");
    promised!(shards.iter().map(|shard| shard.scheduled).sum::<u64>() == HOT as u64, "all are there: {shards:?}");
}
