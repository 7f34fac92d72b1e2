//! `duetime top`: topics, nodes, sinks, a forecast and one topic live, in the terminal. Asks the API once each `--every`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use duetime_client::{Client, ClientError, GoneNode, NodeView, Nodes};
use duetime_core::Clock as _;
use futures::future::LocalBoxFuture;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;

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
    Ok(Look { at, topics: topics?, nodes, rates: Some(rates?), forecast: forecast.unwrap_or(None) })
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
    loop {
        terminal.draw(|frame| screen.draw(frame)).context("drawing")?;
        tokio::select! {
            biased;
            key = pressed.recv() => match key.map(|key| screen.press(key)) {
                Some(Asked::Quit) | None => return Ok(true),
                Some(Asked::Nothing) => {}
                // What was asked for another page is not waited for.
                Some(Asked::Look) => asked = Some(Box::pin(look(client, screen.page.clone()))),
            },
            answer = async { asked.as_mut().expect("it is under way").await }, if asked.is_some() => {
                asked = None;
                match answer {
                    Ok(fresh) => (screen.look, screen.issue) = (fresh, None),
                    Err(error) => screen.issue = Some(error.to_string()),
                }
            }
            _ = ticks.tick(), if asked.is_none() => asked = Some(Box::pin(look(client, screen.page.clone()))),
        }
    }
}
