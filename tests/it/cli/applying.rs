//! `duetime apply`: the sinks and topics of a node as a file declares them; and a topic with the settings of another.

use serde_json::json;

use super::*;

fn file(node: &Node, text: &str) -> String {
    let file = node.folder().join("topics.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_become_what_a_file_declares_and_a_dry_run_says_what_differs() {
    let node = node().await;
    to(&node, &["topic", "create", "bills", "--visibility-timeout", "30s", "--max-messages", "5", "--shards", "2"])
        .done();
    to(&node, &["pause", "bills"]).done();
    let of = |topic: &str| to(&node, &["topic", "get", topic, "--json"]).done().json();
    // A file of a node: its other sections are left out.
    let file = file(
        &node,
        "[node]\nid = \"n\"\n[topics.orders]\nshards = 4\nsmear = \"2s\"\n\
         [topics.bills]\nvisibility_timeout = \"1m\"\nretry = { max_attempts = 3 }\n",
    );
    let shown = to(&node, &["apply", &file, "--dry-run"]);
    assert_eq!(shown.status, 2, "{} {}", shown.out, shown.err);
    for line in ["+ orders", "~ bills", "visibility timeout: 30s -> 1m", "max messages: 5 -> none", "smear: 2s"] {
        assert!(shown.out.contains(line), "{line:?} is not in: {}", shown.out);
    }
    assert_eq!(of("bills")["visibility_timeout"], "30s");
    to(&node, &["topic", "get", "orders"]).refused(1, &["orders"]);
    to(&node, &["apply", &file]).refused(1, &["2 topics would be changed", "--yes"]);
    assert!(to(&node, &["apply", &file, "--yes"]).done().out.contains("2 topics changed"));
    let (orders, bills) = (of("orders"), of("bills"));
    assert_eq!((&orders["shard_count"], &orders["smear"]), (&json!(4), &json!("2s")));
    assert_eq!((&bills["visibility_timeout"], &bills["retry"]["max_attempts"]), (&json!("1m"), &json!(3)));
    // What operators change while it serves stays as it is.
    assert_eq!((&bills["shard_count"], &bills["paused"], bills.get("max_messages")), (&json!(2), &json!(true), None));
    let again = to(&node, &["apply", &file, "--dry-run", "--json"]).done().json();
    assert_eq!(again["topics"][0], json!({"topic": "bills", "action": "none"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_wrong_keeps_no_other_from_being_applied() {
    let node = node().await;
    let file = file(
        &node,
        "[topics.bad]\nvisibility_timout = \"1m\"\n[topics.worse]\nshards = 0\n[topics.sunk]\nsink = { name = \"mq\" }\n\
         [topics.good]\n",
    );
    let said = to(&node, &["apply", &file, "--yes"]).refused(1, &["sunk", "mq"]);
    for line in ["topics.toml:2: topics.bad.visibility_timout: unknown key", "topics.toml:4: topics.worse.shards"] {
        assert!(said.out.contains(line), "{line:?} is not in: {}", said.out);
    }
    let topics = to(&node, &["topic", "list", "--json"]).done().json();
    assert_eq!(topics["topics"].as_array().unwrap().len(), 1, "{topics}");
    assert_eq!(topics["topics"][0]["name"], "good");
    for (text, said) in [("[topic.a]\n", "did you mean \"topics\"?"), ("[node]\n", "declares no topics"), ("[", ":1")] {
        let file = self::file(&node, text);
        to(&node, &["apply", &file, "--dry-run"]).refused(1, &[said]);
    }
}

/// A node that takes sinks of type `log` by the API, and has one in its file.
async fn node_with_sinks() -> Node {
    let config = "[sinks.audit]\ntype = \"log\"\n[sinks_by_api]\nenabled = true\ntargets = [\"log\"]\n";
    Node::start_embedded(PROGRAM, config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_become_what_a_file_declares_before_the_topics_that_need_them() {
    let node = node_with_sinks().await;
    let other = file(&node, "type = \"log\"\n");
    to(&node, &["sink", "put", "other", "--file", &other]).done();
    let declared = |hook: &str| {
        let audit = "[sinks.audit]\ntype = \"http\"\nheaders = { x = \"canary\" }\n";
        let topics = "[topics.orders]\nsink = { name = \"hook\" }\n";
        file(&node, &format!("{audit}[sinks.hook]\ntype = \"log\"\n{hook}\n{topics}"))
    };
    let first = declared("count_only = true");
    let shown = to(&node, &["apply", &first, "--dry-run"]);
    assert_eq!(shown.status, 2, "{} {}", shown.out, shown.err);
    for line in [
        "+ sink hook",
        "    count_only: true",
        "+ orders",
        "sink audit is of the node's own file",
        "sink other is not named",
    ] {
        assert!(shown.out.contains(line), "{line:?} is not in: {}", shown.out);
    }
    assert!(!shown.out.contains("canary"), "{}", shown.out);
    to(&node, &["sink", "show", "hook"]).refused(1, &["hook"]);
    to(&node, &["apply", &first]).refused(1, &["1 sink and 1 topic would be changed", "--yes"]);
    assert!(to(&node, &["apply", &first, "--yes"]).done().out.contains("1 sink and 1 topic changed"));
    let put = to(&node, &["sink", "show", "hook", "--json"]).done().json();
    assert_eq!((&put["config"], &put["topics"]), (&json!({"type": "log", "count_only": true}), &json!(1)));
    let again = to(&node, &["apply", &first, "--dry-run", "--json"]).done().json();
    let wanted = json!([{"sink": "audit", "action": "of_file"},
        {"sink": "hook", "action": "none", "version": put["version"]}, {"sink": "other", "action": "keep"}]);
    assert_eq!(again["sinks"], wanted);

    let second = declared("payload_bytes = \"1KiB\"");
    let shown = to(&node, &["apply", &second, "--yes"]).done().out;
    for line in ["~ sink hook", "count_only: true -> default", "payload_bytes: default -> 1KiB", "1 sink changed"] {
        assert!(shown.contains(line), "{line:?} is not in: {shown}");
    }
    let put = to(&node, &["sink", "show", "hook", "--json"]).done().json();
    assert_eq!(put["config"], json!({"type": "log", "payload_bytes": "1KiB"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_refused_keeps_nothing_else_from_being_applied() {
    let node = node_with_sinks().await;
    let file = file(
        &node,
        "[sinks.leak]\ntype = \"http\"\nurl = \"https://a.example\"\nheaders = { x = \"canary\" }\n\
         [sinks.far]\ntype = \"http\"\nurl = \"https://far.example\"\n[sinks.good]\ntype = \"log\"\n\
         [topics.lost]\nsink = { name = \"far\" }\n[topics.orders]\nsink = { name = \"good\" }\n",
    );
    let dry = ["allows no target at https://far.example", "lost: its sink far would not be put"];
    to(&node, &["apply", &file, "--dry-run"]).refused(1, &dry);
    to(&node, &["sink", "show", "good"]).refused(1, &["good"]);
    // The node, which is not sent what is secret, would refuse the one; which targets it allows it alone knows.
    let said = to(&node, &["apply", &file, "--yes"])
        .refused(1, &["sink far: ", "allows no target at https://far.example", "lost: its sink far was not put"]);
    for line in [
        "! sink leak",
        "topics.toml:4: sinks.leak: headers.x: a secret is not sent itself",
        "1 sink and 1 topic changed",
    ] {
        assert!(said.out.contains(line), "{line:?} is not in: {}", said.out);
    }
    assert!(!said.out.contains("canary") && !said.err.contains("canary"), "{} {}", said.out, said.err);
    assert_eq!(to(&node, &["topic", "get", "orders", "--json"]).done().json()["sink"]["name"], "good");

    let deleting = self::file(&node, "[sinks.good]\ntype = \"log\"\n");
    to(&node, &["apply", &deleting, "--yes", "--delete"]).refused(1, &["declares no topics", "--delete"]);
    assert!(to(&node, &["apply", &deleting]).done().out.contains("orders is not named in the file and stays"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_may_only_look_is_shown_what_differs() {
    let by_api = "[sinks_by_api]\nenabled = true\ntargets = [\"log\"]\n";
    let token = "[[auth.tokens]]\nname = \"eye\"\nsecret = \"eye-0123456789abcdef\"\nscopes = [\"view\"]\n";
    let node = Node::start_embedded(PROGRAM, &(by_api.to_owned() + token)).await;
    let file = file(&node, "[sinks.hook]\ntype = \"log\"\n[topics.orders]\nsink = { name = \"hook\" }\n");
    let shown = to(&node, &["apply", &file, "--dry-run", "--token", "eye-0123456789abcdef"]);
    assert_eq!(shown.status, 2, "{} {}", shown.out, shown.err);
    assert!(shown.out.contains("+ sink hook") && shown.out.contains("+ orders"), "{}", shown.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_node_takes_no_sinks_those_of_the_file_are_left_out() {
    let node = node().await;
    let file = file(&node, "[sinks.hook]\ntype = \"http\"\nurl = \"https://u:canary@a.example\"\n[topics.orders]\n");
    let said = to(&node, &["apply", &file, "--yes"]).done().out;
    assert!(said.contains("sink hook is left out") && said.contains("[sinks_by_api]"), "{said}");
    assert!(said.contains("1 topic changed") && !said.contains("canary"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_in_the_file_is_deleted_only_where_that_is_said_with_how_many_messages() {
    let node = node().await;
    for topic in ["old", "older", "bills-1"] {
        to(&node, &["topic", "create", topic]).done();
        to(&node, &["enqueue", topic, "--delay", "1h"]).done();
    }
    let file = file(&node, "[topics.orders]\n[topics.\"bills-*\"]\ncreate = true\n");
    let kept = to(&node, &["apply", &file, "--yes"]).done().out;
    assert!(kept.contains("old is not named in the file and stays"), "{kept}");
    let all = ["apply", &file, "--yes", "--delete"];
    to(&node, &all).refused(1, &["2 messages", "nothing was changed", "--at-most 2"]);
    to(&node, &[&all[..], &["--at-most", "1"]].concat()).refused(1, &["--at-most 2"]);
    let gone = to(&node, &[&all[..], &["--at-most", "2"]].concat()).done().out;
    assert!(gone.contains("- old, with 1 message") && gone.contains("2 topics changed"), "{gone}");
    let left = to(&node, &["topic", "list", "--json"]).done().json();
    let names: Vec<&Value> = left["topics"].as_array().unwrap().iter().map(|topic| &topic["name"]).collect();
    assert_eq!(names, ["bills-1", "orders"], "what a pattern is for stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_created_with_the_settings_of_another() {
    let node = node().await;
    let settings = ["--shards", "3", "--max-attempts", "4", "--retry-initial", "2s", "--smear", "1s"];
    to(&node, &[&["topic", "create", "orders"][..], &settings].concat()).done();
    to(&node, &["pause", "orders"]).done();
    let made =
        to(&node, &["topic", "create", "bills", "--like", "orders", "--max-attempts", "9", "--json"]).done().json();
    assert_eq!((&made["shard_count"], &made["smear"], made.get("paused")), (&json!(3), &json!("1s"), None));
    assert_eq!((&made["retry"]["max_attempts"], &made["retry"]["initial"]), (&json!(9), &json!("2s")));
    to(&node, &["topic", "create", "x", "--like", "nope"]).refused(1, &["nope"]);
}
