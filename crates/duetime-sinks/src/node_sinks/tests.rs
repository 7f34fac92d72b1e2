//! Sinks that come, change and go while a node runs.

use duetime_testkit::WallClock;
use duetime_testkit::wait::until;
use serde_json::json;

use super::*;

fn sinks(folder: &std::path::Path) -> Arc<NodeSinks> {
    let file = toml::from_str("[audit]\ntype = \"log\"").unwrap();
    let rules = format!("enabled = true\nsecrets = {folder:?}\ntargets = [\"log\", \"nats://*\"]");
    NodeSinks::new(file, toml::from_str(&rules).unwrap(), Arc::new(WallClock), &Namespace::default()).unwrap()
}

fn record(version: u64, config: Value) -> String {
    let Value::Object(config) = config else { panic!() };
    serde_json::to_string(&SinkRecord { version, changed_at_ms: 0, by: None, config }).unwrap()
}

fn bind(sinks: &NodeSinks, name: &str) -> Result<&'static str, String> {
    let sink = SinkRef { name: name.to_owned(), settings: Map::new() };
    let bound = sinks.bind(&TopicName::new("orders").unwrap(), &sink);
    bound.map(|sink| sink.kind()).map_err(|error| error.listing(|_| true))
}

#[tokio::test]
async fn a_sink_that_was_put_comes_changes_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks(folder.path());
    let with = |version| BTreeMap::from([("hook".to_owned(), record(version, json!({"type": "log"})))]);
    assert_eq!(bind(&sinks, "audit"), Ok("log"));
    assert!(bind(&sinks, "hook").unwrap_err().starts_with("no sink is called \"hook\""));
    assert!(sinks.take_in(&with(1)).await);
    assert_eq!((bind(&sinks, "hook"), sinks.generation("audit")), (Ok("log"), 0));
    let first = sinks.generation("hook");
    assert!(!sinks.take_in(&with(1)).await, "it is as it was");
    assert_eq!(sinks.generation("hook"), first);
    assert!(sinks.take_in(&with(2)).await && sinks.generation("hook") > first);
    let names: Vec<(String, bool)> = sinks.all().into_iter().map(|sink| (sink.name, sink.is_of_file)).collect();
    assert_eq!(names, [("audit".to_owned(), true), ("hook".to_owned(), false)]);
    assert!(sinks.take_in(&BTreeMap::new()).await);
    assert!(bind(&sinks, "hook").unwrap_err().contains("configured: audit"), "it is gone");
}

#[tokio::test]
async fn a_sink_whose_secret_is_missing_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks(folder.path());
    let config = json!({"type": "nats", "url": "nats://n.example", "token": {"file": "token"}});
    let records = BTreeMap::from([("hook".to_owned(), record(1, config))]);
    assert!(sinks.take_in(&records).await);
    assert!(bind(&sinks, "hook").unwrap_err().contains("no file \"token\" in its folder of secrets"));
    let before = sinks.generation("hook");
    assert!(!sinks.take_in(&records).await, "nothing is other than before");
    std::fs::write(folder.path().join("token"), "canary").unwrap();
    assert!(sinks.take_in(&records).await && sinks.generation("hook") != before);
    assert_eq!(bind(&sinks, "hook"), Ok("nats"));
    assert!(!format!("{sinks:?}").contains("canary"));
}

#[tokio::test]
async fn a_sink_whose_files_are_slow_to_read_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks(folder.path());
    let text = record(1, json!({"type": "log"}));
    let records = BTreeMap::from(["slow", "well"].map(|name| (name.to_owned(), text.clone())));
    let (read, reads) = std::sync::mpsc::sync_channel::<PutSink>(1);
    let making = tokio::task::spawn_blocking(move || reads.recv().unwrap());
    sinks.under_way.lock().await.insert(("slow".to_owned(), text.clone()), (Instant::now(), making));
    assert!(sinks.take_in(&records).await);
    assert_eq!(bind(&sinks, "well"), Ok("log"));
    assert!(bind(&sinks, "slow").unwrap_err().contains("slow to read"));
    let asked = Instant::now();
    assert!(!sinks.take_in(&records).await && asked.elapsed() < MADE_WITHIN, "it was waited for once");
    read.send(sinks.making.put_sink(text, 9)).unwrap();
    until(TRIED_WITHIN, "it is ready", async || sinks.take_in(&records).await.then_some(())).await;
    assert_eq!(bind(&sinks, "slow"), Ok("log"));
    assert!(sinks.under_way.lock().await.is_empty());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_and_a_name_of_the_file_harm_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks(folder.path());
    let log = || json!({"type": "log", "count_only": true});
    let records = BTreeMap::from([
        ("audit".to_owned(), record(1, log())),
        ("broken".to_owned(), "{".to_owned()),
        ("later".to_owned(), record(1, json!({"type": "pigeon"}))),
        ("well".to_owned(), record(1, log())),
    ]);
    assert!(sinks.take_in(&records).await && !sinks.take_in(&records).await);
    assert_eq!((bind(&sinks, "well"), bind(&sinks, "audit")), (Ok("log"), Ok("log")));
    assert_eq!(sinks.generation("audit"), 0, "that of the file is as it was");
    assert!(bind(&sinks, "broken").unwrap_err().contains("put it again"));
    assert!(bind(&sinks, "later").unwrap_err().contains("unknown type \"pigeon\""));
    let audit = sinks.all().into_iter().find(|sink| sink.name == "audit").unwrap();
    assert!(audit.is_of_file && audit.fault.unwrap().contains("the file of this node has a sink of this name"));
}

#[tokio::test]
async fn a_sink_is_tried_before_it_is_put() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks(folder.path());
    // A port that nobody listens at: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rules = "enabled = true\ntargets = [\"nats://127.0.0.1:*\"]";
    let open =
        NodeSinks::new(BTreeMap::new(), toml::from_str(rules).unwrap(), Arc::new(WallClock), &Namespace::default());
    let config = json!({"type": "nats", "url": format!("nats://127.0.0.1:{port}"), "connect_timeout": "1s"});
    let (open, config) = (open.unwrap(), config.as_object().unwrap().clone());
    assert!(matches!(open.check(&config, &[], true).await, Err(SinkRefusal::Unusable(_))));
    assert_eq!(open.check(&config, &[], false).await, Ok(()));
    assert!(matches!(sinks.check(&config, &[], false).await, Err(SinkRefusal::Invalid { .. })), "its port is another");
    assert_eq!(sinks.check(json!({"type": "log"}).as_object().unwrap(), &[], true).await, Ok(()));
}

#[tokio::test]
async fn a_sink_is_not_put_where_a_topic_could_not_deliver_through_it_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks(folder.path());
    let sink: SinkRef = serde_json::from_value(json!({"name": "hook", "path": "/in"})).unwrap();
    let topics = [(TopicName::new("orders").unwrap(), sink)];
    let config = json!({"type": "log"}).as_object().unwrap().clone();
    let Err(SinkRefusal::Unusable(said)) = sinks.check(&config, &topics, true).await else { panic!() };
    assert!(said.contains("\"orders\"") && said.contains("\"path\""), "{said}");
    assert!(said.contains("put it under a new name"), "{said}");
    assert_eq!(sinks.check(&config, &topics, false).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_had_no_turn_is_not_said_to_be_silent() {
    let folder = tempfile::tempdir().unwrap();
    let sinks = sinks(folder.path());
    let _held = sinks.tries.acquire_many(u32::try_from(TRIES_MAX).unwrap()).await.unwrap();
    let config = json!({"type": "log"});
    let refused = sinks.check(config.as_object().unwrap(), &[], true).await;
    assert!(matches!(&refused, Err(SinkRefusal::Unusable(said)) if said.contains("no turn")), "{refused:?}");
}
