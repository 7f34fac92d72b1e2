//! One line of the audit log, the last lines in memory, and how many of strangers' lines are written.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use duetime_core::Timestamp;
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::audit::operation::{ChangeKind, LEFT_OUT};

/// Lines that are kept in memory, of what administrators do.
const OPERATIONS_KEPT: usize = 1000;
/// And of messages coming and going, which would push out all others.
const MESSAGES_KEPT: usize = 256;
/// And of claims and settlements: a consumer that waits for messages claims again and again.
const CLAIMS_KEPT: usize = 256;
/// And of requests that were refused before anything of them was done: anybody can send those.
const REFUSED_KEPT: usize = 256;

/// So many lines of refused requests are written in [`REFUSED_WINDOW`]; the rest is counted.
const REFUSED_LINES_MAX: u64 = 60;
/// See [`REFUSED_LINES_MAX`].
const REFUSED_WINDOW: Duration = Duration::from_secs(60);

/// Characters of a name or an id that are kept; valid ones have no more.
pub(crate) const NAME_CHARS_MAX: usize = 512;
/// And of a request that was refused: whoever sends it may write anything.
const REFUSED_CHARS_MAX: usize = 64;

/// One request that changed something, or tried to.
#[skip_serializing_none]
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = AuditLine)]
pub(crate) struct AuditLine {
    #[serde(skip)]
    pub at: Timestamp,
    /// The node that has it, in answers about several; absent: the one that answers, or that has the log.
    pub node: Option<String>,
    /// When it came, RFC 3339.
    pub time: String,
    /// The token's name; null: none was asked for, or none was known.
    #[serialize_always]
    pub who: Option<String>,
    /// Address and port of the connection.
    #[serialize_always]
    pub from: Option<String>,
    /// What was asked for: the `operationId` of the request in this reference, or what the node did by itself: `plan_item`
    /// (a plan failed on a message), `reload` (tokens were reloaded), `put_topic` (of the configuration), `left_out`
    /// (refused requests that have no line in the file) and `lines_lost` (lines that could not be written).
    pub operation: &'static str,
    /// What kind of change that is.
    pub kind: ChangeKind,
    /// Method and route.
    #[schema(value_type = String)]
    pub action: Cow<'static, str>,
    pub topic: Option<String>,
    /// Of the message.
    pub id: Option<String>,
    /// Of the sink, where it was about all topics of one.
    pub sink: Option<String>,
    /// Why, as whoever asked said; of a reload, which tokens came, went and changed.
    pub reason: Option<String>,
    /// Items it was about.
    pub count: u64,
    /// Items of them that were refused or failed.
    pub refused: u64,
    /// `done`, `refused`, `failed`, `open` (a stream that goes on: what it did so far), or `unknown`: the client went away
    /// before it was answered.
    pub outcome: &'static str,
    pub status: u64,
    /// The trace of its `traceparent`, as in the lines of the log.
    pub trace_id: Option<String>,
}

fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(REFUSED_CHARS_MAX) {
        text.truncate(end);
    }
}

impl AuditLine {
    /// What the node did by itself.
    pub fn of_node(at: Timestamp, operation: &'static str, kind: ChangeKind, action: String) -> Self {
        Self {
            at,
            node: None,
            time: at.to_string(),
            who: None,
            from: None,
            operation,
            kind,
            action: action.into(),
            topic: None,
            id: None,
            sink: None,
            reason: None,
            count: 0,
            refused: 0,
            outcome: "done",
            status: 0,
            trace_id: None,
        }
    }

    /// As the line of a request that was refused before anything of it was done.
    pub fn of_refused(mut self) -> Self {
        self.kind = ChangeKind::Refused;
        if self.action.chars().count() > REFUSED_CHARS_MAX {
            cut(self.action.to_mut());
        }
        [&mut self.topic, &mut self.id, &mut self.sink].into_iter().flatten().for_each(cut);
        self
    }

    /// As it is written, with its end.
    pub fn written(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).expect("a line is plain data");
        text.push(b'\n');
        text
    }
}

/// The last lines, in memory.
#[derive(Default)]
pub(crate) struct Ring {
    /// What administrators do: rare, and what one looks for.
    operations: VecDeque<AuditLine>,
    /// Messages coming and going.
    messages: VecDeque<AuditLine>,
    /// What consumers do.
    claims: VecDeque<AuditLine>,
    /// What was refused before anything of it was done.
    refused: VecDeque<AuditLine>,
}

/// Makes room among what administrators did: the oldest line of whoever has most of them goes, so that nobody pushes out
/// what others did.
fn forget_one(kept: &mut VecDeque<AuditLine>) {
    let mut lines = HashMap::<Option<&str>, usize>::new();
    for line in &*kept {
        *lines.entry(line.who.as_deref()).or_default() += 1;
    }
    let most = lines.values().copied().max().unwrap_or_default();
    let oldest = kept.iter().position(|line| lines[&line.who.as_deref()] == most);
    if let Some(at) = oldest {
        kept.remove(at);
    }
}

impl Ring {
    pub fn push(&mut self, line: AuditLine) {
        let (kept, most) = match line.kind {
            ChangeKind::Administration => {
                if self.operations.len() >= OPERATIONS_KEPT {
                    forget_one(&mut self.operations);
                }
                return self.operations.push_back(line);
            }
            ChangeKind::Messages => (&mut self.messages, MESSAGES_KEPT),
            ChangeKind::Claims => (&mut self.claims, CLAIMS_KEPT),
            ChangeKind::Refused => (&mut self.refused, REFUSED_KEPT),
        };
        if kept.len() >= most {
            kept.pop_front();
        }
        kept.push_back(line);
    }

    /// The last lines that `wanted` takes, the newest first, at most `limit`.
    pub fn last(&self, limit: usize, wanted: impl Fn(&AuditLine) -> bool) -> Vec<AuditLine> {
        let all = self.operations.iter().chain(&self.messages).chain(&self.claims).chain(&self.refused);
        let mut lines: Vec<&AuditLine> = all.rev().filter(|line| wanted(line)).collect();
        lines.sort_by_key(|line| Reverse(line.at));
        lines.into_iter().take(limit).cloned().collect()
    }
}

/// How many lines of refused requests were written in the present window.
#[derive(Debug, Default)]
pub(crate) struct RefusedLines {
    since: Option<Timestamp>,
    lines: u64,
    left_out: u64,
}

impl RefusedLines {
    /// Ends the window if it is over at `now`; the line that says how many had none in it, if any had.
    pub fn end_window(&mut self, now: Timestamp) -> Option<AuditLine> {
        let is_over = self.since.is_some_and(|since| now.since(since) >= REFUSED_WINDOW);
        if !is_over {
            return None;
        }
        let Self { left_out, .. } = std::mem::take(self);
        let action = "requests that were refused, and have no line".to_owned();
        let line = AuditLine::of_node(now, LEFT_OUT, ChangeKind::Refused, action);
        (left_out > 0).then_some(AuditLine { count: left_out, outcome: "refused", ..line })
    }

    /// Whether another line is written, at `now`.
    pub fn admits(&mut self, now: Timestamp) -> bool {
        self.since.get_or_insert(now);
        self.lines += 1;
        let admitted = self.lines <= REFUSED_LINES_MAX;
        self.left_out += u64::from(!admitted);
        admitted
    }
}
