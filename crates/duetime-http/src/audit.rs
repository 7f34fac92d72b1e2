//! The audit log: a JSON line for every request that changes something, or tries to. Never payloads.
//!
//! A line is written when its request is over: whoever asked, from where, for what, how many items
//! it was about, and how it ended. A stream leaves one when it begins, every minute and when it ends.
//!
//! What administrators do is never lost: its lines wait in room of their own while nothing can be written, and an
//! administrator is refused (`audit_full`) before that is full. Of everything else, what finds the queue full is counted.

pub(crate) mod line;
pub(crate) mod operation;
pub(crate) mod target;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::StatusCode;
use duetime_core::{Clock, Timestamp};
use duetime_lines::Importance;
use duetime_router::{BulkPlan, PlanWatcher};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::audit::line::{AuditLine, NAME_CHARS_MAX, RefusedLines, Ring};
use crate::audit::operation::{ChangeKind, PLAN_ITEM, PUT_TOPIC, RELOAD};
use crate::audit::target::{AuditFile, AuditTarget, FileWriter};
use crate::auth::operations::Operation;
use crate::auth::peer::Peer;
use crate::json::problem::Problem;
use crate::json::trace::trace_of;

/// The log's target of lines, where they go to the node's own log.
pub const TARGET: &str = "duetime::audit";
/// The name there of a line that must not be lost.
pub const KEPT: &str = "kept";

/// A stream that goes on leaves a line so often.
const OPEN_LINE_EVERY: Duration = Duration::from_secs(60);
/// Refused requests without a line, and a file that takes none, are looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(10);

enum AuditOutput {
    Log,
    File(FileWriter),
}

impl AuditOutput {
    fn write(&self, line: &AuditLine) {
        let is_kept = line.kind == ChangeKind::Administration;
        match self {
            Self::Log => {
                let text = serde_json::to_string(line).expect("a line is plain data");
                if is_kept {
                    info!(name: KEPT, target: TARGET, "{text}");
                } else {
                    info!(target: TARGET, "{text}");
                }
            }
            Self::File(file) => {
                let importance = if is_kept { Importance::Kept } else { Importance::Ordinary };
                file.writer.push(line.written(), importance);
            }
        }
    }
}

#[derive(Default)]
struct SharedAudit {
    /// `None`: lines are kept in memory only.
    sink: Option<AuditOutput>,
    ring: Mutex<Ring>,
    refused: Mutex<RefusedLines>,
}

/// Takes lines. Clones write to the same place.
#[derive(Clone, Default)]
pub struct Audit(Arc<SharedAudit>);

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.sink.is_some() { "Audit(on)" } else { "Audit(off)" })
    }
}

impl Audit {
    /// Opens the target; `None`: nothing is written.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub fn open(target: Option<&AuditTarget>) -> Result<Self, String> {
        let sink = match target {
            None => None,
            Some(AuditTarget::Log(_)) => Some(AuditOutput::Log),
            Some(AuditTarget::File(AuditFile { file })) => Some(AuditOutput::File(FileWriter::open(file)?)),
        };
        Ok(Self(Arc::new(SharedAudit { sink, ..SharedAudit::default() })))
    }

    /// The last lines that `wanted` takes, the newest first, at most `limit`.
    pub(crate) fn last(&self, limit: usize, wanted: impl Fn(&AuditLine) -> bool) -> Vec<AuditLine> {
        self.0.ring.lock().last(limit, wanted)
    }

    /// Reopens the file, after it was moved away.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; lines go on to the old file.
    pub fn reopen(&self) -> Result<(), String> {
        match &self.0.sink {
            Some(AuditOutput::File(file)) => file.reopen(),
            _ => Ok(()),
        }
    }

    /// Waits until everything is written, but no longer than `within`. Answers how many lines are not.
    pub fn flush(&self, within: Duration) -> usize {
        match &self.0.sink {
            Some(AuditOutput::File(file)) => file.writer.flush(within),
            // Those that go to the log are written with it.
            _ => 0,
        }
    }

    /// Lines that were lost since the start.
    pub(crate) fn lost(&self) -> u64 {
        match &self.0.sink {
            Some(AuditOutput::File(file)) => file.writer.lost(),
            _ => 0,
        }
    }

    /// What keeps lines from being written to the file.
    fn issue(&self) -> Option<String> {
        let Some(AuditOutput::File(file)) = &self.0.sink else { return None };
        file.writer.stall().map(|stall| format!("the audit log {} {stall}", file.path()))
    }

    /// What keeps lines of the log and of the audit log from being written.
    pub(crate) fn issues(&self) -> impl Iterator<Item = String> {
        let log = duetime_lines::log().and_then(duetime_lines::LineWriter::stall);
        log.map(|stall| format!("the node's log {stall}")).into_iter().chain(self.issue())
    }

    /// Refuses what an administrator asks for while its line could not be kept.
    pub(crate) fn takes(&self, kind: ChangeKind) -> Result<(), Problem> {
        let has_room = kind != ChangeKind::Administration
            || match &self.0.sink {
                None => true,
                Some(AuditOutput::Log) => duetime_lines::log().is_none_or(duetime_lines::LineWriter::has_room),
                Some(AuditOutput::File(file)) => file.writer.has_room(),
            };
        if has_room {
            return Ok(());
        }
        let detail = "nothing was done: the audit log takes no lines, and this one could be lost; see /readyz, let \
                      node.audit be written again, then repeat it";
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "audit_full", detail).retry_in(5))
    }

    pub(crate) fn record(&self, line: AuditLine) {
        if let Some(sink) = &self.0.sink {
            if line.kind == ChangeKind::Refused {
                let mut refused = self.0.refused.lock();
                let left_out = refused.end_window(line.at);
                let admitted = refused.admits(line.at);
                drop(refused);
                left_out.iter().for_each(|left_out| sink.write(left_out));
                if admitted {
                    sink.write(&line);
                }
            } else {
                sink.write(&line);
            }
        }
        self.0.ring.lock().push(line);
    }

    /// Says of each minute in which refused requests had no line how many they were, and in the log when the file takes no
    /// lines, until `stop`.
    pub async fn run(self, clock: Arc<dyn Clock>, stop: CancellationToken) {
        let mut is_stalled = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let issue = self.issue();
            if let Some(issue) = issue.as_ref().filter(|_| !is_stalled) {
                error!(
                    issue,
                    "lines of the audit log are not written; what administrators do waits, the rest may be lost"
                );
            }
            is_stalled = issue.is_some();
            let left_out = self.0.refused.lock().end_window(clock.now());
            if let (Some(left_out), Some(sink)) = (left_out, &self.0.sink) {
                sink.write(&left_out);
            }
        }
    }

    /// Tokens were reloaded at `at`, because of `why`; `changes` says which came, went and changed.
    pub fn tokens_changed(&self, at: Timestamp, why: &str, changes: String) {
        let line = AuditLine::of_node(at, RELOAD, ChangeKind::Administration, format!("reload: {why}"));
        self.record(AuditLine { reason: Some(changes), ..line });
    }

    /// A topic was made at `at`, as the configuration has it: `why` says when that makes one.
    pub fn topic_made(&self, at: Timestamp, topic: &str, why: &str) {
        let line = AuditLine::of_node(at, PUT_TOPIC, ChangeKind::Administration, why.to_owned());
        self.record(AuditLine { topic: Some(topic.to_owned()), ..line });
    }
}

/// Names in the log each message that a bulk plan failed on.
#[derive(Debug)]
pub struct PlanAudit {
    audit: Audit,
    clock: Arc<dyn Clock>,
}

impl PlanAudit {
    /// Writes where `audit` does.
    #[must_use]
    pub fn new(audit: Audit, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { audit, clock })
    }
}

impl PlanWatcher for PlanAudit {
    fn failed(&self, plan: &BulkPlan, id: &str, _reason: &str) {
        let at = self.clock.now();
        let action = format!("plan {} {:?}", plan.id, plan.action);
        self.audit.record(AuditLine {
            who: plan.by.clone(),
            topic: Some(plan.topic.clone()),
            id: Some(id.to_owned()),
            count: 1,
            refused: 1,
            outcome: "failed",
            ..AuditLine::of_node(at, PLAN_ITEM, ChangeKind::Messages, action)
        });
    }
}

/// One request, until it is over.
pub(crate) struct Entry {
    audit: Audit,
    operation: &'static Operation,
    kind: ChangeKind,
    at: Timestamp,
    who: Mutex<Option<String>>,
    from: Option<SocketAddr>,
    topic: Option<String>,
    id: Option<String>,
    sink: Option<String>,
    reason: Mutex<Option<String>>,
    count: AtomicU64,
    refused: AtomicU64,
    /// 0: not answered.
    status: AtomicU64,
    /// Whether a handler has it: whoever sent it may, and it is well-formed.
    admitted: AtomicBool,
    /// When a line said that it goes on.
    open_at: Mutex<Option<Timestamp>>,
    trace_id: Option<String>,
}

tokio::task_local! {
    static ENTRY: Option<Arc<Entry>>;
}

impl Entry {
    /// The one of the request that is being handled.
    pub fn current() -> Option<Arc<Self>> {
        ENTRY.try_with(Clone::clone).ok().flatten()
    }

    /// Runs `work`, a request's, with its entry.
    pub fn scope<F: Future>(entry: Option<Arc<Self>>, work: F) -> impl Future<Output = F::Output> {
        ENTRY.scope(entry, work)
    }

    /// Says whose request it is.
    pub fn called_by(&self, name: Option<&str>) {
        *self.who.lock() = name.map(str::to_owned);
    }

    /// Hands the request on to its handler; refuses it, where its line could not be kept.
    pub fn admit(&self) -> Result<(), Problem> {
        self.audit.takes(self.kind)?;
        self.admitted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Says how it ended. Its line is written when nobody works on it any more.
    pub fn answered(self: Arc<Self>, status: StatusCode) {
        self.status.store(status.as_u16().into(), Ordering::Relaxed);
    }

    /// Keeps an entry for a request that may change something.
    pub fn open(
        audit: &Audit,
        clock: &dyn Clock,
        operation: &'static Operation,
        request: &Request,
    ) -> Option<Arc<Self>> {
        if !operation.writes {
            return None;
        }
        let route = request.extensions().get::<MatchedPath>()?.as_str();
        let part = |name: &str| {
            let at = route.split('/').position(|piece| piece == name)?;
            let raw = request.uri().path().split('/').nth(at)?;
            Some(percent_decode_str(raw).decode_utf8_lossy().chars().take(NAME_CHARS_MAX).collect())
        };
        Some(Arc::new(Self {
            audit: audit.clone(),
            operation,
            kind: ChangeKind::of(operation.scopes.as_deref()),
            at: clock.now(),
            who: Mutex::default(),
            from: request.extensions().get::<Peer>().map(|peer| peer.0),
            topic: part("{topic}"),
            id: part("{id}"),
            sink: part("{sink}"),
            reason: Mutex::default(),
            count: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            status: AtomicU64::new(0),
            admitted: AtomicBool::new(false),
            open_at: Mutex::default(),
            trace_id: trace_of(request.headers()).map(|trace| trace.span().trace()),
        }))
    }

    /// Counts items.
    pub fn count(&self, items: u64, refused: u64) {
        self.count.fetch_add(items, Ordering::Relaxed);
        self.refused.fetch_add(refused, Ordering::Relaxed);
    }
}

impl Entry {
    /// Its line, as far as it has come.
    fn line(&self, outcome: &'static str, status: u64) -> AuditLine {
        let counted = self.count.load(Ordering::Relaxed);
        let line = AuditLine {
            at: self.at,
            node: None,
            time: self.at.to_string(),
            who: self.who.lock().clone(),
            from: self.from.map(|from| from.to_string()),
            operation: &self.operation.name,
            kind: self.kind,
            action: Cow::Borrowed(&self.operation.action),
            count: if counted == 0 && outcome == "done" && self.id.is_some() { 1 } else { counted },
            topic: self.topic.clone(),
            id: self.id.clone(),
            sink: self.sink.clone(),
            reason: self.reason.lock().clone(),
            refused: self.refused.load(Ordering::Relaxed),
            outcome,
            status,
            trace_id: self.trace_id.clone(),
        };
        if self.admitted.load(Ordering::Relaxed) { line } else { line.of_refused() }
    }

    /// Leaves a line of a stream that goes on at `now`: when it begins, and every minute.
    pub fn goes_on(&self, now: Timestamp) {
        let mut open_at = self.open_at.lock();
        if open_at.is_none_or(|at| now.since(at) >= OPEN_LINE_EVERY) {
            *open_at = Some(now);
            drop(open_at);
            self.audit.record(self.line("open", StatusCode::OK.as_u16().into()));
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let status = *self.status.get_mut();
        let outcome = match status {
            0 => "unknown",
            200..300 => "done",
            300..500 => "refused",
            _ => "failed",
        };
        self.audit.record(self.line(outcome, status));
    }
}

/// Says why it is made.
pub(crate) fn because(reason: &str) {
    if let Some(entry) = Entry::current() {
        *entry.reason.lock() = Some(reason.to_owned());
    }
}

/// Counts items of the request that is being handled.
pub(crate) fn count(items: u64) {
    if let Some(entry) = Entry::current() {
        entry.count(items, 0);
    }
}
