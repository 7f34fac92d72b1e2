//! What the operator allows, what is refused, and that nothing else of a node can be read.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::*;

fn rules(folder: &Path) -> SinksByApiConfig {
    let text = format!(
        "enabled = true\nsecrets = {folder:?}\nallow = [\"127.0.0.1\"]\n\
         targets = [\"https://*.shop.example\", \"amqp://*:5672\", \"nats://*\", \"kafka://*\", \"redis://*\"]"
    );
    let rules: SinksByApiConfig = toml::from_str(&text).unwrap();
    assert_eq!(rules.faults(), []);
    rules
}

fn refusal(rules: &SinksByApiConfig, config: Value) -> (Option<String>, String) {
    match rules.read(config.as_object().unwrap()) {
        Err(SinkRefusal::Invalid { field, detail }) => (field, detail),
        other => panic!("{config}: {other:?}"),
    }
}

fn of_targets(targets: Value) -> Value {
    json!({"type": "http", "url": "https://a.shop.example/in", "targets": targets})
}

#[test]
fn urls_of_messages_lie_within_what_the_operator_allows() {
    let folder = tempfile::tempdir().unwrap();
    let targets = json!(["https://*.shop.example", "https://a.eu.shop.example/in/*"]);
    let read = rules(folder.path()).read(of_targets(targets.clone()).as_object().unwrap()).unwrap();
    let SinkConfig::Http(read) = read else { panic!() };
    assert_eq!(json!(read.targets), targets);
}

#[test]
fn a_secret_comes_from_a_file_of_the_folder_or_a_variable_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "canary-token\n").unwrap();
    std::fs::write(folder.path().join("mq"), "amqp://u:canary@mq.example/vhost").unwrap();
    // As Kubernetes mounts secrets: each name is a link to a file of the same folder.
    std::fs::create_dir(folder.path().join("..first")).unwrap();
    std::fs::write(folder.path().join("..first/mounted"), "canary-mounted").unwrap();
    symlink("..first", folder.path().join("..data")).unwrap();
    symlink("..data/mounted", folder.path().join("mounted")).unwrap();
    let rules = rules(folder.path());
    let http = json!({"type": "http", "url": "https://a.shop.example/in", "timeout": "2s",
        "headers": {"authorization": {"file": "token"}, "x-other": {"file": "mounted"}}});
    let SinkConfig::Http(read) = rules.read(http.as_object().unwrap()).unwrap() else { panic!() };
    assert_eq!(read.headers["authorization"].expose(), "canary-token");
    assert_eq!(read.headers["x-other"].expose(), "canary-mounted");
    assert_eq!(read.allow, ["127.0.0.1"], "the operator's");
    let mq = json!({"type": "rabbitmq", "url": {"file": "mq"}});
    let SinkConfig::RabbitMq(read) = rules.read(mq.as_object().unwrap()).unwrap() else { panic!() };
    assert_eq!(read.url.expose(), "amqp://u:canary@mq.example/vhost");
    // As Kubernetes renews them: a file that is read with each connection is found where its name leads then.
    let nats = json!({"type": "nats", "url": "nats://n.example", "credentials_file": "mounted"});
    let SinkConfig::Nats(read) = rules.read(nats.as_object().unwrap()).unwrap() else { panic!() };
    std::fs::create_dir(folder.path().join("..second")).unwrap();
    std::fs::write(folder.path().join("..second/mounted"), "canary-renewed").unwrap();
    std::fs::remove_file(folder.path().join("..data")).unwrap();
    symlink("..second", folder.path().join("..data")).unwrap();
    std::fs::remove_dir_all(folder.path().join("..first")).unwrap();
    assert_eq!(std::fs::read_to_string(read.credentials_file.unwrap()).unwrap(), "canary-renewed");
    // It is not set, which is no fault of its name.
    let unset = json!({"type": "nats", "url": "nats://n.example", "token": {"env": "DUETIME_SINK_NOT_SET"}});
    let (field, detail) = refusal(&rules, unset);
    assert!(
        field.as_deref() == Some("token") && detail.contains("DUETIME_SINK_NOT_SET of a secret is not set"),
        "{detail}"
    );
}

#[test]
fn nothing_else_of_the_node_can_be_read() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("shadow"), "canary-outside").unwrap();
    symlink(outside.path().join("shadow"), folder.path().join("link")).unwrap();
    symlink(outside.path(), folder.path().join("folder")).unwrap();
    symlink(".", folder.path().join("itself")).unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("mq"), "amqp://u:canary@mq.example:5673/vhost").unwrap();
    let rules = rules(folder.path());
    let whole = outside.path().join("shadow").display().to_string();
    for name in [
        "/etc/passwd",
        &whole,
        "../shadow",
        "..",
        ".",
        "",
        "link",
        "folder",
        "folder/shadow",
        "itself",
        "sub",
        "none",
        "a\0b",
    ] {
        for (field, config) in [
            ("headers.x", json!({"type": "http", "url": "https://a.shop.example", "headers": {"x": {"file": name}}})),
            (
                "signing_secrets[0]",
                json!({"type": "http", "url": "https://a.shop.example", "signing_secrets": [{"file": name}]}),
            ),
            ("ca_file", json!({"type": "http", "url": "https://a.shop.example", "ca_file": name})),
            ("url", json!({"type": "http", "url": {"file": name}})),
            ("credentials_file", json!({"type": "nats", "url": "nats://n.example", "credentials_file": name})),
            ("password", json!({"type": "nats", "url": "nats://n.example", "user": "u", "password": {"file": name}})),
            ("brokers", json!({"type": "kafka", "brokers": {"file": name}})),
            (
                "sasl.password",
                json!({"type": "kafka", "brokers": "k.example", "sasl": {"user": "u", "password": {"file": name}}}),
            ),
        ] {
            let (found, detail) = refusal(&rules, config.clone());
            assert_eq!(found.as_deref(), Some(field), "{config}: {detail}");
            assert!(!detail.contains("canary"), "{config}: {detail}");
        }
    }
    for variable in ["PATH", "DUETIME_STORE", "Duetime_Sink_X", " DUETIME_SINK_X"] {
        let config = json!({"type": "nats", "url": "nats://n.example", "token": {"env": variable}});
        let (field, detail) = refusal(&rules, config);
        assert!(field.as_deref() == Some("token") && detail.contains("must begin with DUETIME_SINK_"), "{detail}");
    }
    let (field, detail) = refusal(&rules, json!({"type": "rabbitmq", "url": {"file": "mq"}}));
    assert!(field.as_deref() == Some("url") && detail.contains("allows no target where it leads"), "{detail}");
    assert!(!detail.contains("canary"), "{detail}");
    // A secret that looks like an address is not shown as one, and nobody is asked for it by that name.
    for (text, config) in [
        ("canarytoken", json!({"type": "kafka", "brokers": {"file": "looks"}})),
        ("canarytoken", json!({"type": "nats", "url": {"file": "looks"}})),
        ("canary://canarytoken:1", json!({"type": "redis-stream", "url": {"file": "looks"}})),
        ("amqp://canarytoken:1", json!({"type": "rabbitmq", "url": {"file": "looks"}})),
    ] {
        std::fs::write(folder.path().join("looks"), text).unwrap();
        let (_, detail) = refusal(&rules, config);
        assert!(!detail.contains("canary"), "{text}: {detail}");
    }
    let none = SinksByApiConfig { secrets: None, ..rules };
    let (_, detail) = refusal(&none, json!({"type": "http", "url": {"file": "mq"}}));
    assert!(detail.contains("set secrets of [sinks_by_api]"), "{detail}");
}

#[test]
fn what_is_secret_is_not_sent_itself_and_what_is_not_listed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let rules = rules(folder.path());
    for (field, config) in [
        ("headers.x", json!({"type": "http", "url": "https://a.shop.example", "headers": {"x": "canary"}})),
        (
            "headers.x",
            json!({"type": "http", "url": "https://a.shop.example", "headers": {"x": {"file": "a", "env": "canary"}}}),
        ),
        ("headers", json!({"type": "http", "url": "https://a.shop.example", "headers": "canary"})),
        ("signing_secrets[0]", json!({"type": "http", "url": "https://a.shop.example", "signing_secrets": ["canary"]})),
        ("url", json!({"type": "http", "url": "https://u:canary@a.shop.example"})),
        ("url", json!({"type": "http", "url": "https://a.shop.example?t=canary"})),
        ("url", json!({"type": "rabbitmq", "url": "amqp://u:canary@mq.example"})),
        ("url", json!({"type": "redis-stream", "url": "redis://:canary@r.example"})),
        ("password", json!({"type": "nats", "url": "nats://n.example", "user": "u", "password": "canary"})),
        (
            "sasl.password",
            json!({"type": "kafka", "brokers": "k.example", "sasl": {"user": "u", "password": "canary"}}),
        ),
        ("url", json!({"type": "http", "url": "https://shop.example.evil.example"})),
        ("url", json!({"type": "http", "url": "http://a.shop.example"})),
        ("url", json!({"type": "http", "url": "http://169.254.169.254/latest"})),
        ("url", json!({"type": "http"})),
        ("allow", json!({"type": "http", "url": "https://a.shop.example", "allow": ["0.0.0.0/0"]})),
        (
            "properties",
            json!({"type": "kafka", "brokers": "k.example", "properties": {"plugin.library.paths": "canary"}}),
        ),
        ("in_place", json!({"type": "redis-stream", "in_place": true})),
        ("batch", json!({"type": "http", "url": "https://a.shop.example", "batch": {"file": "canary"}})),
        ("targets[1]", of_targets(json!(["https://*.shop.example/in/*", "https://*.example"]))),
        ("targets[0]", of_targets(json!(["https://*.shop.example:*"]))),
        ("targets[0]", of_targets(json!(["http://a.shop.example"]))),
        ("targets[0]", of_targets(json!(["*.shop.example"]))),
        ("targets[0]", of_targets(json!([{"file": "canary"}]))),
        ("targets[0]", of_targets(json!(["https://u:canary@a.shop.example"]))),
        ("targets", of_targets(json!("https://a.shop.example"))),
        ("type", json!({"type": "log"})),
        ("type", json!({"type": "pigeon"})),
        ("type", json!({})),
    ] {
        let (found, detail) = refusal(&rules, config.clone());
        assert_eq!(found.as_deref(), Some(field), "{config}: {detail}");
        assert!(!detail.contains("canary"), "{config}: {detail}");
    }
}

#[test]
fn what_the_operator_writes_is_checked() {
    for (text, key) in [
        ("enabled = true", "targets"),
        ("targets = [\"shop.example\"]", "targets"),
        ("allow = [\"http://x\"]", "allow"),
        ("secrets = \"secrets\"", "secrets"),
    ] {
        let faults = toml::from_str::<SinksByApiConfig>(text).unwrap().faults();
        assert_eq!(faults.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key], "{faults:?}");
    }
    assert_eq!(SinksByApiConfig::default().faults(), []);
}

#[test]
fn what_passes_without_a_node_has_nothing_secret_written_out() {
    for (config, wrong) in [
        (json!({"type": "http", "url": "https://a.example", "headers": {"x": "canary"}}), "headers.x"),
        (json!({"type": "http", "url": "https://a.example", "signing_secrets": ["canary"]}), "signing_secrets[0]"),
        (json!({"type": "http", "url": "https://a.example", "signing_secrets": "canary"}), "signing_secrets"),
        (json!({"type": "http", "url": "https://u:canary@a.example"}), "url"),
        (json!({"type": "nats", "url": "nats://a.example", "password": "canary"}), "password"),
        (
            json!({"type": "kafka", "brokers": "a.example", "sasl": {"user": "u", "password": "canary"}}),
            "sasl.password",
        ),
        (json!({"type": "http", "url": "https://a.example", "allow": ["canary"]}), "allow"),
        (json!({"type": "http"}), "url"),
        (json!({"url": "https://a.example"}), "type"),
    ] {
        let Err(SinkRefusal::Invalid { field, detail }) = check_form(config.as_object().unwrap()) else {
            panic!("{config} passes");
        };
        assert_eq!(field.as_deref(), Some(wrong), "{config}");
        assert!(!detail.contains("canary"), "{detail}");
    }
    for config in [
        json!({"type": "http", "url": "https://a.example", "headers": {"x": {"file": "token"}}, "ca_file": "ca.pem"}),
        json!({"type": "rabbitmq", "url": {"file": "mq-url"}}),
        json!({"type": "nats", "url": "nats://a.example", "password": {"env": "DUETIME_SINK_NATS"}}),
        json!({"type": "log", "count_only": true}),
    ] {
        assert_eq!(check_form(config.as_object().unwrap()), Ok(()), "{config}");
    }
}
