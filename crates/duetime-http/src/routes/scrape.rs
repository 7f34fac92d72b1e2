//! `GET /metrics`, written beside the runtime: thousands of series take some 20 ms of processor time, in which a worker
//! of the runtime would deliver nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use duetime_lines::LineWriter;
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

use crate::auth::Caller;
use crate::json::problem::Problem;
use crate::server::memory;
use crate::server::state::HttpParts;

/// Scrapes that wait for the one that is being written. More are refused.
const WAITING_MAX: usize = 16;

/// What one scrape wrote, which was the `number`th.
#[derive(Debug)]
struct WrittenScrape {
    number: u64,
    text: Bytes,
}

/// Writes one scrape at a time, and gives what it wrote to all who asked before it began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrapes {
    turn: Arc<Mutex<Option<WrittenScrape>>>,
    begun: Arc<AtomicU64>,
    waiting: Arc<AtomicUsize>,
}

/// Counts one that waits.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn wait(waiting: &AtomicUsize) -> Result<Waits<'_>, Problem> {
    // What is counted for a moment too many refuses at worst one that could have waited.
    let waits = Waits(waiting);
    if waiting.fetch_add(1, Ordering::SeqCst) < WAITING_MAX {
        return Ok(waits);
    }
    let detail = format!("{WAITING_MAX} requests wait for metrics already; ask less often, or for longer apart");
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail))
}

/// A panic goes on in the request; else the runtime is ending.
fn ended(error: JoinError) -> Problem {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "the node is ending; ask another one"),
    }
}

impl Scrapes {
    /// What `write` writes, begun after this was called.
    async fn text(&self, write: impl FnOnce() -> String + Send + 'static) -> Result<Bytes, Problem> {
        let asked_at = self.begun.load(Ordering::SeqCst);
        let waits = wait(&self.waiting)?;
        let mut turn = self.turn.clone().lock_owned().await;
        drop(waits);
        let (begun, waiting) = (self.begun.clone(), self.waiting.clone());
        // Whoever leaves last keeps nothing: it is megabytes.
        let others_wait = move || waiting.load(Ordering::SeqCst) > 0;
        if let Some(written) = turn.as_ref().filter(|written| written.number > asked_at) {
            let text = written.text.clone();
            if !others_wait() {
                *turn = None;
            }
            return Ok(text);
        }
        // The turn is over when the text is there, also where nobody waits for it any more.
        let task = move || {
            let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
            let text = Bytes::from(write());
            *turn = others_wait().then(|| WrittenScrape { number, text: text.clone() });
            text
        };
        spawn_blocking(task).await.map_err(ended)
    }

    /// The lines of `text` that `caller` may see; one at a time as well.
    async fn seen_by(&self, caller: Caller, text: Bytes) -> Result<Bytes, Problem> {
        let waits = wait(&self.waiting)?;
        let turn = self.turn.clone().lock_owned().await;
        drop(waits);
        let task = move || {
            let _turn = turn;
            let text = String::from_utf8_lossy(&text);
            // Whoever is for a topic knows its sink, so a line about both goes by the topic.
            let seen = |line: &&str| match (label(line, "topic"), label(line, "sink")) {
                (Some(topic), _) => caller.sees(&topic),
                (None, Some(sink)) => caller.sees_sink(&sink),
                (None, None) => true,
            };
            Bytes::from(text.split_inclusive('\n').filter(seen).collect::<String>())
        };
        spawn_blocking(task).await.map_err(ended)
    }
}

/// Metrics
///
/// Of the topics that the token is for and of the sinks that it may use. Without a token, of all, where `auth.metrics`
/// asks for none. Requests that come together share one answer.
#[utoipa::path(
    get, path = "/metrics", tag = "operations", operation_id = "metrics", security(()),
    responses(
        (status = 200, description = "Prometheus text", body = String, content_type = "text/plain"),
        (status = 401, description = "No token, or one that is not known"),
    )
)]
pub(crate) async fn metrics(
    State(app): State<Arc<HttpParts>>,
    Extension(scrapes): Extension<Scrapes>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = app.auth.caller_of_metrics(&headers)?;
    let meters = app.meters.clone();
    // One tenant does not take all places of those who wait.
    let _turn = memory::turn().await;
    meters.lines_lost("audit", app.options.audit.lost());
    meters.lines_lost("log", duetime_lines::log().map_or(0, LineWriter::lost));
    let mut text = scrapes.text(move || meters.render()).await?;
    if !caller.sees_all() || caller.sinks().is_some() {
        text = scrapes.seen_by(caller, text).await?;
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// The value of the label `name` in a line of metrics; the format escapes backslashes, quotes and ends of lines.
fn label(line: &str, name: &str) -> Option<String> {
    let rest = ['{', ','].iter().find_map(|before| line.split_once(&format!("{before}{name}=\"")))?.1;
    let (mut value, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => value.push(chars.next().map(|c| if c == 'n' { '\n' } else { c })?),
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::mpsc::{Receiver, sync_channel};

    /// Writes the how manieth it is, once the other end of `gate` is gone.
    fn number(counted: &Arc<AtomicU64>, gate: Option<Receiver<()>>) -> impl FnOnce() -> String + Send + 'static {
        let counted = counted.clone();
        move || {
            if let Some(gate) = gate {
                let _ = gate.recv();
            }
            (counted.fetch_add(1, Ordering::SeqCst) + 1).to_string()
        }
    }

    async fn begun(scrapes: &Scrapes) {
        while scrapes.begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_line_is_about_what_its_labels_say_and_a_sink_of_any_name_is_found() {
        assert_eq!(label("a{topic=\"x\",sink=\"y\"} 1", "sink").as_deref(), Some("y"));
        assert_eq!(
            label("a{sink=\"b\\\"\\\\,topic=\\\"x\\n\",type=\"log\"} 1", "sink").as_deref(),
            Some("b\"\\,topic=\"x\n")
        );
        assert_eq!(label("a{kind=\"sink\"} 1", "sink"), None);
        assert_eq!(label("a{sink=\"torn", "sink"), None);
    }

    #[tokio::test]
    async fn those_who_ask_while_one_is_written_share_the_next_and_more_than_the_bound_are_refused() {
        let (scrapes, counted, (closed, gate)) = (Scrapes::default(), Arc::default(), sync_channel(0));
        let first = tokio::spawn({
            let (scrapes, write) = (scrapes.clone(), number(&counted, Some(gate)));
            async move { scrapes.text(write).await }
        });
        begun(&scrapes).await;
        let mut others = Box::pin(join_all((0..=WAITING_MAX).map(|_| scrapes.text(number(&counted, None)))));
        // Polled once, they wait.
        assert!(futures::poll!(&mut others).is_pending());
        drop(closed);
        assert_eq!(first.await.unwrap().ok().unwrap(), "1");
        let answered = others.await;
        let texts: Vec<&Bytes> = answered.iter().flatten().collect();
        assert_eq!((texts.len(), answered.len()), (WAITING_MAX, WAITING_MAX + 1));
        assert!(texts.iter().all(|text| **text == "2"), "none is older than its request: {texts:?}");
        let refused: Vec<&str> = answered.iter().filter_map(|one| one.as_ref().err()).map(|one| one.code).collect();
        assert_eq!(refused, ["busy"]);
        assert!(scrapes.turn.lock().await.is_none(), "nothing is kept");
        assert_eq!(scrapes.text(number(&counted, None)).await.ok().unwrap(), "3");
    }

    #[tokio::test]
    async fn one_that_nobody_waits_for_any_more_is_still_the_only_one() {
        let (scrapes, counted, (closed, gate)) = (Scrapes::default(), Arc::default(), sync_channel(0));
        let mut left = Box::pin(scrapes.text(number(&counted, Some(gate))));
        assert!(futures::poll!(&mut left).is_pending());
        drop(left);
        begun(&scrapes).await;
        let mut next = Box::pin(scrapes.text(number(&counted, None)));
        for _ in 0..100 {
            assert!(futures::poll!(&mut next).is_pending(), "it waits for its turn");
            tokio::task::yield_now().await;
        }
        assert_eq!(counted.load(Ordering::SeqCst), 0);
        drop(closed);
        assert_eq!(next.await.ok().unwrap(), "2");
    }
}
