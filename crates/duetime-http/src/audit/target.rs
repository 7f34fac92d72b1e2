//! `node.audit`: where lines of the audit log go, and the thread that appends them to a file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use duetime_core::Timestamp;
use duetime_lines::{LineWriter, Output};
use serde::Deserialize;
use tracing::warn;

use crate::audit::line::AuditLine;
use crate::audit::operation::{ChangeKind, LINES_LOST};

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

/// Appends to a file.
pub(crate) struct FileWriter {
    path: PathBuf,
    pub writer: LineWriter,
}

fn append_to(path: &Path) -> Result<File, String> {
    // To open a pipe that nobody reads waits for its reader, unless it is opened for both.
    let is_pipe = path.metadata().is_ok_and(|file| file.file_type().is_fifo());
    let opened = OpenOptions::new().append(true).read(is_pipe).create(true).mode(0o600).open(path);
    opened.map_err(|error| format!("{} cannot be opened: {error}", path.display()))
}

/// The line that says how many could not be written.
#[expect(clippy::disallowed_methods, reason = "the thread that writes has no clock of the node")]
fn lines_lost(lost: u64) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    let action = "lines that could not be written".to_owned();
    let line = AuditLine::of_node(Timestamp::from_millis(at), LINES_LOST, ChangeKind::Administration, action);
    AuditLine { count: lost, outcome: "failed", ..line }.written()
}

impl FileWriter {
    pub fn open(path: &Path) -> Result<Self, String> {
        let output = Output::file(append_to(path)?, path);
        let shown = path.display().to_string();
        let notice = move |lost| {
            warn!(file = %shown, lost, "the audit log is written again; lines of messages and claims were lost");
            Some(lines_lost(lost))
        };
        let writer = LineWriter::start("duetime-audit", output, Box::new(notice));
        let writer = writer.map_err(|error| format!("{}: the system gives no thread: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), writer })
    }

    pub fn reopen(&self) -> Result<(), String> {
        self.writer.replace(Output::file(append_to(&self.path)?, &self.path));
        Ok(())
    }

    pub fn path(&self) -> impl std::fmt::Display {
        self.path.display()
    }
}
