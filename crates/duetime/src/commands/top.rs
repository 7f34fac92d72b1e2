//! `duetime top`: topics, nodes, sinks, a forecast and one topic live, in the terminal. Asks the API once each `--every`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use duetime_client::{Client, ClientError, GoneNode, NodeView, Nodes, Rates, Topic};
use duetime_core::Clock as _;
use futures::future::LocalBoxFuture;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::observe::TopArgs;
use super::output;
use super::top_screen::{Asked, Look, Page, Screen};
use crate::clock::SystemClock;

/// Shortest time between two looks.
const EVERY_MIN: Duration = Duration::from_millis(200);
/// How long one wait for a key lasts.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Keys that wait to be read.
const KEYS_MAX: usize = 8;
/// How often it is said that an answer is waited for.
const SAID_EVERY: Duration = Duration::from_secs(1);
/// The forecast: the coming hour.
const BUCKET: Duration = Duration::from_secs(300);
const BUCKETS: usize = 12;

/// The line of a node that went.
fn went(node: GoneNode) -> NodeView {
    let how = if node.stopped { "stopped" } else { "gone" };
    NodeView {
        id: node.id,
        state: format!("{how} {}", output::away(node.gone_at)),
        unhealthy: None,
        drain: None,
        address: node.address,
        since: node.since,
        mode: String::new(),
        version: node.version,
        shards_owned: 0,
        topics: BTreeMap::new(),
        vitals: None,
    }
}

/// Takes a sink to be down as soon as one node does: the one that is asked may not have tried it.
fn with_issues_of_all(topics: &mut [Topic], rates: &Rates) {
    for topic in topics.iter_mut().filter(|topic| topic.sink_issue.is_none() && topic.config.sink.is_some()) {
        let said = rates.topics.iter().filter(|one| one.topic == topic.name).flat_map(|one| &one.sink_issues);
        let worst = said.max_by_key(|one| one.issue.state == "down");
        topic.sink_issue = worst.map(|one| one.issue.clone());
    }
}

async fn look(client: &Client, page: Page) -> Result<Look, ClientError> {
    let forecast = async {
        match &page {
            Page::Forecast(topic) => client.forecast(topic, BUCKET, BUCKETS).await.map(Some),
            _ => Ok(None),
        }
    };
    let (topics, nodes, rates, forecast) =
        tokio::join!(client.topics(), client.all_nodes(), client.cluster_rates(), forecast);
    let at = SystemClock.now().as_millis();
    // A topic that is gone has no forecast; the page says so.
    let Nodes { mut nodes, gone } = nodes?;
    nodes.extend(gone.into_iter().map(went));
    let (mut topics, rates) = (topics?, rates?);
    with_issues_of_all(&mut topics, &rates);
    Ok(Look { at, topics, nodes, rates: Some(rates), forecast: forecast.unwrap_or(None) })
}

/// Runs until `q` or Ctrl-C.
pub async fn run(args: TopArgs) -> anyhow::Result<bool> {
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    ensure!(is_terminal, "top wants a terminal; use `duetime status` or `duetime status --json` here");
    let client = args.connection.client()?;
    // The first look happens before the screen is taken, so that its error can be read.
    let first = look(&client, Page::Topics).await?;
    let mut terminal = ratatui::try_init().context("taking the terminal")?;
    let answer = watch(&mut terminal, &client, args.every.max(EVERY_MIN), first).await;
    ratatui::restore();
    answer
}

/// Reads keys on a thread of its own, until nobody listens.
fn keys() -> mpsc::Receiver<KeyEvent> {
    let (press, pressed) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while !press.is_closed() {
            if !event::poll(KEY_WAIT).unwrap_or(false) {
                continue;
            }
            match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press && press.blocking_send(key).is_err() => return,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    pressed
}

async fn watch(terminal: &mut DefaultTerminal, client: &Client, every: Duration, first: Look) -> anyhow::Result<bool> {
    let mut pressed = keys();
    let mut screen = Screen::new(client.base().to_owned(), first);
    let mut ticks = tokio::time::interval(every);
    // A look under way: keys act meanwhile, however long the node takes.
    let mut asked: Option<LocalBoxFuture<'_, Result<Look, ClientError>>> = None;
    let mut since = Instant::now();
    let mut waits = tokio::time::interval(SAID_EVERY);
    loop {
        terminal.draw(|frame| screen.draw(frame)).context("drawing")?;
        tokio::select! {
            biased;
            key = pressed.recv() => match key.map(|key| screen.press(key)) {
                Some(Asked::Quit) | None => return Ok(true),
                Some(Asked::Nothing) => {}
                // What was asked for another page is not waited for.
                Some(Asked::Look) => {
                    asked = Some(Box::pin(look(client, screen.page.clone())));
                    since = Instant::now();
                }
            },
            answer = async { asked.as_mut().expect("it is under way").await }, if asked.is_some() => {
                asked = None;
                screen.waited = since.elapsed();
                match answer {
                    Ok(fresh) => (screen.look, screen.issue) = (fresh, None),
                    Err(error) => screen.issue = Some(error.to_string()),
                }
            }
            _ = ticks.tick(), if asked.is_none() => {
                asked = Some(Box::pin(look(client, screen.page.clone())));
                since = Instant::now();
            }
            _ = waits.tick(), if asked.is_some() => screen.waited = screen.waited.max(since.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sink_is_down_as_soon_as_one_node_takes_it_to_be() {
        let topic = |name: &str, fields: serde_json::Value| -> Topic {
            let mut all = json!({
                "name": name, "shards": 1, "visibility_timeout": "30s", "retry": {}, "delivery": "at-least-once",
                "max_payload": 10, "scheduled": 0, "due": 0, "in_flight": 0, "dead": 0, "shard_count": 1
            });
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            serde_json::from_value(all).unwrap()
        };
        let mut topics = [topic("orders", json!({"sink": {"name": "shop"}})), topic("claimed", json!({}))];
        let issue = |node: &str, state: &str| json!({"node": node, "state": state, "reason": node});
        let of = |name: &str| {
            json!({"topic": name, "over_ms": 60_000, "scheduled": 0.0, "cancelled": 0.0, "delivered": 0.0,
                "retried": 0.0, "dead": 0.0, "sink_issues": [issue("n2", "down"), issue("n3", "refused")]})
        };
        let rates = json!({"node": "n1", "topics": [of("orders"), of("claimed")], "sinks": []});
        with_issues_of_all(&mut topics, &serde_json::from_value(rates).unwrap());
        let known = topics.map(|topic| topic.sink_issue.map(|issue| (issue.state, issue.reason)));
        assert_eq!(known, [Some(("down".to_owned(), Some("n2".to_owned()))), None]);
    }
}
