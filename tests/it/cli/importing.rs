//! `duetime import --from`: what other systems wrote into Redis, and what of it cannot be a message.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use redis::Commands as _;
use serde_json::{Value, json};

use super::{node, to, to_with_input};

const DUE_MS: i64 = 1_924_992_000_000;
/// Commands that read, and those by which the link begins and ends its own connections.
const READING: [&str; 18] = [
    "zscan",
    "hscan",
    "lrange",
    "hmget",
    "get",
    "zcard",
    "hlen",
    "llen",
    "ping",
    "info",
    "time",
    "role",
    "client|info",
    "client|kill",
    "client|setinfo",
    "client|setname",
    "hello",
    "config|resetstat",
];

/// A Redis with the keys that a file beside this one has, whose first line says who wrote them.
pub(super) async fn recorded(name: &str) -> RedisServer {
    let redis = RedisServer::start().await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("it/cli/recorded/{name}.json"));
    let bytes = |value: &Value| value.as_str().unwrap().chars().map(|c| u32::from(c) as u8).collect::<Vec<u8>>();
    let mut client = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    for line in std::fs::read_to_string(file).unwrap().lines().skip(1) {
        let key: Value = serde_json::from_str(line).unwrap();
        let name = bytes(&key["key"]);
        let content = key["content"].as_array().cloned().unwrap_or_default();
        match key["type"].as_str().unwrap() {
            "zset" => content.iter().for_each(|pair| {
                let score: f64 = pair[1].as_str().unwrap().parse().unwrap();
                client.zadd::<_, _, _, ()>(&name, bytes(&pair[0]), score).unwrap();
            }),
            "hash" => content.iter().for_each(|pair| {
                client.hset::<_, _, _, ()>(&name, bytes(&pair[0]), bytes(&pair[1])).unwrap();
            }),
            "list" => content.iter().for_each(|one| client.rpush::<_, _, ()>(&name, bytes(one)).unwrap()),
            _ => client.set::<_, _, ()>(&name, bytes(&key["content"])).unwrap(),
        }
    }
    redis
}

/// Imports, and sees that the source was read only.
fn import(node: &Node, redis: &RedisServer, kind: &str, options: &[&str]) -> super::Said {
    redis.cli(&["config", "resetstat"]);
    let url = redis.url();
    let args = [&["import", "mails", "--from", kind, &url, "--verify", "--json"][..], options].concat();
    let did = to(node, &args);
    let stats = redis.cli(&["info", "commandstats"]);
    let ran = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    let written: Vec<_> = ran.filter(|name| !READING.contains(name)).collect();
    assert!(written.is_empty(), "the source was asked for more than its content: {written:?}");
    did
}

/// The messages of the topic by id, without what its shard says of them.
fn messages(node: &Node) -> BTreeMap<String, Value> {
    let lines = to(node, &["export", "mails"]).done().out;
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.map(|message| (message["id"].as_str().unwrap().to_owned(), message)).collect()
}

async fn topic() -> Node {
    let node = node().await;
    to(&node, &["topic", "create", "mails", "--shards", "2"]).done();
    node
}

fn due(messages: &BTreeMap<String, Value>) -> Vec<i64> {
    let mut due: Vec<i64> = messages.values().map(|message| message["due_at"].as_i64().unwrap()).collect();
    due.sort_unstable();
    due
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_jobs_of_bullmq_keep_ids_due_times_and_data() {
    let (redis, node) = (recorded("bullmq").await, topic().await);
    let did = import(&node, &redis, "bullmq", &["--queue", "mails"]).done().json();
    assert_eq!((&did["tally"]["scheduled"], &did["verified"]["same"]), (&5.into(), &5.into()), "{did}");
    assert_eq!(did["not_delayed"], json!({"waiting": 1}));
    let there = messages(&node);
    assert_eq!(due(&there), (0..5).map(|n| DUE_MS + n * 1_001).collect::<Vec<_>>());
    let mail = &there["mail-3"];
    assert_eq!(mail["payload"], r#"{"to":"user-3","text":"héllo"}"#);
    assert_eq!(mail["headers"], json!({"bullmq-name": "welcome"}));
    assert_eq!(mail["due_at"], DUE_MS + 3_003);
    let again = import(&node, &redis, "bullmq", &["--queue", "mails"]).done().json();
    assert_eq!((&again["tally"]["scheduled"], &again["tally"]["duplicate"]), (&0.into(), &5.into()), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_sidekiq_that_are_scheduled_or_wait_for_a_retry_keep_their_jids() {
    let (redis, node) = (recorded("sidekiq").await, topic().await);
    let did = import(&node, &redis, "sidekiq", &[]).json();
    assert_eq!((&did["tally"]["scheduled"], &did["tally"]["refused"]), (&6.into(), &0.into()), "{did}");
    for (id, message) in messages(&node) {
        let job: Value = serde_json::from_str(message["payload"].as_str().unwrap()).unwrap();
        assert_eq!((job["jid"].as_str(), message["headers"]["sidekiq-class"].as_str()), (Some(&*id), Some("Mail")));
        let n = job["args"][0].as_i64().unwrap();
        // The ninth failed, and its retry has been due since it was recorded.
        assert!(n == 9 || message["due_at"] == DUE_MS + n * 1000 + 250, "{message}");
    }
    let other = topic().await;
    let did = import(&other, &redis, "sidekiq", &["--queue", "other"]).done().json();
    assert_eq!((&did["tally"]["scheduled"], &did["tally"]["left"]), (&0.into(), &6.into()), "{did}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_celery_with_an_eta_are_found_with_their_worker_and_in_their_queue() {
    let (redis, node) = (recorded("celery").await, topic().await);
    let did = import(&node, &redis, "celery-redis", &[]).done().json();
    assert_eq!((&did["tally"]["scheduled"], &did["verified"]["same"]), (&5.into(), &5.into()), "{did}");
    let there = messages(&node);
    assert_eq!(due(&there), (0..5).map(|n| DUE_MS + n * 1_000).collect::<Vec<_>>());
    let body: Value = serde_json::from_str(there["mail-2"]["payload"].as_str().unwrap()).unwrap();
    assert_eq!((&body[0], &there["mail-2"]["headers"]["celery-task"]), (&json!(["user-2"]), &json!("shop.mail")));
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_jobs_of_rq_keep_the_bytes_that_its_serializer_wrote() {
    let (redis, node) = (recorded("rq").await, topic().await);
    let did = import(&node, &redis, "rq", &["--queue", "mails"]).done().json();
    assert_eq!((&did["tally"]["scheduled"], &did["not_delayed"]), (&5.into(), &json!({"queued": 1})), "{did}");
    let there = messages(&node);
    assert_eq!(due(&there), (0..5).map(|n| DUE_MS + n * 1_000).collect::<Vec<_>>());
    let data = STANDARD.decode(there["mail-1"]["payload_base64"].as_str().unwrap()).unwrap();
    let mut client = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    assert_eq!(data, client.hget::<_, _, Vec<u8>>("rq:job:mail-1", "data").unwrap());
    assert_eq!(there["mail-1"]["headers"]["rq-description"], "shop.mail('user-1')");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_from_redis_that_is_killed_at_any_moment_and_given_again_brings_all_and_none_twice() {
    const JOBS: usize = 4_000;
    let (redis, node) = (RedisServer::start().await, topic().await);
    let mut client = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let mut jobs = redis::pipe();
    for n in 0..JOBS {
        jobs.zadd("bull:mails:delayed", format!("mail-{n}"), (DUE_MS + n as i64) * 4_096).ignore();
        jobs.hset_multiple(format!("bull:mails:mail-{n}"), &[("name", "welcome"), ("data", &n.to_string())]).ignore();
    }
    jobs.query::<()>(&mut client).unwrap();
    let url = redis.url();
    let args = ["import", "mails", "--from", "bullmq", &url, "--queue", "mails", "--rate", "3000"];
    for _ in 0..5 {
        let quiet = || std::process::Stdio::null();
        let mut child = super::command(Some(&node), &args).stdout(quiet()).stderr(quiet()).spawn().unwrap();
        let_pass(Duration::from_millis(rand::random_range(100..600)), Because::Fault).await;
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let did = import(&node, &redis, "bullmq", &["--queue", "mails"]).done().json();
    let tally = ["scheduled", "duplicate"].map(|what| did["tally"][what].as_u64().unwrap());
    assert!(tally.iter().all(|count| *count > 0), "no kill came while it was at work: {did}");
    assert_eq!((tally[0] + tally[1], &did["verified"]["same"]), (JOBS as u64, &JOBS.into()), "{did}");
    assert_eq!(to(&node, &["export", "mails"]).done().out.lines().count(), JOBS);
    assert_eq!(due(&messages(&node)), (0..JOBS as i64).map(|n| DUE_MS + n).collect::<Vec<_>>());
}

/// What `SendScheduleMsg` of delayqueue.go writes.
#[tokio::test(flavor = "multi_thread")]
async fn pending_messages_of_delayqueue_are_read_with_and_without_a_hash_tag() {
    let (redis, node) = (RedisServer::start().await, topic().await);
    for (at, base) in ["dp:mails", "{dp:mails}"].iter().enumerate() {
        let (id, due) = (format!("7d3c9a5e-0b0f-4d55-9f3a-00000000000{at}"), (DUE_MS / 1000 + at as i64).to_string());
        redis.cli(&["set", &format!("{base}:msg:{id}"), &format!("payload {at}"), "ex", "100000"]);
        redis.cli(&["hset", &format!("{base}:retry:cnt"), &id, "3"]);
        redis.cli(&["zadd", &format!("{base}:pending"), &due, &id]);
    }
    redis.cli(&["zadd", "dp:mails:pending", "1924992009", "expired"]);
    redis.cli(&["zadd", "dp:mails:unack", "1924992009", "held"]);
    let folder = tempfile::tempdir().unwrap();
    let refused = folder.path().join("refused");
    let options = ["--queue", "mails", "--refused", refused.to_str().unwrap()];
    let did = import(&node, &redis, "hdt3213", &options).refused(1, &["expired: its payload is gone"]).json();
    assert_eq!((&did["tally"]["scheduled"], &did["tally"]["refused"]), (&2.into(), &1.into()), "{did}");
    assert_eq!(did["not_delayed"], json!({"unack": 1}));
    assert!(std::fs::read_to_string(&refused).unwrap().contains("time to live"));
    let there = messages(&node);
    assert_eq!(due(&there), [DUE_MS, DUE_MS + 1_000]);
    assert_eq!(there["7d3c9a5e-0b0f-4d55-9f3a-000000000001"]["payload"], "payload 1");
}

/// What asynq writes for a scheduled task: `asynq.TaskMessage` in protobuf, with the fields 1 to 5 and 8.
#[tokio::test(flavor = "multi_thread")]
async fn scheduled_tasks_of_asynq_keep_id_type_and_payload() {
    let (redis, node) = (RedisServer::start().await, topic().await);
    let mut client = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let field = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, bytes.len() as u8], bytes].concat();
    let id = b"5f2b7f0c-1111-4222-8333-944445555666";
    let parts = [field(1, b"email:welcome"), field(2, b"{\"user\":\xff}"), field(3, id), field(4, b"mails")];
    let task = [parts.concat(), vec![5 << 3, 25, 8 << 3, 0x88, 0x0e]].concat();
    client.hset::<_, _, _, ()>([b"asynq:{mails}:t:", &id[..]].concat(), "msg", task).unwrap();
    client.zadd::<_, _, _, ()>("asynq:{mails}:scheduled", &id[..], DUE_MS / 1000).unwrap();
    client.zadd::<_, _, _, ()>("asynq:{mails}:retry", "gone", DUE_MS / 1000).unwrap();
    client.rpush::<_, _, ()>("asynq:{mails}:pending", "other").unwrap();
    let did = import(&node, &redis, "asynq", &["--queue", "mails"]).refused(1, &["gone: its task is gone"]).json();
    assert_eq!((&did["tally"]["scheduled"], &did["not_delayed"]), (&1.into(), &json!({"pending": 1})), "{did}");
    let there = messages(&node);
    let message = &there[std::str::from_utf8(id).unwrap()];
    assert_eq!((&message["due_at"], &message["headers"]["asynq-type"]), (&DUE_MS.into(), &"email:welcome".into()));
    assert_eq!(message["payload_base64"], STANDARD.encode(b"{\"user\":\xff}"));
}

/// Ids that are no ids here, a payload that lacks, a score that is no time; and more members than one step brings.
#[tokio::test(flavor = "multi_thread")]
async fn a_sorted_set_of_any_ids_is_imported_and_what_cannot_be_is_named_and_written_down() {
    let (redis, node) = (RedisServer::start().await, topic().await);
    let mut client = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let odd: [(&[u8], &str); 4] =
        [(b"a\nb", "pct:a%0Ab"), (b"..", "pct:%2E%2E"), (b"\xff", "pct:%FF"), (b"pct:x", "pct:pct:x")];
    let ids = (0..700).map(|n| format!("t-{n}").into_bytes()).chain(odd.map(|(id, _)| id.to_vec()));
    for (n, id) in ids.enumerate() {
        client.zadd::<_, _, _, ()>("due", &id, DUE_MS + n as i64).unwrap();
        client.hset::<_, _, _, ()>("jobs", &id, format!("job {n}")).unwrap();
    }
    client.zadd::<_, _, _, ()>("due", "lost", DUE_MS).unwrap();
    client.zadd::<_, _, _, ()>("due", "never", "+inf").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str| -> PathBuf { folder.path().join(name) };
    let of = |file: &PathBuf, more: &[&str]| -> Vec<String> {
        let fixed = ["--key", "due", "--payloads", "jobs", "--unit", "ms", "--refused", file.to_str().unwrap()];
        fixed.iter().chain(more).map(|one| (*one).to_owned()).collect()
    };
    let dry = refused("dry");
    let (url, options) = (redis.url(), of(&dry, &["--dry-run"]));
    let args: Vec<&str> =
        ["import", "mails", "--from", "zset", &url].into_iter().chain(options.iter().map(|o| &**o)).collect();
    let said = to(&node, &args).refused(1, &["never: its score is no time", "lost: the hash has no payload"]);
    assert!(said.out.contains("704 would be sent, 0 left, 2 refused; nothing was enqueued"), "{}", said.out);
    assert!(messages(&node).is_empty());

    let real = refused("real");
    let options = of(&real, &["--rate", "100000"]);
    let options: Vec<&str> = options.iter().map(|option| &**option).collect();
    let did = import(&node, &redis, "zset", &options).refused(1, &["never"]).json();
    assert_eq!((&did["tally"]["scheduled"], &did["verified"]["same"]), (&704.into(), &704.into()), "{did}");
    assert_eq!(std::fs::read_to_string(&real).unwrap().lines().count(), 2);
    let there = messages(&node);
    assert_eq!(due(&there), (0..704).map(|n| DUE_MS + n).collect::<Vec<_>>());
    for (n, (_, id)) in (700..).zip(odd) {
        assert_eq!(there[id]["payload"], format!("job {n}"), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_lines_are_written_down_with_the_reason_and_go_in_when_they_are_put_right() {
    let node = node().await;
    to(&node, &["topic", "create", "mails", "--max-payload", "1KiB"]).done();
    let folder = tempfile::tempdir().unwrap();
    let refused = folder.path().join("refused.ndjson");
    let large = "x".repeat(2_000);
    let lines = [
        json!({"id": "good", "delay": "1h", "payload": "a"}).to_string(),
        json!({"id": "large", "due_at": DUE_MS, "payload": large, "headers": {"a": "b"}}).to_string(),
        json!({"due_at": DUE_MS, "payload": "no id"}).to_string(),
        json!({"id": "past", "due_at": 5, "payload": "a"}).to_string(),
        "{".to_owned(),
    ];
    let input = lines.join("\n");
    let dry = to_with_input(&node, &["import", "mails", "--dry-run"], &input).refused(1, &["max_payload", "line 3"]);
    assert!(dry.out.contains("1 would be sent, 0 left, 4 refused"), "{}", dry.out);
    let name = refused.to_str().unwrap();
    let did = to_with_input(&node, &["import", "mails", "-", "--refused", name], &input);
    let did = did.refused(1, &["large: the payload has 2000 bytes", "line 3: a line without an id", "line 4: due_at"]);
    assert!(did.out.contains("1 scheduled, 0 replaced, 0 duplicate, 0 left, 4 refused"), "{}", did.out);
    let written = std::fs::read_to_string(&refused).unwrap();
    let reasons = written.lines().filter(|line| serde_json::from_str::<Value>(line).unwrap()["refused"].is_string());
    assert_eq!(reasons.count(), 4, "{written}");
    let large = written.lines().find(|line| line.contains("\"large\"")).unwrap();
    assert!(large.contains("\"refused\":\"the payload has 2000 bytes"), "{large}");
    to(&node, &["topic", "set", "mails", "--max-payload", "4KiB"]).done();
    let did = to_with_input(&node, &["import", "mails"], large).done();
    assert!(did.out.contains("1 scheduled"), "{}", did.out);
    assert_eq!(messages(&node)["large"]["headers"], json!({"a": "b"}));
}

/// Scores of another unit, a job that is no job, and a list that is none.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_source_has_wrong_is_refused_by_itself_and_a_dry_run_foresees_it() {
    let (redis, node) = (RedisServer::start().await, topic().await);
    let mut client = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    for (n, id) in ["good", "odd", "early"].into_iter().enumerate() {
        let due = if id == "early" { 5_000.0 } else { (DUE_MS + n as i64) as f64 };
        client.zadd::<_, _, _, ()>("bull:q:delayed", id, due * 4_096.0).unwrap();
        client.hset::<_, _, _, ()>(format!("bull:q:{id}"), "data", "{}").unwrap();
    }
    client.del::<_, ()>("bull:q:odd").unwrap();
    client.set::<_, _, ()>("bull:q:odd", "a string").unwrap();
    client.set::<_, _, ()>("bull:q:active", "a string").unwrap();
    let url = redis.url();
    let args = ["import", "mails", "--from", "bullmq", &url, "--queue", "q"];
    let dry = to(&node, &[&args[..], &["--dry-run"]].concat()).refused(1, &["odd: its job has no data", "before 2001"]);
    assert!(dry.out.contains("1 would be sent, 0 left, 2 refused"), "{}", dry.out);
    let did = import(&node, &redis, "bullmq", &["--queue", "q"]).refused(1, &["before 2001"]).json();
    assert_eq!((&did["tally"]["scheduled"], &did["tally"]["refused"]), (&1.into(), &2.into()), "{did}");
    let verified = ["same", "gone", "missing", "refused"].map(|what| did["verified"][what].as_u64().unwrap());
    assert_eq!(verified, [1, 0, 0, 2], "{did}");
    let wrong = ["import", "mails", "--from", "zset", &url, "--key", "bull:q:active"];
    to(&node, &wrong).refused(1, &["bull:q:active is of another type"]);
    let absent = to(&node, &["import", "mails", "--from", "bullmq", &url, "--queue", "another"]).done();
    assert!(absent.err.contains("nothing delayed was found"), "{}", absent.err);
}

/// What JSON makes six times as long, beside messages that are sent meanwhile; and a line that is no message's.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_control_characters_and_an_endless_line_keep_no_other_back() {
    let node = node().await;
    to(&node, &["topic", "create", "mails", "--max-payload", "9MiB"]).done();
    let controls = format!(r#"{{"id":"controls","delay":"1h","payload":"{}"}}"#, "\\u0001".repeat(8 << 20));
    let small = |n: usize| format!(r#"{{"id":"small-{n}","delay":"1h"}}"#);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    std::fs::write(&file, [small(1), controls, "x".repeat(120 << 20), small(2)].join("\n")).unwrap();
    let did = to(&node, &["import", "mails", file.to_str().unwrap()]).refused(1, &["line 3: it has more than"]);
    assert!(did.out.contains("3 scheduled, 0 replaced, 0 duplicate, 0 left, 1 refused"), "{}", did.out);
    assert!(did.err.len() < 2_000, "{} bytes of complaints", did.err.len());
}

/// Compared by the pages of the topic, and one by one where the topic is far larger than what was imported.
#[tokio::test(flavor = "multi_thread")]
async fn verify_finds_what_is_missing_or_another_whether_the_topic_is_read_or_asked() {
    let node = node().await;
    to(&node, &["topic", "create", "mails", "--shards", "3", "--remember", "1h"]).done();
    let folder = tempfile::tempdir().unwrap();
    let line = |n: i64, zone: &str| {
        let message = json!({"id": format!("m-{n}"), "due_at": DUE_MS + n, "payload": "x", "max_attempts": 3,
            "expires": "1h", "headers": {"zone": zone}});
        message.to_string() + "\n"
    };
    let write = |name: &str, ids: std::ops::Range<i64>| {
        let file = folder.path().join(name);
        std::fs::write(&file, ids.map(|n| line(n, "eu")).collect::<String>()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (all, few) = (write("all", 0..1_200), write("few", 0..5));
    let verify = |file: &str| to(&node, &["import", "mails", file, "--verify", "--json"]);
    assert_eq!(verify(&all).done().json()["verified"]["same"], 1_200);
    to(&node, &["cancel", "mails", "m-0"]).done();
    to(&node, &["reschedule", "mails", "m-1", "--delay", "1h"]).done();
    to(&node, &["enqueue", "mails", "--id", "m-2", "--at", &(DUE_MS + 2).to_string(), "--body", "y", "--replace"])
        .done();
    let moved = line(3, "us").replace("\"payload\"", "\"on_conflict\":\"replace\",\"payload\"");
    to_with_input(&node, &["import", "mails"], &moved).done();
    for (file, same) in [(&all, 1_196), (&few, 1)] {
        let other = ["m-1", "m-2", "m-3"].map(|id| format!("{id} has another due time, payload or header"));
        let says = ["m-0 is not in the topic", &other[0], &other[1], &other[2]];
        let did = verify(file).refused(1, &says).json();
        let counts = ["same", "different", "gone", "missing", "refused"].map(|what| did["verified"][what].clone());
        assert_eq!(counts, [same, 3, 0, 1, 0], "{did}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_import_lacks_is_named() {
    let node = topic().await;
    let url = "redis://127.0.0.1:1";
    let says = |args: &[&str], says: &str| {
        to(&node, &[&["import", "mails"], args].concat()).refused(1, &[says]);
    };
    says(&["--from", "sqs", url], "bullmq");
    says(&["--from", "bullmq", "redis://:secret@127.0.0.1:1", "--queue", "q"], "asking redis at 127.0.0.1:1");
    says(&["--from", "bullmq", url], "--queue is missing");
    let [rabbit, beanstalk] = ["amqp://u:secret@127.0.0.1:1/v", "beanstalkd://127.0.0.1:1"];
    says(&["--from", "rabbitmq-dlx", rabbit, "--queue", "q"], "127.0.0.1:1");
    says(&["--from", "beanstalkd", beanstalk, "--tube", "q"], "127.0.0.1:1: the connection");
    says(&["--from", "zset", url], "--key is missing");
    says(&["--from", "bullmq", url, "--queue", "q", "--key", "k"], "--key is not for this kind");
    says(&["--from", "bullmq", "127.0.0.1", "--queue", "q"], "redis://host:port/db");
    says(&["--verify"], "standard input cannot be");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_lines_that_replace_the_last_one_holds_and_one_that_is_too_large_keeps_no_other_out() {
    const ROUNDS: usize = 8;
    let node = topic().await;
    // Each round is a request of its own.
    let line = |n: usize| {
        let (id, round) = (n % 500, n / 500);
        json!({"id": format!("x-{id}"), "due_at": DUE_MS, "payload": round.to_string(), "on_conflict": "replace"})
    };
    let lines: String = (0..500 * ROUNDS).map(|n| format!("{}\n", line(n))).collect();
    to_with_input(&node, &["import", "mails"], &lines).done();
    let (there, last) = (messages(&node), (ROUNDS - 1).to_string());
    assert_eq!(there.len(), 500);
    assert!(there.values().all(|message| message["payload"] == *last), "an earlier line came last");

    let large = json!({"id": "large", "due_at": DUE_MS, "payload": "x".repeat(40 << 20)});
    let small = json!({"id": "small", "due_at": DUE_MS, "payload": "y"});
    let did = to_with_input(&node, &["import", "mails"], &format!("{large}\n{small}\n"));
    let did = did.refused(1, &["large: the payload has", "raise its max_payload"]);
    assert!(did.out.contains("1 scheduled, 0 replaced, 0 duplicate, 0 left, 1 refused"), "{}", did.out);
}
