//! `duetime top`: the topics live, in the terminal. Reads the counts from the API and the rates and
//! the lateness from `/metrics`, once each `--every`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use duetime_client::{Client, ClientError, Topic};
use duetime_core::{Clock as _, Timestamp};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Constraint;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Block, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

use super::observe::TopArgs;
use super::output;
use super::topic::{named, sink_of};
use crate::clock::SystemClock;

/// Shortest time between two looks.
const EVERY_MIN: Duration = Duration::from_millis(200);

/// How long one wait for a key lasts.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// What `/metrics` tells of one topic.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counters {
    scheduled: f64,
    delivered: f64,
    /// Upper edge in seconds and count up to it, growing.
    lateness: Vec<(f64, f64)>,
}

/// One look.
#[derive(Debug)]
struct Look {
    at: Timestamp,
    topics: Vec<Topic>,
    counters: BTreeMap<String, Counters>,
}

/// One row of the screen.
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    counts: [u64; 4],
    in_rate: f64,
    out_rate: f64,
    p99_s: Option<f64>,
    oldest: String,
    sink: String,
    is_down: bool,
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
    let rest = &labels[start..];
    Some(&rest[..rest.find('"')?])
}

/// Reads the few metrics that are shown. Topic names and our label values hold no escapes.
fn read_metrics(text: &str) -> BTreeMap<String, Counters> {
    let mut found: BTreeMap<String, Counters> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("duetime_")) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Some((name, labels)) = series.split_once('{') else { continue };
        let (Some(topic), Ok(value)) = (label(labels, "topic"), value.parse::<f64>()) else { continue };
        match (name, label(labels, "event"), label(labels, "le")) {
            ("duetime_messages_total", Some("scheduled"), _) => {
                found.entry(topic.to_owned()).or_default().scheduled = value;
            }
            ("duetime_messages_total", Some("delivered"), _) => {
                found.entry(topic.to_owned()).or_default().delivered = value;
            }
            ("duetime_lateness_seconds_bucket", _, Some(edge)) => {
                let edge = if edge == "+Inf" { f64::INFINITY } else { edge.parse().unwrap_or(f64::INFINITY) };
                found.entry(topic.to_owned()).or_default().lateness.push((edge, value));
            }
            _ => {}
        }
    }
    found
}

/// The p99 of what was delivered between two looks: the upper edge of its bucket.
fn p99(before: &[(f64, f64)], after: &[(f64, f64)]) -> Option<f64> {
    let counts: Vec<(f64, f64)> = after
        .iter()
        .enumerate()
        .map(|(at, (edge, count))| (*edge, count - before.get(at).map_or(0.0, |(_, count)| *count)))
        .collect();
    let total = counts.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
    counts.iter().find(|(_, count)| *count >= total * 0.99).map(|(edge, _)| *edge)
}

fn lines(before: Option<&Look>, look: &Look) -> Vec<Line> {
    let none = Counters::default();
    let seconds = before.map_or(0.0, |before| look.at.since(before.at).as_secs_f64());
    let line = |topic: &Topic| {
        let new = look.counters.get(&topic.name).unwrap_or(&none);
        let old = before.and_then(|before| before.counters.get(&topic.name));
        // A counter that fell means a node that was started anew.
        let rate = |new: f64, old: Option<f64>| match old {
            Some(old) if seconds > 0.0 && new >= old => (new - old) / seconds,
            _ => 0.0,
        };
        Line {
            name: named(topic),
            counts: [topic.scheduled, topic.due, topic.in_flight, topic.dead],
            in_rate: rate(new.scheduled, old.map(|old| old.scheduled)),
            out_rate: rate(new.delivered, old.map(|old| old.delivered)),
            p99_s: old.and_then(|old| p99(&old.lateness, &new.lateness)),
            oldest: topic.oldest_due_at.map_or_else(String::new, output::away),
            sink: topic.sink.as_ref().map_or_else(String::new, |sink| sink_of(topic, &sink.name)),
            is_down: topic.sink_trouble.is_some(),
        }
    };
    look.topics.iter().map(line).collect()
}

async fn look(client: &Client) -> Result<Look, ClientError> {
    let (topics, metrics) = (client.topics().await?, client.metrics().await?);
    Ok(Look { at: SystemClock.now(), topics, counters: read_metrics(&metrics) })
}

fn shown_p99(p99: Option<f64>) -> String {
    match p99 {
        None => "–".to_owned(),
        Some(edge) if edge.is_infinite() => "over 1 h".to_owned(),
        Some(edge) if edge < 1.0 => format!("≤ {} ms", edge * 1000.0),
        Some(edge) => format!("≤ {edge} s"),
    }
}

fn draw(frame: &mut Frame<'_>, title: &str, lines: &[Line]) {
    let head = ["topic", "scheduled", "due", "in flight", "dead", "in/s", "out/s", "late p99", "oldest due", "sink"];
    let rows = lines.iter().map(|line| {
        let [scheduled, due, in_flight, dead] = line.counts;
        let row = Row::new([
            line.name.clone(),
            scheduled.to_string(),
            due.to_string(),
            in_flight.to_string(),
            dead.to_string(),
            format!("{:.0}", line.in_rate),
            format!("{:.0}", line.out_rate),
            shown_p99(line.p99_s),
            line.oldest.clone(),
            line.sink.clone(),
        ]);
        match (line.is_down, dead > 0) {
            (true, _) => row.style(Style::new().fg(Color::Red)),
            (false, true) => row.style(Style::new().fg(Color::Yellow)),
            (false, false) => row,
        }
    });
    let mut widths = vec![Constraint::Min(12)];
    widths.extend([10, 10, 10, 8, 8, 8, 10, 16, 20].map(Constraint::Length));
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title(title.to_owned()).title_bottom(" q quits "));
    frame.render_widget(table, frame.area());
}

/// Runs until `q`, Esc or Ctrl-C.
pub async fn run(args: TopArgs) -> anyhow::Result<bool> {
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    ensure!(is_terminal, "top wants a terminal; use `duetime status` or `duetime status --json` here");
    let client = args.connection.client()?;
    // The first look happens before the screen is taken, so that its error can be read.
    let first = look(&client).await?;
    let mut terminal = ratatui::try_init().context("taking the terminal")?;
    let answer = watch(&mut terminal, &client, args.every.max(EVERY_MIN), first).await;
    ratatui::restore();
    answer
}

async fn watch(terminal: &mut DefaultTerminal, client: &Client, every: Duration, first: Look) -> anyhow::Result<bool> {
    let (press, mut pressed) = mpsc::channel(8);
    std::thread::spawn(move || {
        while !press.is_closed() {
            if !event::poll(KEY_WAIT).unwrap_or(false) {
                continue;
            }
            let Ok(seen) = event::read() else { return };
            let quits = matches!(&seen, Event::Key(key) if key.kind == KeyEventKind::Press
                && (matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
                    || (key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL))));
            if press.blocking_send(quits).is_err() {
                return;
            }
        }
    });
    let base = client.base().to_owned();
    let (mut last, mut shown) = (first, Vec::new());
    shown.extend(lines(None, &last));
    let mut title = format!(" duetime top · {base} ");
    let mut ticks = tokio::time::interval(every);
    loop {
        terminal.draw(|frame| draw(frame, &title, &shown)).context("drawing")?;
        tokio::select! {
            biased;
            key = pressed.recv() => match key {
                Some(true) | None => return Ok(true),
                Some(false) => continue,
            },
            _ = ticks.tick() => {}
        }
        match look(client).await {
            Ok(fresh) => {
                shown = lines(Some(&last), &fresh);
                title = format!(" duetime top · {base} · {} ", fresh.at);
                last = fresh;
            }
            Err(error) => title = format!(" duetime top · {error} "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
duetime_messages_total{event=\"scheduled\",topic=\"orders\"} 100
duetime_messages_total{event=\"delivered\",topic=\"orders\"} 10
duetime_lateness_seconds_bucket{topic=\"orders\",le=\"0.001\"} 5
duetime_lateness_seconds_bucket{topic=\"orders\",le=\"0.005\"} 10
duetime_lateness_seconds_bucket{topic=\"orders\",le=\"+Inf\"} 10
";

    #[test]
    fn lateness_and_rates_are_those_between_two_looks() {
        let before = read_metrics(BEFORE);
        let after = read_metrics(
            &BEFORE.replace("} 100\n", "} 300\n").replace("0.001\"} 5", "0.001\"} 104").replace("} 10\n", "} 110\n"),
        );
        let topic: Topic = serde_json::from_value(serde_json::json!({
            "name": "orders", "shards": 4, "visibility_timeout": "30s", "retry": {}, "delivery": "at-least-once",
            "max_payload": 10, "scheduled": 7, "due": 2, "in_flight": 1, "dead": 3,
            "sink": {"name": "shop"}, "sink_trouble": {"state": "down", "since": 5, "reason": "refused"}
        }))
        .unwrap();
        let look = |at, counters| Look { at: Timestamp::from_millis(at), topics: vec![topic.clone()], counters };
        let (before, after) = (look(1_000, before), look(3_000, after));
        let line = &lines(Some(&before), &after)[0];
        assert_eq!((line.in_rate, line.out_rate, line.p99_s), (100.0, 50.0, Some(0.001)));
        assert_eq!(line.counts, [7, 2, 1, 3]);
        assert_eq!(lines(None, &after)[0].p99_s, None);
        let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(140, 6)).unwrap();
        terminal.draw(|frame| draw(frame, " duetime top ", std::slice::from_ref(line))).unwrap();
        let screen = format!("{}", terminal.backend());
        assert!(
            screen.contains("orders")
                && screen.contains("≤ 1 ms")
                && screen.contains("shop (down)")
                && screen.contains("q quits"),
            "{screen}"
        );
    }
}
