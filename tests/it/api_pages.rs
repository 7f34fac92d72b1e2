//! The pages of the HTTP API: each request of a page is sent to a real node, from top to bottom, and is answered as the
//! page says.

mod answer;
mod in_document;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use duetime_testkit::servers::{Node, NodeOptions, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Webhook;
use reqwest::Method;
use serde_json::Value;
use tokio::process::Command;

use crate::test_node::ask;
use answer::Answer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api");
const PAGES: [&str; 4] = ["produce", "consume", "topics", "operate"];
/// The address in the pages, which stands for that of the node.
const ADDRESS: &str = "http://127.0.0.1:3830";
/// The address in them of a node that has a test clock.
const WITH_TEST_CLOCK: &str = "http://127.0.0.1:3832";
/// The address in them of one that shares shards with another, `node-2`.
const ONE_OF_TWO: &str = "http://127.0.0.1:3833";
/// Options of each curl: the status goes where it is not mixed with the answer.
const CURLRC: &str =
    "silent\nshow-error\nnoproxy = \"*\"\nmax-time = 60\nwrite-out = \"%{stderr}\\nstatus %{http_code}\"\n";

/// One request of a page, with its answer.
struct Example {
    /// Method and path of the section that it is in.
    route: String,
    /// Line of the page that the request begins at.
    line: usize,
    request: String,
    status: String,
    answer: Answer,
}

fn page(name: &str) -> String {
    let path = Path::new(FOLDER).join(format!("{name}.md"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the blocks of code of a page: line, language, text, and the line of text above the block.
fn blocks(page: &str) -> Vec<(usize, &str, String, &str)> {
    let mut found = Vec::new();
    let (mut above, mut lines) = ("", (1..).zip(page.lines()));
    while let Some((number, line)) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            found.push((number, language, text.join("\n"), above));
        } else if !line.is_empty() {
            above = line;
        }
    }
    found
}

/// Returns the route of each section: below a heading is "`METHOD path`". With the line that it is in.
fn sections(page: &str) -> Vec<(usize, &str)> {
    let lines = (1..).zip(page.lines());
    let words = lines.filter_map(|(line, text)| Some((line, text.strip_prefix('`')?.split_once('`')?.0)));
    let methods = ["GET /", "PUT /", "POST /", "PATCH /", "DELETE /"];
    words.filter(|(_, route)| methods.iter().any(|method| route.starts_with(method))).collect()
}

/// Returns the requests of a page: `sh` blocks, each followed by `Answer (STATUS):` and a block with the answer.
fn examples(page: &str) -> Vec<Example> {
    let mut found = Vec::new();
    let sections = sections(page);
    let mut blocks = blocks(page).into_iter();
    while let Some((line, language, request, _)) = blocks.next() {
        assert_eq!(language, "sh", "line {line}: a block is neither a request nor the answer to one");
        let (at, language, text, above) = blocks.next().unwrap_or_else(|| panic!("line {line} has no answer"));
        let status = above.strip_prefix("Answer (").and_then(|rest| rest.strip_suffix("):"));
        let status = status.unwrap_or_else(|| panic!("line {at}: above the answer is no \"Answer (STATUS):\""));
        let answer = match language {
            "json" => Answer::json(&text).unwrap_or_else(|error| panic!("line {at}: {error}:\n{text}")),
            "text" => Answer::Text(text),
            other => panic!("line {at}: an answer in {other:?}"),
        };
        let route = sections.iter().rev().find(|(above, _)| *above < line).map_or("", |(_, route)| route).to_owned();
        found.push(Example { route, line, request, status: status.to_owned(), answer });
    }
    found
}

/// Nodes that are not as the one of a page is, where the page asks one.
struct Others {
    _redis: RedisServer,
    with_test_clock: Node,
    pair: Vec<Node>,
}

impl Others {
    async fn start() -> Self {
        let options = NodeOptions { flags: vec!["--test-clock"], ..NodeOptions::default() };
        let with_test_clock = Node::start_as(PROGRAM, "embedded:data", "", options).await;
        let redis = RedisServer::start().await;
        let mut pair = Vec::new();
        for id in ["node-1", "node-2"] {
            let config = format!("[node]\nid = {id:?}\n[ownership]\nmode = \"round-robin\"\n");
            pair.push(Node::start(PROGRAM, &redis.url(), &config).await);
        }
        let know_each_other = async || {
            let (_, all) = ask(&pair[0], Method::GET, "/v1/nodes", &Value::Null).await;
            all["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)
        };
        while !know_each_other().await {
            let_pass(Duration::from_millis(100), Because::AskedAgain).await;
        }
        Self { _redis: redis, with_test_clock, pair }
    }
}

/// Sends each request of a page to a node of its own.
async fn run(name: &str) {
    let webhook = Webhook::start();
    let sink = format!("[sinks.shop]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]\n", webhook.url("/due"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shop-token"), "Bearer secret").unwrap();
    let by_api = format!(
        "[sinks_by_api]\nenabled = true\nsecrets = {:?}\ntargets = [\"https://*.shop.example\"]\n",
        folder.path()
    );
    let node = Node::start_embedded(PROGRAM, &format!("[node]\nid = \"node-1\"\n{sink}{by_api}")).await;
    std::fs::write(folder.path().join(".curlrc"), CURLRC).unwrap();
    let text = page(name);
    let asks_others = [WITH_TEST_CLOCK, ONE_OF_TWO].iter().any(|address| text.contains(address));
    let others = if asks_others { Some(Others::start().await) } else { None };
    let mut known = BTreeMap::new();
    for Example { route, line, request, status, answer } in examples(&text) {
        let mut asked = request.replace(ADDRESS, &node.url());
        if let Some(others) = &others {
            asked = asked.replace(WITH_TEST_CLOCK, &others.with_test_clock.url());
            asked = asked.replace(ONE_OF_TWO, &others.pair[0].url());
        }
        let place = format!("docs/api/{name}.md:{line}: {request}");
        let mut command = Command::new("sh");
        command.args(["-c", &asked]).current_dir(folder.path());
        command.env("HOME", folder.path()).env_remove("CURL_HOME").env_remove("XDG_CONFIG_HOME");
        command.envs(known.iter().filter(|(name, _)| request.contains(&format!("${name}"))));
        let output = command.output().await.unwrap();
        let [said, other] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let answered = other.rsplit_once("status ").map_or("", |(_, status)| status.lines().next().unwrap_or_default());
        assert_eq!(answered, status, "{place}\nanswered {said}\n{other}");
        in_document::record(&route, &request, &known, &status, &said);
        answer.matches(&said, &mut known).unwrap_or_else(|error| panic!("{place}\n{error}\nanswered {said}"));
    }
}

#[tokio::test]
async fn requests_of_producers_are_answered_as_their_page_says() {
    run("produce").await;
}

#[tokio::test]
async fn requests_of_consumers_are_answered_as_their_page_says() {
    run("consume").await;
}

#[tokio::test]
async fn requests_about_topics_are_answered_as_their_page_says() {
    run("topics").await;
}

#[tokio::test]
async fn requests_of_operators_are_answered_as_their_page_says() {
    run("operate").await;
}

#[test]
fn each_route_has_one_section_with_a_request_and_its_answer() {
    let api = serde_json::to_value(duetime_http::openapi()).unwrap();
    let paths = api["paths"].as_object().unwrap().iter();
    let wanted: BTreeSet<String> = paths
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    let mut found = BTreeSet::new();
    for text in PAGES.map(page) {
        for (_, route) in sections(&text) {
            assert!(found.insert(route.to_owned()), "{route} has two sections");
        }
    }
    assert_eq!(found, wanted);
}

#[test]
fn each_operation_of_the_document_has_the_example_of_its_page() {
    in_document::check();
}
