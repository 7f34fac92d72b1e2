//! The file as a whole: what is wrong with it, what the example says, where secrets may be.

mod keys;

use std::path::PathBuf;

use duetime_core::{RateLimit, RetryPolicy, TopicConfig};
use duetime_http::{AuthConfig, TlsFiles, TokenConfig};
use duetime_ownership::EtcdConfig;
use duetime_resize::ResizeConfig;
use duetime_settings::ClientTls;
use duetime_sinks::SinkConfig;
use duetime_store_redis::RedisStoreConfig;

use super::file::{Complaint, Overlay, parse};
use super::read::{FieldNames, keys};
use super::{ConsoleConfig, NodeConfig};

fn complaints(text: &str) -> Vec<String> {
    let found = parse(text, PathBuf::from("duetime.toml"), &[]).err().unwrap_or_default();
    found.iter().map(Complaint::to_string).collect()
}

#[test]
fn everything_that_is_wrong_is_named_at_once_with_its_line() {
    let text = "\
[node]
listen = \"nowhere\"
[store]
url = \"redis://u:p@h:1/x\"
connections = 0
[[auth.tokens]]
name = \"a\"
secret = \"too-short\"
scopes = [\"consum\"]
[[auth.tokens]]
name = \"b\"
secret = \"too-short\"
scopes = [\"produce\"]
[sinks.hook]
type = \"http\"
url = \"ftp://x\"
[sinks.mq]
type = \"rabbitmq\"
[sinks.pigeon]
type = \"pigeon\"
[sinks.near]
type = \"redis-stream\"
timeout = \"0s\"
[topics.orders]
sink = { name = \"nope\" }
visibility_timeout = \"1ms\"
[topics.bills]
sink = { name = \"audit\", path = \"/x\" }
max_payload = \"1GiB\"
[sinks.audit]
type = \"log\"
[resize]
auto_min = 0
shards_at_once = 100
";
    let found = complaints(text);
    let wanted = [
        "2: node.listen: \"nowhere\" is not an address",
        "4: store.url: ",
        "5: store.connections: ",
        "9: auth.tokens.0.scopes.0: not known here; expected one of",
        "10: auth.tokens.1: auth token \"b\": its secret is shorter than 16 bytes",
        "16: sinks.hook: url ftp://x is refused",
        "17: sinks.mq.url: \"url\" is missing",
        "20: sinks.pigeon.type: unknown type \"pigeon\"",
        "23: sinks.near: ",
        "25: topics.orders.sink: no [sinks.nope] is configured",
        "26: topics.orders.visibility_timeout: ",
        "28: topics.bills.sink: ",
        "29: topics.bills.max_payload: ",
        "33: resize.auto_min: must be 1 to 4096",
        "34: resize.shards_at_once: must be 1 to 64",
    ];
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(&format!("duetime.toml:{wanted}")), "{found} is not {wanted}");
    }
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
}

#[test]
fn a_topic_whose_messages_name_their_host_does_not_deliver_at_most_once() {
    let with = |url: &str| {
        let sink = "type = \"http\"\nurl = \"http://a.shop.example\"\ntargets = [\"http://*.shop.example\"]";
        let topic = format!("delivery = \"at-most-once\"\nsink = {{ name = \"hook\", url = {url:?} }}");
        complaints(&format!("[sinks.hook]\n{sink}\n[topics.orders]\n{topic}\n"))
    };
    let found = with("{header.callback}");
    assert!(found.len() == 1 && found[0].starts_with("duetime.toml:7: topics.orders.sink: delivery"), "{found:?}");
    assert_eq!(with("http://a.shop.example/{id}"), [""; 0]);
}

#[test]
fn a_key_that_is_there_twice_and_a_sink_without_a_name_are_named() {
    let twice = complaints("[node]\nid = \"a\"\nid = \"b\"\n");
    assert_eq!(twice, ["duetime.toml:3: \"id\" is there twice; leave one of them out"]);
    let nameless = complaints("[sinks.\"\"]\ntype = \"log\"\n");
    assert_eq!(nameless, ["duetime.toml:1: sinks.: the sink's name is empty; give one"]);
}

#[test]
fn everything_that_is_wrong_within_one_section_is_named_too() {
    let hash = format!("sha256:{}", "0".repeat(64));
    let found = complaints(&format!(
        "\
[node]
id = \"\"
audit = {{ file = \"/nowhere/at/all\" }}
[store]
url = \"redis://h\"
response_timeout = \"0s\"
retry_for = \"0s\"
[[auth.tokens]]
name = \"\"
hash = {hash:?}
scopes = [\"view\"]
topics = [\"a*b\", \"\", \"a*\"]
requests_per_second = -1
messages_per_second = 0
[sinks.h]
type = \"http\"
url = \"ftp://x\"
timeout = \"0s\"
concurrency = 0
signing_secrets = [\"x\"]
"
    ));
    for wanted in [
        "2: node.id: is empty",
        "3: node.audit: there is no folder /nowhere/at",
        "6: store.response_timeout: must be 1ms or more",
        "7: store.retry_for: must be",
        "8: auth.tokens.0: auth token \"\": its name is empty",
        "8: auth.tokens.0: auth token \"\": topics has \"a*b\"",
        "8: auth.tokens.0: auth token \"\": topics has \"\"",
        "8: auth.tokens.0: auth token \"\": requests_per_second must be",
        "8: auth.tokens.0: auth token \"\": messages_per_second must be",
        "17: sinks.h: url ftp://x is refused",
        "18: sinks.h: timeout must be",
        "19: sinks.h: concurrency must be",
        "20: sinks.h: ",
    ] {
        let times = found.iter().filter(|one| one.starts_with(&format!("duetime.toml:{wanted}"))).count();
        assert_eq!(times, 1, "{wanted} in {found:#?}");
    }
    assert_eq!(found.len(), 13, "{found:#?}");
}

#[test]
fn the_key_to_blame_is_known_whatever_else_the_sentence_speaks_of() {
    let begin = "[sinks.a]\ntype = \"nats\"\nurl = \"nats://h\"\n";
    for (keys, line) in [
        ("timeout = \"10s\"\nconnect_timeout = \"0s\"", 5),
        ("token = \"t\"\npassword = \"p\"", 5),
        ("ca_file = \"/no/such/url/token.pem\"\ntoken = \"t\"", 4),
    ] {
        let found = complaints(&format!("{begin}{keys}"));
        assert!(found[0].starts_with(&format!("duetime.toml:{line}: sinks.a: ")), "{keys}: {found:?}");
    }
    let tls = "[node]\n[node.tls]\ncert = \"/no/key.pem\"\nkey = \"/no/cert.pem\"\n";
    assert!(complaints(tls)[0].starts_with("duetime.toml:4: node.tls: /no/cert.pem: "), "{:?}", complaints(tls));
}

#[test]
fn a_name_that_no_path_can_have_is_refused() {
    let found = complaints(
        "[node]\nid = \"..\"\n[sinks.\"..\"]\ntype = \"log\"\n[topics.\".\"]\nshards = 1\n[topics.\"..a\"]\nshards = 1\n",
    );
    let wanted =
        ["2: node.id: name \"..\" is refused", "3: sinks...: sink name \"..\" is", "5: topics..: topic name \".\" is"];
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(&format!("duetime.toml:{wanted}")), "{found} is not {wanted}");
    }
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
}

#[test]
fn what_follows_from_a_fault_is_no_fault_of_its_own() {
    let found = complaints(
        "[store]\nurl = [1]\n[ownership]\nmode = \"round-robin\"\n[node]\nlisten = \"0.0.0.0:1\"\n[auth]\ntokens = 1\n",
    );
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].contains(":2: store.url: ") && found[1].contains(":8: auth.tokens: "), "{found:#?}");
}

#[test]
fn the_example_has_every_key_of_every_section_and_of_every_type_of_sink() {
    let example = include_str!("../../../../duetime.example.toml");
    // A section goes to the next blank line; what is commented out counts.
    let section = |begin: &str| {
        let found = example
            .split("\n\n")
            .find(|part| part.lines().any(|line| line.trim_start_matches("# ").starts_with(begin)));
        found.unwrap_or_else(|| panic!("the example has no {begin}"))
    };
    let mut wanted = vec![
        ("[ownership]", vec!["mode"]),
        ("[node]", keys::<NodeConfig>()),
        ("[node]", keys::<TlsFiles>()),
        ("[store]", keys::<RedisStoreConfig>()),
        // The name in a certificate is for etcd alone.
        ("[store]", keys::<ClientTls>().into_iter().filter(|key| *key != "server_name").collect()),
        ("[ownership]", keys::<EtcdConfig>()),
        ("[ownership]", keys::<ClientTls>()),
        ("[resize]", keys::<ResizeConfig>()),
        ("[auth]", keys::<AuthConfig>()),
        ("[console]", keys::<ConsoleConfig>()),
        ("[auth]", keys::<TokenConfig>()),
        ("[topics.", keys::<TopicConfig>()),
        ("[topics.", keys::<RetryPolicy>()),
        ("[topics.", keys::<RateLimit>()),
    ];
    let begins: Vec<String> = SinkConfig::TYPES.iter().map(|kind| format!("type = {kind:?}")).collect();
    for (kind, begin) in SinkConfig::TYPES.iter().zip(&begins) {
        let mut fields = Vec::new();
        let _ = SinkConfig::read(kind, FieldNames(&mut fields)).expect("a type that is listed is known");
        wanted.push((begin, fields));
    }
    let mut missing = Vec::new();
    for (begin, keys) in wanted {
        let words: Vec<&str> = section(begin).split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
        for key in keys {
            let is_there = words.contains(&key) || key == "tokens" && section(begin).contains("[[auth.tokens]]");
            if !is_there {
                missing.push(format!("{begin} {key}"));
            }
        }
    }
    assert!(missing.is_empty(), "duetime.example.toml lacks {missing:#?}");
    assert_eq!(complaints(example), Vec::<String>::new());
}

#[test]
fn every_secret_may_be_in_a_file_or_in_a_variable() {
    let file = tempfile::NamedTempFile::new().unwrap();
    // `PATH` is set everywhere; no test may set a variable while others run.
    let variable = std::env::var("PATH").unwrap();
    for (template, accepts) in [
        ("[store]\nurl = \"redis-sentinel://a:1/m\"\nsentinel_password = @", "any text"),
        ("[ownership]\netcd_password = @", "any text"),
        ("[[auth.tokens]]\nname = \"a\"\nscopes = [\"view\"]\nsecret = @", "any text of 16 bytes"),
        ("[sinks.a]\ntype = \"http\"\nurl = \"http://h\"\nheaders = { authorization = @ }", "any text"),
        ("[sinks.a]\ntype = \"nats\"\nurl = \"nats://h\"\nuser = \"u\"\npassword = @", "any text"),
        ("[sinks.a]\ntype = \"nats\"\nurl = \"nats://h\"\ntoken = @", "any text"),
        ("[store]\nurl = @", "embedded:data"),
        ("[sinks.a]\ntype = \"http\"\nurl = @", "http://h"),
        (
            "[sinks.a]\ntype = \"http\"\nurl = \"http://h\"\nsigning_secrets = [@]",
            "whsec_c2VjcmV0LW9mLTI0LWJ5dGVzLWxvbmch",
        ),
        ("[sinks.a]\ntype = \"rabbitmq\"\nurl = @", "amqp://u:p@h/v"),
        ("[sinks.a]\ntype = \"nats\"\nurl = @", "nats://h"),
        ("[sinks.a]\ntype = \"redis-stream\"\nurl = @", "redis://u:p@h"),
    ] {
        std::fs::write(file.path(), format!("{accepts}\nsecond line")).unwrap();
        let in_file = template.replace('@', &format!("{{ file = {:?} }}", file.path()));
        assert_eq!(complaints(&in_file), Vec::<String>::new(), "{in_file}");
        // That it was read shows in what is refused, and the variable's text does not.
        let in_variable = complaints(&template.replace('@', "{ env = \"PATH\" }"));
        assert!(
            !in_variable.iter().any(|text| text.contains("write the secret") || text.contains(&variable)),
            "{template}"
        );
        let unset = complaints(&template.replace('@', "{ env = \"DUETIME_NOT_SET\" }"));
        assert!(
            unset.iter().any(|text| text.contains("DUETIME_NOT_SET") && text.contains("is not set")),
            "{template}: {unset:?}"
        );
    }
}

#[test]
fn a_key_of_redis_is_refused_beside_an_embedded_url_unless_it_says_what_the_example_says() {
    let keys = "namespace = \"shop\"\ndurability = \"replicas:1\"\ntls = { ca_file = \"a\" }\nconnections = 3\n\
                sentinel_user = \"u\"\nsentinel_password = \"p\"\nconnect_timeout = \"2s\"\nresponse_timeout = 5\n\
                retry_for = \"1s\"\n";
    let says = "is for Redis, and the store is embedded; leave it out, or write url = \"redis://HOST:PORT/DB\"";
    let named = ["namespace", "durability", "tls", "connections", "sentinel_user", "sentinel_password"];
    let named = named.into_iter().chain(["connect_timeout", "response_timeout", "retry_for"]);
    let named: Vec<String> =
        named.zip(2..).map(|(key, line)| format!("duetime.toml:{line}: store.{key}: {says}")).collect();
    assert_eq!(named.len() + 1, super::read::keys::<RedisStoreConfig>().len());
    // The default is embedded too.
    assert_eq!(complaints(&format!("[store]\n{keys}")), named);
    assert_eq!(complaints(&format!("[store]\n{keys}url = \"embedded:data\"\n")), named);
    let copied = "[store]\nurl = \"embedded:data\"\nnamespace = \"duetime\"\ndurability = \"memory\"\n";
    assert_eq!(complaints(copied), Vec::<String>::new());
    let found = complaints("[store]\nurl = \"embedded:data\"\nconections = 3\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("duetime.toml:3: store.conections: unknown key"), "{found:?}");
}

#[test]
fn a_flag_for_redis_is_named_beside_an_embedded_url() {
    let overlay = Overlay { flag: "--namespace", key: ("store", "namespace"), value: "shop".into() };
    let found = parse("[store]\nurl = \"embedded:data\"\n", PathBuf::new(), &[overlay]).unwrap_err();
    assert!(
        found[0].to_string().starts_with("--namespace or DUETIME_NAMESPACE: store.namespace: is for Redis"),
        "{found:?}"
    );
    let overlay = Overlay { flag: "--store", key: ("store", "url"), value: "redis://a".into() };
    parse("[store]\nurl = \"embedded:data\"\nnamespace = \"shop\"\n", PathBuf::new(), &[overlay]).unwrap();
}

#[test]
fn a_misspelt_key_of_the_section_ownership_finds_the_mode_too() {
    let found = complaints("[ownership]\nmod = \"solo\"\netcd_usr = \"a\"\n");
    assert!(found[0].contains("2: ownership.mod: unknown key \"mod\", did you mean \"mode\"?"), "{found:?}");
    assert!(
        found[1].contains("3: ownership.etcd_usr: unknown key \"etcd_usr\", did you mean \"etcd_user\"?"),
        "{found:?}"
    );
}
