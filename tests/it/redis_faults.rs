//! A real redis-server is restarted, stalled, filled up and flushed of its scripts.
//!
//! Each fault meets a small load; at its end every message is checked: delivered once, not early,
//! bit for bit, on its first attempt.

mod full;
mod late;
pub(crate) mod lost;
mod repeats;
pub(crate) mod server;
mod untold;

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{ChangeId, StoreError, StoreHealth as _, TopicStore as _};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::in_time;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::redis_store::documented_rights;

use crate::store_load::{ONE_SERVER, StoreLoad, now};
use server::{ask, connection, durable};

/// A change of the server's state is noticed within this.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

async fn connect(server: &RedisServer) -> Result<Arc<RedisStore>, StoreError> {
    let config = RedisStoreConfig { url: server.url().into(), ..RedisStoreConfig::default() };
    RedisStore::connect(config, Arc::new(Meters::new())).await
}

async fn load_on(server: &RedisServer) -> StoreLoad {
    StoreLoad::start(connect(server).await.unwrap(), &ONE_SERVER).await
}

async fn pause(millis: u64) {
    let_pass(Duration::from_millis(millis), Because::Rate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_every_connection_is_cut_again_and_again() {
    let server = durable(&[]).await;
    let load = load_on(&server).await;
    for _ in 0..10 {
        ask(&server, "CLIENT KILL TYPE normal SKIPME yes").await.unwrap();
        ask(&server, "CLIENT KILL TYPE pubsub").await.unwrap();
        pause(150).await;
    }
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_server_is_killed_and_started_again() {
    let mut server = durable(&[]).await;
    let load = load_on(&server).await;
    server.stop_hard();
    pause(1000).await;
    server.start_again().await;
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_server_forgets_its_scripts() {
    let server = durable(&[]).await;
    let load = load_on(&server).await;
    for _ in 0..20 {
        ask(&server, "SCRIPT FLUSH").await.unwrap();
        pause(50).await;
    }
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_server_loads_its_data() {
    let mut server = durable(&["enable-debug-command yes"]).await;
    ask(&server, "DEBUG POPULATE 2000").await.unwrap();
    ask(&server, "BGREWRITEAOF").await.unwrap();
    let rewriting = async || {
        let info: String = redis::from_redis_value(ask(&server, "INFO persistence").await.unwrap()).unwrap();
        !info.contains("aof_rewrite_in_progress:0")
    };
    while rewriting().await {
        pause(20).await;
    }
    let load = load_on(&server).await;
    server.stop_hard();
    // A millisecond a key, and an ear for callers every few keys: it is caught loading.
    server.configure(&["key-load-delay 1000", "loading-process-events-interval-bytes 1024"]);
    server.launch();
    let caught = async {
        loop {
            let answer = ask(&server, "PING").await;
            if answer.is_err_and(|error| error.to_string().to_lowercase().contains("loading")) {
                return;
            }
            pause(5).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), caught).await.expect("the server is caught loading");
    server.serves().await;
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_server_is_a_read_only_replica() {
    let server = durable(&[]).await;
    let load = load_on(&server).await;
    // Of a primary that is not there: it keeps its data and refuses writes.
    ask(&server, "REPLICAOF 127.0.0.1 1").await.unwrap();
    pause(1500).await;
    ask(&server, "REPLICAOF NO ONE").await.unwrap();
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_new_messages_and_drains_the_old_ones() {
    let server = durable(&[]).await;
    let load = load_on(&server).await;
    pause(2500).await;
    ask(&server, "CONFIG SET maxmemory 1").await.unwrap();
    let is_full = async || (load.refused_full() > 0).then_some(());
    until(NOTICED_WITHIN, "enqueue answers that the server is full", is_full).await;
    let acked = load.acked();
    pause(1500).await;
    until(NOTICED_WITHIN, "claims and acks go on", async || (load.acked() > acked).then_some(())).await;
    ask(&server, "CONFIG SET maxmemory 0").await.unwrap();
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_server_stalls_for_three_seconds() {
    let server = durable(&[]).await;
    let load = load_on(&server).await;
    server.pause();
    pause(3000).await;
    server.resume();
    load.check().await;
}

#[tokio::test]
async fn a_server_that_may_evict_messages_is_refused_with_the_remedy() {
    let server = durable(&["maxmemory-policy allkeys-lru"]).await;
    let error = connect(&server).await.unwrap_err();
    assert!(matches!(error, StoreError::Setup(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("redis-cli CONFIG SET maxmemory-policy noeviction"), "{text}");
}

/// Waits until the store has an issue with these words, or none.
async fn until_issue(store: &RedisStore, words: Option<&str>) {
    let end = tokio::time::Instant::now() + NOTICED_WITHIN;
    loop {
        let told = store.issues();
        match words {
            None if told.is_empty() => return,
            Some(words) if told.iter().any(|issue| issue.contains(words)) => return,
            _ => in_time!(tokio::time::Instant::now() < end, "not noticed in time: {told:?}"),
        }
        pause(50).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_changes_while_it_is_in_use_is_noticed_and_the_node_serves_on() {
    let server = durable(&[]).await;
    let store = connect(&server).await.unwrap();
    let load = StoreLoad::start(store.clone(), &ONE_SERVER).await;
    store.ready().await.unwrap();
    ask(&server, "CONFIG SET maxmemory-policy allkeys-lru").await.unwrap();
    until_issue(&store, Some("redis-cli CONFIG SET maxmemory-policy noeviction")).await;
    store.ready().await.unwrap();
    ask(&server, "CONFIG SET maxmemory-policy noeviction").await.unwrap();
    until_issue(&store, None).await;
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_server_refuses_writes_because_its_disk_fails_and_the_node_is_not_ready() {
    let server = durable(&[]).await;
    let store = connect(&server).await.unwrap();
    let load = StoreLoad::start(store.clone(), &ONE_SERVER).await;
    // A folder where the snapshot is to be: writing it fails, and with it every write (MISCONF).
    let there = server.folder().join("dump.rdb");
    std::fs::create_dir(&there).unwrap();
    let mut connection = connection(&server).await.unwrap();
    let set: redis::RedisResult<()> =
        redis::cmd("CONFIG").arg("SET").arg("save").arg("3600 1").query_async(&mut connection).await;
    set.unwrap();
    ask(&server, "BGSAVE").await.unwrap();
    until_issue(&store, Some("snapshot failed")).await;
    store.ready().await.expect_err("the only server takes no writes");
    let refused = ask(&server, "SET x 1").await.unwrap_err();
    assert_eq!(refused.code(), Some("MISCONF"));
    std::fs::remove_dir(&there).unwrap();
    ask(&server, "BGSAVE").await.unwrap();
    until_issue(&store, None).await;
    store.ready().await.unwrap();
    load.check().await;
}

#[tokio::test]
async fn a_user_who_may_not_ask_for_settings_can_still_work() {
    let server = durable(&[]).await;
    let rights = documented_rights().replace(" +config|get", "");
    ask(&server, &format!("ACL SETUSER ann on >s3cret {rights}")).await.unwrap();
    let url = |password: &str| format!("redis://ann:{password}@127.0.0.1:{}", server.port());
    let meters = || Arc::new(Meters::new());
    StoreLoad::start(crate::store_load::connect(url("s3cret")).await, &ONE_SERVER).await.check().await;
    let config = RedisStoreConfig { url: url("wr0ng").into(), ..RedisStoreConfig::default() };
    let error = RedisStore::connect(config, meters()).await.unwrap_err();
    assert!(matches!(error, StoreError::Setup(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("wr0ng"), "no error carries the password");
}

#[tokio::test]
async fn the_remedy_for_missing_rights_works_as_it_is_written() {
    let server = durable(&[]).await;
    ask(&server, "ACL SETUSER ann on >s3cret ~duetime:topics &duetime:* +@all -@admin -@dangerous +info")
        .await
        .unwrap();
    let url = format!("redis://ann:s3cret@127.0.0.1:{}", server.port());
    let store = crate::store_load::connect(url).await;
    let topic = duetime_core::TopicName::new("bills").unwrap();
    let settings = duetime_core::TopicConfig::default();
    let record = duetime_core::TopicRecord::new(topic, settings, 1, ChangeId(1), now());
    let error = store.put_topic(&record, None).await.unwrap_err().to_string();
    let (_, remedy) = error.split_once("allow it: ").unwrap_or_else(|| panic!("{error}"));
    let remedy = remedy.replace("<user>", "ann").replace("<namespace>", "duetime");
    ask(&server, remedy.trim()).await.unwrap();
    StoreLoad::start(store, &ONE_SERVER).await.check().await;
}

/// Answers INFO and TIME as the test has set and OK to all else.
async fn pretender(version: &'static str, clock_ms: i64) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while let Ok(read @ 1..) = socket.read(&mut buffer).await {
                    let asked = String::from_utf8_lossy(&buffer[..read]).into_owned();
                    let info = format!("redis_version:{version}\r\nmaxmemory_policy:noeviction\r\n");
                    let (seconds, micros) = ((clock_ms / 1000).to_string(), (clock_ms % 1000 * 1000).to_string());
                    // A command begins with the number of its words.
                    let answer: String = asked
                        .split("*")
                        .skip(1)
                        .map(|command| {
                            let is = |word: &str| command.ends_with(&format!("\r\n{word}\r\n"));
                            if is("INFO") && !command.contains("CLIENT") {
                                format!("${}\r\n{info}\r\n", info.len())
                            } else if is("TIME") {
                                format!("*2\r\n${}\r\n{seconds}\r\n${}\r\n{micros}\r\n", seconds.len(), micros.len())
                            } else {
                                "+OK\r\n".to_owned()
                            }
                        })
                        .collect();
                    if socket.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn an_old_server_and_one_with_another_clock_are_refused_with_the_remedy() {
    let refused = async |version, clock_ms| {
        let config = RedisStoreConfig { url: pretender(version, clock_ms).await.into(), ..RedisStoreConfig::default() };
        let error = RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap_err();
        assert!(matches!(error, StoreError::Setup(_)), "{error:?}");
        error.to_string()
    };
    let text = refused("6.0.16", now().as_millis()).await;
    assert!(text.contains("needs 6.2 or later"), "{text}");
    let text = refused("7.0.15", now().as_millis() + 60_000).await;
    assert!(text.contains("set both by NTP"), "{text}");
}
