//! What a user asks of the nodes, and which of the answers are binding.

use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_testkit::history::What;
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::world::Shared;

/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(12);
/// A node asks its store again after five seconds.
const REPEATED_AFTER: Duration = Duration::from_secs(4);

/// An answer, and when it was asked for.
pub struct Told {
    pub asked: Instant,
    pub body: Value,
}

impl Shared {
    /// Asks a node that is up; `None`: whether it was done is unknown, or it was refused as a whole.
    pub async fn call(&self, method: Method, topic: &str, path: &str, body: &Value) -> Option<Told> {
        let up: Vec<usize> = (0..self.up.len()).filter(|n| self.up[*n].load(Ordering::Relaxed)).collect();
        let Some(node) = (!up.is_empty()).then(|| up[rand::random_range(0..up.len())]) else {
            let_pass(Duration::from_millis(200), Because::AskedAgain).await;
            return None;
        };
        let url = format!("{}/v1/topics/{topic}{path}", self.urls[node]);
        let asked = Instant::now();
        let answer = self.http.request(method, url).json(body).timeout(ANSWER_WITHIN).send().await.ok()?;
        let status = answer.status();
        let body: Value = answer.json().await.ok()?;
        let passes = status.is_success() || status.as_u16() == 404 || status.as_u16() == 409;
        let away = matches!(status.as_u16(), 503 | 507);
        assert!(passes || away, "{topic}{path}: {status} {body}");
        passes.then_some(Told { asked, body })
    }

    /// What an answer to one change means for the history.
    pub fn meaning(&self, asked: Instant, answer: &Value, is_edit: bool) -> What {
        let word = answer["outcome"].as_str().or(answer["code"].as_str());
        let Some(word) = word.map(|word| if word == "unknown_message" { "unknown" } else { word }) else {
            return What::Unanswered;
        };
        let reached = answer["replicas"].as_u64();
        if is_edit && reached.is_some() {
            self.edits_say.store(true, Ordering::Relaxed);
        }
        // Without a replica that has it, it may be lost with its master, and the answer says so.
        let says = !is_edit || self.edits_say.load(Ordering::Relaxed);
        if self.is_replicated && says && matches!(word, "scheduled" | "replaced" | "cancelled" | "rescheduled") {
            let is_safe = reached.is_some_and(|reached| reached > 0);
            if !is_safe {
                return What::Unanswered;
            }
        }
        // The answer of the first of two calls may have been lost.
        let is_second = asked.elapsed() > REPEATED_AFTER && self.store_failed_since(asked);
        if is_second && matches!(word, "unknown" | "duplicate") {
            return What::Unanswered;
        }
        What::Answered { outcome: word.to_owned() }
    }
}
