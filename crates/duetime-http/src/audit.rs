//! The audit log: a JSON line for every request that changes something, or tries to. Never payloads.
//!
//! A line is written when its request is over: whoever asked, from where, for what, how many items
//! it was about, and how it ended.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, Response};
use axum::middleware::Next;
use duetime_core::{Clock, Timestamp};
use duetime_router::{BulkPlan, PlanWatcher};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{error, info};
use utoipa::ToSchema;

use crate::operation::{ChangeKind, PLAN_ITEM, operation_of};
use crate::peer::Peer;
use crate::trace::trace_of;

/// The log's target of lines, where they go to the node's own log.
const TARGET: &str = "duetime::audit";

/// Lines that are kept in memory, of what administrators do.
const OPERATIONS_KEPT: usize = 1000;
/// And of messages coming and going, which would push out all others.
const MESSAGES_KEPT: usize = 256;
/// And of claims and settlements: a consumer that waits for messages claims again and again.
const CLAIMS_KEPT: usize = 256;
/// A stranger's requests must not push out what others did.
const UNAUTHORIZED: u64 = 401;
/// Characters of a name or an id that are kept; valid ones have no more.
const NAME_CHARS_MAX: usize = 512;

/// Lines that could not be written are reported so often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// `node.audit`: where lines go.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "write \"log\", or { file = \"PATH\" }")]
pub enum AuditTarget {
    /// To the node's own log.
    Log(LogWord),
    /// To a file of their own, appended.
    File(AuditFile),
}

impl AuditTarget {
    /// Why nothing can be written there, as far as that is seen without making the file.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Self::File(AuditFile { file }) = self else { return None };
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if file.is_dir() {
            return Some(format!("{} is a folder; name a file in it", file.display()));
        }
        (!folder.is_dir()).then(|| format!("there is no folder {}; make it first", folder.display()))
    }
}

/// The word `log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum LogWord {
    /// See there.
    #[serde(rename = "log")]
    Log,
}

/// `{ file = "PATH" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditFile {
    /// Where it is. Created if absent, readable by its owner only.
    pub file: PathBuf,
}

struct Appended {
    path: PathBuf,
    file: File,
    lost: u64,
    complained: Option<Instant>,
}

enum AuditOutput {
    Log,
    File(Mutex<Appended>),
}

/// The last lines, in memory.
#[derive(Default)]
struct Ring {
    /// What administrators do: rare, and what one looks for.
    operations: VecDeque<AuditLine>,
    /// Messages coming and going, and strangers.
    messages: VecDeque<AuditLine>,
    /// What consumers do.
    claims: VecDeque<AuditLine>,
}

impl Ring {
    fn push(&mut self, line: AuditLine) {
        let (kept, most) = match line.kind {
            ChangeKind::Claims => (&mut self.claims, CLAIMS_KEPT),
            ChangeKind::Administration if line.status != UNAUTHORIZED => (&mut self.operations, OPERATIONS_KEPT),
            ChangeKind::Administration | ChangeKind::Messages => (&mut self.messages, MESSAGES_KEPT),
        };
        if kept.len() >= most {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

struct SharedAudit {
    /// `None`: lines are kept in memory only.
    sink: Option<AuditOutput>,
    ring: Mutex<Ring>,
}

/// Takes lines. Clones write to the same place.
#[derive(Clone)]
pub struct Audit(Arc<SharedAudit>);

impl Default for Audit {
    fn default() -> Self {
        Self(Arc::new(SharedAudit { sink: None, ring: Mutex::default() }))
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.sink.is_some() { "Audit(on)" } else { "Audit(off)" })
    }
}

fn append_to(path: &Path) -> Result<File, String> {
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    opened.map_err(|error| format!("{} cannot be opened: {error}", path.display()))
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
            Some(AuditTarget::File(AuditFile { file: path })) => {
                let file = append_to(path)?;
                let path = path.clone();
                Some(AuditOutput::File(Mutex::new(Appended { path, file, lost: 0, complained: None })))
            }
        };
        Ok(Self(Arc::new(SharedAudit { sink, ring: Mutex::default() })))
    }

    /// The last lines that `wanted` takes, the newest first, at most `limit`.
    pub(crate) fn last(&self, limit: usize, wanted: impl Fn(&AuditLine) -> bool) -> Vec<AuditLine> {
        let ring = self.0.ring.lock();
        let all = ring.operations.iter().chain(&ring.messages).chain(&ring.claims);
        let mut lines: Vec<&AuditLine> = all.rev().filter(|line| wanted(line)).collect();
        lines.sort_by_key(|line| Reverse(line.at));
        lines.into_iter().take(limit).cloned().collect()
    }

    /// Opens the file anew, after it was moved away.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; lines go on to the old file.
    pub fn reopen(&self) -> Result<(), String> {
        if let Some(AuditOutput::File(appended)) = &self.0.sink {
            let mut appended = appended.lock();
            appended.file = append_to(&appended.path)?;
        }
        Ok(())
    }
}

impl AuditOutput {
    fn write(&self, line: &AuditLine) {
        let mut text = serde_json::to_string(line).expect("a line is plain data");
        match self {
            Self::Log => info!(target: TARGET, "{text}"),
            Self::File(appended) => {
                text.push('\n');
                let mut appended = appended.lock();
                // One write a line: others that append to the file never tear it.
                let Err(error) = appended.file.write_all(text.as_bytes()) else { return };
                appended.lost += 1;
                if appended.complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
                    let file = appended.path.display();
                    error!(%file, %error, lost = appended.lost, "lines of the audit log could not be written");
                    appended.complained = Some(Instant::now());
                }
            }
        }
    }
}

/// One request that changed something, or tried to.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = AuditLine)]
pub(crate) struct AuditLine {
    #[serde(skip)]
    at: Timestamp,
    /// When it came, RFC 3339.
    time: String,
    /// The token's name; null: none was asked for, or none was known.
    who: Option<String>,
    /// Address and port of the connection.
    from: Option<String>,
    /// What was asked for: the `operationId` of the request in this reference, or `plan_item`, where a plan failed on a
    /// message.
    pub(crate) operation: &'static str,
    /// What kind of change that is.
    pub(crate) kind: ChangeKind,
    /// Method and route.
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) topic: Option<String>,
    /// Of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// Of the sink, where it was about all topics of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sink: Option<String>,
    /// Why, as whoever asked said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// Items it was about.
    count: u64,
    /// Items of them that were refused or failed.
    refused: u64,
    /// `done`, `refused`, `failed`, or `unknown`: the client went away before it was answered.
    outcome: &'static str,
    status: u64,
    /// The trace of its `traceparent`, as in the lines of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    trace_id: Option<String>,
}

impl AuditLine {
    /// Whether it names this message.
    pub(crate) fn is_about(&self, topic: &str, id: &str) -> bool {
        self.topic.as_deref() == Some(topic) && self.id.as_deref() == Some(id)
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
        let line = AuditLine {
            at,
            time: at.to_string(),
            who: plan.by.clone(),
            from: None,
            operation: PLAN_ITEM,
            kind: ChangeKind::Messages,
            action: format!("plan {} {:?}", plan.id, plan.action),
            topic: Some(plan.topic.clone()),
            id: Some(id.to_owned()),
            sink: None,
            reason: None,
            count: 1,
            refused: 1,
            outcome: "failed",
            status: 0,
            trace_id: None,
        };
        if let Some(sink) = &self.audit.0.sink {
            sink.write(&line);
        }
        self.audit.0.ring.lock().push(line);
    }
}

/// One request, until it is over.
pub(crate) struct Entry {
    audit: Audit,
    operation: &'static str,
    kind: ChangeKind,
    at: Timestamp,
    who: Mutex<Option<String>>,
    from: Option<SocketAddr>,
    action: String,
    topic: Option<String>,
    id: Option<String>,
    sink: Option<String>,
    reason: Mutex<Option<String>>,
    count: AtomicU64,
    refused: AtomicU64,
    /// 0: not answered.
    status: AtomicU64,
    trace_id: Option<String>,
}

tokio::task_local! {
    static ENTRY: Arc<Entry>;
}

impl Entry {
    /// The one of the request that is being handled.
    pub fn current() -> Option<Arc<Self>> {
        ENTRY.try_with(Arc::clone).ok()
    }

    /// Counts items.
    pub fn count(&self, items: u64, refused: u64) {
        self.count.fetch_add(items, Ordering::Relaxed);
        self.refused.fetch_add(refused, Ordering::Relaxed);
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
        let counted = *self.count.get_mut();
        let line = AuditLine {
            at: self.at,
            time: self.at.to_string(),
            who: self.who.get_mut().take(),
            from: self.from.map(|from| from.to_string()),
            operation: self.operation,
            kind: self.kind,
            action: std::mem::take(&mut self.action),
            count: if counted == 0 && outcome == "done" && self.id.is_some() { 1 } else { counted },
            topic: self.topic.take(),
            id: self.id.take(),
            sink: self.sink.take(),
            reason: self.reason.get_mut().take(),
            refused: *self.refused.get_mut(),
            outcome,
            status,
            trace_id: self.trace_id.take(),
        };
        if let Some(sink) = &self.audit.0.sink {
            sink.write(&line);
        }
        self.audit.0.ring.lock().push(line);
    }
}

/// Says whose request it is.
pub(crate) fn called_by(name: Option<&str>) {
    if let Some(entry) = Entry::current() {
        *entry.who.lock() = name.map(str::to_owned);
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

fn open(audit: &Audit, clock: &dyn Clock, request: &Request) -> Option<Arc<Entry>> {
    let route = request.extensions().get::<MatchedPath>()?.as_str();
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let part = |name: &str| {
        let at = route.split('/').position(|piece| piece == name)?;
        let raw = request.uri().path().split('/').nth(at)?;
        Some(percent_decode_str(raw).decode_utf8_lossy().chars().take(NAME_CHARS_MAX).collect())
    };
    Some(Arc::new(Entry {
        audit: audit.clone(),
        operation: operation_of(request.method(), route),
        kind: ChangeKind::of(request.method(), route),
        at: clock.now(),
        who: Mutex::default(),
        from: request.extensions().get::<Peer>().map(|peer| peer.0),
        action: format!("{} {route}", request.method()),
        topic: part("{topic}"),
        id: part("{id}"),
        sink: part("{sink}"),
        reason: Mutex::default(),
        count: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        status: AtomicU64::new(0),
        trace_id: trace_of(request.headers()).map(|trace| trace.span().trace()),
    }))
}

/// Keeps an entry for each request that may change something.
pub(crate) async fn recorded(
    State((audit, clock)): State<(Audit, Arc<dyn Clock>)>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let Some(entry) = open(&audit, &*clock, &request) else { return next.run(request).await };
    let response = ENTRY.scope(entry.clone(), next.run(request)).await;
    entry.status.store(response.status().as_u16().into(), Ordering::Relaxed);
    response
}
