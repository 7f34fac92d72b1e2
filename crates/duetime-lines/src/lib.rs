//! Lines of the log and of the audit log, each written by a thread of its own behind a bounded queue.
//!
//! A pipe whose reader stands still, a full disk or a network file system that hangs holds up the thread that writes, and
//! nobody else: [`LineWriter::push`] never waits. What finds the queue full is lost, counted, and said in one line once
//! lines are written again. Upstream: the program's log, and the audit log of the HTTP API. Downstream: a file or a pipe.

mod output;
mod writer;

use std::sync::OnceLock;

pub use output::Output;
pub use writer::{Importance, LineWriter, Notice, Stall};

/// The writer of the program's own log.
static LOG: OnceLock<LineWriter> = OnceLock::new();

/// The writer of the program's own log; `None`: lines of the log are written as they come.
#[must_use]
pub fn log() -> Option<&'static LineWriter> {
    LOG.get()
}

/// Makes `writer` that of the program's own log. Once per program.
pub fn start_log(writer: LineWriter) {
    // A second one would be a second thread on the same pipe.
    assert!(LOG.set(writer).is_ok(), "the log is started once");
}
