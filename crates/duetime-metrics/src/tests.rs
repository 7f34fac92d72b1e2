//! What is served.

use duetime_core::Timestamp;

use super::*;
use crate::table::Kind;

#[test]
fn every_row_of_the_table_is_served_and_a_forgotten_topic_is_gone() {
    let meters = Meters::new();
    let topic = TopicName::new("orders").unwrap();
    meters.topic(&topic).count(Event::Scheduled, 3);
    meters.topic(&topic).set_sink(Some("shop"));
    meters.store_call("claim", Duration::from_millis(1));
    meters.store_call("next_due", Duration::from_millis(1));
    meters.store_issue(StoreIssue::Disk, 1);
    let sink = meters.sink("shop", "http");
    sink.call(Duration::from_millis(1));
    sink.errors("retry", 1);
    let shard = |index| ShardBacklog { index, due: 2, oldest_age_s: f64::from(index) };
    meters.shard_backlogs(&topic, vec![shard(0)]);
    meters.nodes_serving("solo", 1);
    meters.ownership_up("solo", true);
    meters.loop_started("timer");
    meters.in_flight_budget(1, 1).set(1, 1);
    meters.shard_refusal("lost");
    meters.shards_lost(&topic, 1);
    meters.topic_issues("vanished", 0);
    meters.topic(&topic).cancels(CancelVerdict::InFlight, 2);
    meters.request("/v1/topics", "GET", 200, Duration::from_millis(3));
    meters.auth_refused("token_unknown");
    meters.auth_refused("unknown_topic");
    meters.build_info(["0.1.0", "1234567890ab", "none"], "embedded", "solo");
    meters.store_bytes("a:1", 7, Some(9));
    meters.topic(&topic).forecast([1, 2, 3, 4]);
    meters.certificate_ends("node.tls.cert", 1_800_000_000);
    meters.spans().exported.inc();
    let text = meters.render();
    for row in table::TABLE {
        assert!(text.contains(&format!("# HELP {} ", row.name)), "{} is not served", row.name);
    }
    assert!(text.contains("duetime_sink_errors_total{kind=\"retry\",sink=\"shop\",type=\"http\"} 1"));
    assert!(text.contains("duetime_sink_errors_total{kind=\"rejected\",sink=\"shop\",type=\"http\"} 0"));
    assert!(text.contains("duetime_breaker_opens_total{topic=\"orders\"} 0"));
    assert!(text.contains("duetime_breaker_open_seconds_total{topic=\"orders\"} 0"));
    for row in table::TABLE.iter().filter(|row| row.kind == Kind::Gauge && row.name != "duetime_build_info") {
        let says = ["sum over nodes", "Sum over nodes", "max over nodes", "min over nodes", "Look at each node"];
        assert!(says.iter().any(|word| row.help.contains(word)), "{}: how do nodes add up?", row.name);
    }
    for line in [
        "duetime_messages_total{event=\"scheduled\",topic=\"orders\"} 3",
        "duetime_cancels_total{topic=\"orders\",verdict=\"in_flight\"} 2",
        "duetime_store_call_seconds_count{op=\"next_due\"} 1",
        "duetime_cancels_total{topic=\"orders\",verdict=\"unknown\"} 0",
        "duetime_http_request_seconds_count{method=\"GET\",route=\"/v1/topics\"} 1",
        "duetime_auth_refused_total{reason=\"token_unknown\"} 1",
        "duetime_auth_refused_total{reason=\"forbidden\"} 0",
        "duetime_forecast{topic=\"orders\",within=\"1h\"} 3",
        "duetime_capacity{topic=\"orders\"} 0",
        "duetime_store_limit_bytes{server=\"a:1\"} 9",
        "duetime_build_info{commit=\"1234567890ab\",features=\"none\",mode=\"solo\",store=\"embedded\",version=\"0.1.0\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("unknown_topic"));
    meters.shard_backlogs(&topic, (0..100).map(shard).collect());
    let text = meters.render();
    assert_eq!(text.matches("duetime_shard_due{").count(), SHARD_SERIES_MAX + 1);
    assert!(text.contains("duetime_shard_oldest_due_age_seconds{shard=\"99\",topic=\"orders\"} 99"));
    assert!(text.contains("duetime_shard_due{shard=\"rest\",topic=\"orders\"} 136"), "{text}");
    assert!(!text.contains("shard=\"0\""), "what is not shown by itself any more is gone");
    meters.forget_topic(&topic);
    meters.shard_backlogs(&topic, vec![shard(0)]);
    assert!(!meters.render().contains("orders"));
}

#[test]
fn a_breaker_is_served_with_the_name_of_the_sink_that_the_topic_has_now() {
    let meters = Meters::new();
    let topic = TopicName::new("orders").unwrap();
    let of_breaker = |meters: &Meters| -> Vec<String> {
        let text = meters.render();
        text.lines().filter(|line| line.starts_with("duetime_breaker_open{")).map(str::to_owned).collect()
    };
    let orders = meters.topic(&topic);
    assert_eq!(of_breaker(&meters), [""; 0], "consumers claim from it");
    orders.set_sink(Some("shop"));
    orders.breaker_open.set(1);
    orders.set_sink(Some("shop"));
    assert_eq!(of_breaker(&meters), [r#"duetime_breaker_open{sink="shop",topic="orders"} 1"#]);
    orders.set_sink(Some("mail"));
    assert_eq!(of_breaker(&meters), [r#"duetime_breaker_open{sink="mail",topic="orders"} 0"#]);
    meters.forget_topic(&topic);
    assert_eq!(of_breaker(&meters), [""; 0]);
}

#[test]
fn a_thousand_topics_have_as_many_series_as_the_limit_and_the_others_are_summed_up() {
    let meters = Meters::new();
    let name = |n: usize| TopicName::new(&format!("topic-{n}")).unwrap();
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let fill = |n: usize| {
        let topic = meters.topic(&name(n));
        topic.count(Event::Scheduled, 2);
        topic.lateness.observe(0.1);
        topic.scheduled.set(3);
        topic.oldest_due_age.set(n as f64);
        topic.set_sink(Some("shop"));
        topic.breaker_open.set(i64::from(n == 700));
        topic.retry_later(Timestamp::from_millis(0), Duration::from_secs(60), 1);
        meters.shards_lost(&name(n), usize::from(n == 800));
        let shard = |index| ShardBacklog { index, due: 5, oldest_age_s: f64::from(index) };
        meters.shard_backlogs(&name(n), (0..4).map(shard).collect());
    };
    (0..TOPIC_SERIES_MAX).for_each(fill);
    let at_limit = series(&meters.render());
    (TOPIC_SERIES_MAX..1_000).for_each(fill);
    meters.retries_due(Timestamp::from_millis(1_000));
    let text = meters.render();
    let others = 1_000 - TOPIC_SERIES_MAX;
    let of_one = at_limit.div_ceil(TOPIC_SERIES_MAX);
    assert!(series(&text) <= at_limit + of_one, "{} series for {at_limit} at the limit", series(&text));
    assert!(text.len() < 6_000_000, "{} bytes", text.len());
    for line in [
        format!("duetime_messages_total{{event=\"scheduled\",topic=\"(rest)\"}} {}", 2 * others),
        format!("duetime_lateness_seconds_count{{topic=\"(rest)\"}} {others}"),
        format!("duetime_scheduled{{topic=\"(rest)\"}} {}", 3 * others),
        format!("duetime_shard_due{{shard=\"rest\",topic=\"(rest)\"}} {}", 20 * others),
        format!("duetime_retries_waiting{{topic=\"(rest)\"}} {others}"),
        "duetime_oldest_due_age_seconds{topic=\"(rest)\"} 999".to_owned(),
        "duetime_breaker_open{sink=\"shop\",topic=\"(rest)\"} 1".to_owned(),
        "duetime_breaker_open{sink=\"shop\",topic=\"topic-0\"} 0".to_owned(),
        "duetime_shards_lost{topic=\"(rest)\"} 1".to_owned(),
        "duetime_scheduled{topic=\"topic-0\"} 3".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}");
    }
    for row in table::TABLE.iter().filter(|row| row.labels.contains(&"topic")) {
        let series =
            if matches!(row.kind, Kind::Histogram(_)) { format!("{}_count", row.name) } else { row.name.to_owned() };
        let of_row = |line: &&str| line.starts_with(&format!("{series}{{"));
        assert!(text.lines().filter(of_row).any(|line| line.contains("topic=\"(rest)\"")), "{series} of the rest");
    }
    assert_eq!(meters.topic(&name(900)).counted(Event::Scheduled), 2, "its own, for who asks the node");
    TopicName::new(REST).expect_err("no topic is called so");

    // A place that is free again goes to a new topic.
    (TOPIC_SERIES_MAX..1_000).for_each(|n| meters.forget_topic(&name(n)));
    let text = meters.render();
    assert!(
        !text.contains("duetime_scheduled{topic=\"(rest)\"}") && !text.contains("duetime_shard_due{shard=\"rest\"")
    );
    assert!(text.contains("duetime_lateness_seconds_count{topic=\"(rest)\"}"), "a counter does not go back");
    meters.forget_topic(&name(0));
    fill(2_000);
    assert!(meters.render().contains("duetime_scheduled{topic=\"topic-2000\"} 3"));
}

#[test]
fn the_age_of_a_survey_and_of_a_consumers_claim_grow_until_there_is_one() {
    let meters = Meters::new();
    let topic = meters.topic(&TopicName::new("orders").unwrap());
    topic.set_claimed_by_consumers(true);
    let ages = |second: u64| {
        meters.sample(Duration::from_secs(second));
        let text = meters.render();
        ["duetime_survey_age_seconds ", "duetime_consumer_claim_age_seconds{topic=\"orders\"} "]
            .map(|name| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<f64>().unwrap())
    };
    meters.surveyed();
    assert_eq!(ages(10), [0.0, 0.0], "who has just been made claimable waits from then on");
    assert_eq!(ages(25), [15.0, 15.0]);
    meters.surveyed();
    let asks = topic.clone().consumer_asks();
    assert_eq!(ages(30), [0.0, 0.0]);
    assert_eq!(ages(60), [30.0, 0.0], "a claim that waits is no silence");
    drop(asks);
    assert_eq!(ages(70), [40.0, 10.0]);
    topic.set_claimed_by_consumers(false);
    assert_eq!(ages(90), [60.0, 0.0], "where a sink is delivered to nobody has to claim");
}

#[test]
fn sinks_beyond_the_bound_share_a_series_whatever_their_names() {
    let meters = Meters::new();
    for n in 0..SINK_SERIES_MAX + 10 {
        meters.sink(&format!("s{n}"), "http").errors("retry", 1);
    }
    meters.sink("s0", "http").errors("retry", 1);
    assert_eq!(meters.sinks().len(), SINK_SERIES_MAX + 1);
    let text = meters.render();
    assert!(text.contains(&format!("sink=\"{REST}\"")) && !text.contains(&format!("sink=\"s{SINK_SERIES_MAX}\"")));
}
