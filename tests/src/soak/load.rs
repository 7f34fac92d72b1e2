//! Producers: messages come in, and some are cancelled, given another time, or replaced.
//!
//! Each id has one producer, which makes one change after the other.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::WallClock;
use duetime_testkit::history::{Change, What, digest};
use duetime_testkit::wait::{Because, let_pass_until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Options;
use super::world::{Shared, TOPICS};
use crate::crash::Draw;

const PRODUCERS: u64 = 4;
/// Items of one request.
const BATCH: u64 = 12;
/// Messages fall due this long after their enqueue.
const DUE_IN_MS: std::ops::Range<i64> = 200..12_000;
/// A change comes this long after the enqueue, at most: mostly before the message is due, and now and then with it.
const CHANGED_AFTER_MS: u64 = 3_000;
/// Messages of a batch that are given another time: each is a request of its own.
const MOVED: usize = 3;
/// Batches that wait to be changed.
const CHANGES_MAX: usize = 64;

/// A batch that was taken and is to be changed.
struct Planned {
    at: Instant,
    topic: &'static str,
    ids: Vec<String>,
}

struct Producer {
    name: String,
    shared: Arc<Shared>,
    draw: Draw,
    planned: Vec<Planned>,
    sent: usize,
}

/// Starts a round's producers; each answers how many messages it made.
pub fn start(shared: &Arc<Shared>, options: &Options, round: usize) -> JoinSet<usize> {
    shared.producing(true);
    let mut producers = JoinSet::new();
    let every = Duration::from_secs_f64((PRODUCERS * BATCH) as f64 / options.rate as f64);
    for n in 0..PRODUCERS {
        let producer = Producer {
            name: format!("r{round}-p{n}"),
            shared: shared.clone(),
            draw: Draw::new(options.seed, 100 + 10 * round as u64 + n),
            planned: Vec::new(),
            sent: 0,
        };
        producers.spawn(producer.run(every));
    }
    producers
}

fn due_in(draw: &mut Draw) -> i64 {
    let span = u64::try_from(DUE_IN_MS.end - DUE_IN_MS.start).expect("a range");
    WallClock.now().as_millis() + DUE_IN_MS.start + i64::try_from(draw.below(span)).expect("small")
}

impl Producer {
    async fn run(mut self, every: Duration) -> usize {
        while self.shared.is_producing() {
            let next = Instant::now() + every;
            self.enqueue().await;
            while let Some(n) = self.planned.iter().position(|planned| planned.at <= Instant::now()) {
                let planned = self.planned.swap_remove(n);
                self.change(planned).await;
            }
            let_pass_until(next, Because::Rate).await;
        }
        self.sent
    }

    /// Notes what is asked, asks, and notes what was answered; the ids that were taken.
    async fn put(&mut self, topic: &str, ids: &[String], version: &str, conflict: &str) -> Vec<String> {
        let mut items = Vec::new();
        for id in ids {
            let due_at_ms = due_in(&mut self.draw);
            let payload = format!("{topic} {id} {version}");
            let change = Change::Enqueue { due_at_ms, payload: digest(payload.as_bytes()) };
            self.shared.recorder.note(topic, id, What::Invoked(change));
            items.push(json!({"id": id, "due_at": due_at_ms, "payload": payload, "on_conflict": conflict}));
        }
        self.ask(Method::POST, topic, "/messages", &json!(items), ids, false).await
    }

    /// Asks for one change of each id in one request; the ids whose answers are binding.
    async fn ask(
        &self,
        method: Method,
        topic: &str,
        path: &str,
        body: &Value,
        ids: &[String],
        is_edit: bool,
    ) -> Vec<String> {
        let told = self.shared.call(method, topic, path, body).await;
        let mut done = Vec::new();
        for (n, id) in ids.iter().enumerate() {
            let what = told.as_ref().map_or(What::Unanswered, |told| {
                let answer = if told.body["results"].is_array() { &told.body["results"][n] } else { &told.body };
                self.shared.meaning(told.asked, answer, is_edit)
            });
            if matches!(what, What::Answered { .. }) {
                done.push(id.clone());
            }
            self.shared.recorder.note(topic, id, what);
        }
        done
    }

    async fn enqueue(&mut self) {
        let topic = TOPICS[usize::try_from(self.draw.below(2)).expect("small")];
        let first = self.sent;
        self.sent += usize::try_from(BATCH).expect("small");
        let ids: Vec<String> = (first..self.sent).map(|n| format!("{}-{n}", self.name)).collect();
        let ids = self.put(topic, &ids, "first", "reject").await;
        if !ids.is_empty() && self.draw.below(2) == 0 && self.planned.len() < CHANGES_MAX {
            let at = Instant::now() + Duration::from_millis(self.draw.below(CHANGED_AFTER_MS));
            self.planned.push(Planned { at, topic, ids });
        }
    }

    async fn change(&mut self, planned: Planned) {
        let Planned { topic, ids, .. } = planned;
        let recorder = self.shared.recorder.clone();
        match self.draw.below(4) {
            0 | 1 => {
                ids.iter().for_each(|id| recorder.note(topic, id, What::Invoked(Change::Cancel)));
                self.ask(Method::POST, topic, "/cancel", &json!({"ids": ids}), &ids, true).await;
            }
            2 => {
                for id in ids.into_iter().take(MOVED) {
                    let due_at_ms = due_in(&mut self.draw);
                    recorder.note(topic, &id, What::Invoked(Change::Reschedule { due_at_ms }));
                    let (path, body) = (format!("/messages/{id}"), json!({ "due_at": due_at_ms }));
                    self.ask(Method::PATCH, topic, &path, &body, &[id], true).await;
                }
            }
            _ => drop(self.put(topic, &ids, "second", "replace").await),
        }
    }
}
