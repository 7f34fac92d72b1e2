//! The web console in a real Chromium, with a real node behind it.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{Webhook, in_time};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::test_node::client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(30);
const CONFIG: &str = "[sinks.out]\ntype = \"log\"\n[topics.mails]\nsink = { name = \"out\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_and_every_action_works_in_a_browser_under_its_policy() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/page.py"), CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_windows_wrong_clocks_and_changes_that_are_left_harm_nothing() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/windows.py"), CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_agreed_to_is_what_is_done_and_nobody_else_can_start_it() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/deeds.py"), CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_read_ticked_edited_and_redriven_ten_first() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/letters.py"), CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn screens_and_their_actions_are_at_hand_and_nothing_typed_or_claimed_is_lost() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/hand.py"), CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trouble_is_one_sentence_rows_keep_their_places_and_nobody_is_shouted_at() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/calm.py"), &with_partner()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_late_topic_says_why() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/late.py"), &with_partner()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_and_what_is_not_known_is_not_made_up() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/known.py"), &with_partner()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cancelled_or_purged_is_put_back_and_else_it_says_why_not() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/undo.py"), CONFIG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_is_among_the_commands_and_nothing_is_said_aloud_meanwhile() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/commands.py"), &with_partner()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_enlarged_without_colours_or_motion_each_screen_is_for_everyone() {
    let named = format!("[console]\nname = \"production\"\ncolour = \"red\"\n{}", with_partner());
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/everyone.py"), &named).await;
}

/// With a sink that nobody answers for.
fn with_partner() -> String {
    let url = format!("http://127.0.0.1:{}/in", duetime_testkit::servers::free_port());
    format!("[sinks.partner]\ntype = \"http\"\nurl = \"{url}\"\nallow = [\"127.0.0.1\"]\n{CONFIG}")
}

/// What `console/browser.py` prints when it waited in vain for what a page should show.
const RAN_OUT: &str = "A WAIT OF THE PAGE RAN OUT";

/// Fails unless a script saw all that it looked for.
fn well(status: ExitStatus, printed: &str) {
    in_time!(status.success() || !printed.contains(RAN_OUT), "{printed}");
    assert!(status.success(), "{printed}");
}

/// Runs `script` on a node of its own.
async fn looked_at(script: &'static str, config: &str) {
    let node = Node::start_embedded(PROGRAM, config).await;
    let python = std::env::var("DUETIME_TEST_PYTHON").expect("run the tests with `./test`");
    let output = tokio::task::spawn_blocking({
        let url = node.url();
        move || Command::new(python).args([script, &url]).output().expect("Python starts")
    })
    .await
    .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    well(output.status, &format!("{printed}\n{}", node.output()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_without_try_it_leads_nobody_there() {
    looked_at(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/without_try.py"), "[console]\ntry = false\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_may_only_look_is_offered_nothing_else() {
    with_tokens(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/rights.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_and_sinks_are_paused_through_the_page_and_say_why() {
    with_tokens(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/pauses.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_path_of_a_proxy_nobody_else_is_asked_and_no_id_is_shown_as_an_option() {
    with_tokens(concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/prefix.py")).await;
}

/// Runs `script` on a node that knows one token that may look, and one that may do everything.
async fn with_tokens(script: &'static str) {
    let tokens = "[[auth.tokens]]\nname = \"looks\"\nsecret = \"looks-0123456789abcdef\"\nscopes = [\"view\"]\n\
                  [[auth.tokens]]\nname = \"ops\"\nsecret = \"ops-0123456789abcdef\"\nscopes = [\"admin\"]\n";
    looked_at(script, &format!("{CONFIG}{tokens}")).await;
}

/// Runs a script that asks, line by line, for what is to happen: `act` does it, and returns false where it is no such
/// request but something to be read. How it ended, and what it printed.
async fn asked(args: &[&str], mut act: impl AsyncFnMut(&str) -> bool) -> (ExitStatus, String) {
    let python = std::env::var("DUETIME_TEST_PYTHON").expect("run the tests with `./test`");
    let mut browser = tokio::process::Command::new(python)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("Python starts");
    let mut answers = browser.stdin.take().expect("it is piped");
    let mut asks = BufReader::new(browser.stdout.take().expect("it is piped")).lines();
    let mut said = Vec::new();
    while let Some(line) = asks.next_line().await.expect("it is text") {
        if act(&line).await {
            answers.write_all(b"done\n").await.expect("it listens");
        } else {
            said.push(line);
        }
    }
    let output = browser.wait_with_output().await.expect("it ends");
    (output.status, said.join("\n") + &String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_balancer_figures_are_those_of_all_nodes_and_a_chip_narrows_them_to_one() {
    let redis = RedisServer::start().await;
    let named = |id: &str| format!("[node]\nid = \"{id}\"\n[ownership]\nmode = \"round-robin\"\n");
    let node = Node::start(PROGRAM, &redis.url(), &named("first")).await;
    let other = Node::start(PROGRAM, &redis.url(), &named("second")).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/fleet.py");
    let (status, printed) = asked(&[script, &node.url(), &other.url()], async |what| {
        match what {
            "pause second" => other.pause(),
            "go on" => other.resume(),
            _ => return false,
        }
        true
    })
    .await;
    well(status, &format!("{printed}\n{}\n{}", node.output(), other.output()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_is_seen_on_a_page_that_stays_open() {
    let (redis, mut hook) = (RedisServer::start().await, Webhook::start());
    let config = format!(
        "[ownership]\nmode = \"round-robin\"\n\n[sinks.hook]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n\n\
         [topics.herd]\nsink = {{ name = \"hook\" }}\nshards = 4\n",
        hook.url("/in")
    );
    let named = |id: &str| format!("[node]\nid = \"{id}\"\n{config}");
    let mut node = Node::start(PROGRAM, &redis.url(), &named("first")).await;
    let mut other = Node::start(PROGRAM, &redis.url(), &named("other")).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/live.py");
    let url = node.url();
    let (status, printed) = asked(&[script, &url], async |what| {
        match what {
            "sink away" => hook.stop(),
            "sink back" => hook.start_again(),
            "kill other" => other.kill(),
            "store away" => redis.pause(),
            "store back" => redis.resume(),
            "hang" => node.pause(),
            "go on" => node.resume(),
            "restart" => {
                node.kill();
                let_pass(Duration::from_secs(3), Because::Fault).await;
                node.start_again().await;
            }
            _ => return false,
        }
        true
    })
    .await;
    well(status, &format!("{printed}\n{}", node.output()));
}

#[tokio::test]
async fn files_are_kept_for_good_under_their_hash_and_the_page_is_not() {
    let node = Node::start_embedded(PROGRAM, CONFIG).await;
    let page = client().get(node.url()).send().await.unwrap();
    let header = |answer: &reqwest::Response, name: &str| {
        answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    assert_eq!(header(&page, "cache-control"), "no-cache");
    let tag = header(&page, "etag");
    let again = client().get(node.url()).header("if-none-match", format!("\"other\", {tag}")).send().await.unwrap();
    assert_eq!((again.status().as_u16(), header(&again, "etag")), (304, tag));
    let other = client().get(node.url()).header("if-none-match", "\"other\"").send().await.unwrap();
    assert_eq!(other.status(), 200);
    let policy = header(&page, "content-security-policy");
    assert!(policy.contains("script-src 'self'") && policy.contains("require-trusted-types-for 'script'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let html = page.text().await.unwrap();
    let script = html.split('"').find(|part| part.ends_with("/start.js")).unwrap();
    let file = client().get(format!("{}/{script}", node.url())).send().await.unwrap();
    assert_eq!(header(&file, "cache-control"), "public, max-age=31536000, immutable");
    let packed =
        client().get(format!("{}/{script}", node.url())).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(header(&packed, "content-encoding"), "gzip");
    let hash = script.split('/').nth(1).unwrap();
    let old = client().get(format!("{}/{}", node.url(), script.replace(hash, "0000"))).send().await.unwrap();
    assert_eq!((old.status().as_u16(), header(&old, "cache-control")), (200, "no-store".to_owned()));
    let none = client().get(format!("{}/console/{hash}/../Cargo.toml", node.url())).send().await.unwrap();
    assert_eq!(none.status(), 404);
}

#[tokio::test]
async fn a_console_with_an_address_of_its_own_is_there_and_not_at_the_nodes() {
    let port = duetime_testkit::servers::free_port();
    let tokens = "[[auth.tokens]]\nname = \"ops\"\nsecret = \"ops-0123456789abcdef\"\nscopes = [\"admin\"]\n";
    let node = Node::start_embedded(PROGRAM, &format!("[console]\nlisten = \"127.0.0.1:{port}\"\n{tokens}")).await;
    let own = format!("http://127.0.0.1:{port}");
    assert_eq!(client().get(node.url()).send().await.unwrap().status(), 404);
    let page = client().get(&own).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.headers().contains_key("content-security-policy"));
    // The API is at both, with the same guards.
    for url in [node.url(), own.clone()] {
        assert_eq!(client().get(format!("{url}/v1/topics")).send().await.unwrap().status(), 401);
        let known = client().get(format!("{url}/v1/topics")).bearer_auth("ops-0123456789abcdef");
        assert_eq!(known.send().await.unwrap().status(), 200);
        let foreign = client().get(format!("{url}/v1/topics")).header("host", "evil.example");
        assert_eq!(foreign.send().await.unwrap().status(), 421);
    }
}

/// A certificate for 127.0.0.1 of its own authority, in `folder`: `NAME.pem` and `NAME-key.pem`.
fn certify(folder: &Path, name: &str) -> reqwest::Certificate {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    reqwest::Certificate::from_pem(certificate.pem().as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_with_an_address_of_its_own_has_the_tls_of_its_node() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let first = certify(folder.path(), "node");
    let path = |name: &str| folder.path().join(name);
    let [address, own] = [0, 1].map(|_| format!("127.0.0.1:{}", duetime_testkit::servers::free_port()));
    let tls = format!("tls = {{ cert = {:?}, key = {:?} }}", path("node.pem"), path("node-key.pem"));
    std::fs::write(path("duetime.toml"), format!("[node]\n{tls}\n[console]\nlisten = {own:?}\n")).unwrap();
    let node = tokio::process::Command::new(PROGRAM)
        .current_dir(folder.path())
        .args(["serve", "--config", "duetime.toml", "--listen", &address, "--store", "embedded:data"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let with = |authority: &reqwest::Certificate| {
        reqwest::Client::builder().tls_certs_only([authority.clone()]).build().unwrap()
    };
    let page = async |authority: &reqwest::Certificate| with(authority).get(format!("https://{own}/")).send().await;
    let begun = tokio::time::Instant::now();
    while page(&first).await.is_err() {
        in_time!(begun.elapsed() < PATIENCE, "the console is there");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    // The page and the API have the node's certificate, and nothing is served in clear.
    let answer = page(&first).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["referrer-policy"], "no-referrer");
    let topics = with(&first).get(format!("https://{own}/v1/topics")).send().await.unwrap();
    assert_eq!(topics.status(), 200);
    assert!(client().get(format!("http://{own}/")).send().await.is_err(), "the console is served in clear");
    assert_eq!(with(&first).get(format!("https://{address}/")).send().await.unwrap().status(), 404);

    // A browser shows it, with its stream of events.
    let python = std::env::var("DUETIME_TEST_PYTHON").expect("run the tests with `./test`");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/tls.py");
    let seen = tokio::process::Command::new(python).args([script, &format!("https://{own}")]).output().await.unwrap();
    well(seen.status, &String::from_utf8_lossy(&seen.stderr));

    // A certificate that is renewed is that of the console too.
    let second = certify(folder.path(), "node");
    let begun = tokio::time::Instant::now();
    while page(&second).await.is_err() {
        in_time!(begun.elapsed() < PATIENCE, "the console has the new certificate");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    assert!(page(&first).await.is_err(), "the old certificate is still given");
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_that_is_off_serves_nothing_and_one_that_is_read_only_says_so() {
    let off = Node::start_embedded(PROGRAM, "[console]\nmode = \"off\"\n").await;
    assert_eq!(client().get(off.url()).send().await.unwrap().status(), 404);
    let read_only = Node::start_embedded(PROGRAM, "[console]\nmode = \"read-only\"\n").await;
    let html = client().get(read_only.url()).send().await.unwrap().text().await.unwrap();
    assert!(html.contains("data-mode=\"read-only\""), "{html}");
    // It offers no change on any screen, to anybody.
    let python = std::env::var("DUETIME_TEST_PYTHON").expect("run the tests with `./test`");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/console/read_only.py");
    let seen = tokio::process::Command::new(python).args([script, &read_only.url()]).output().await.unwrap();
    well(seen.status, &String::from_utf8_lossy(&seen.stderr));
}
