//! Everything that happens in a world, in its order: what is sent, what arrives, which scripts run.
//!
//! A world always keeps a hash of it, by which two runs are compared, and the lines where somebody wants to read them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use parking_lot::Mutex;
use tokio::time::Instant;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum About {
    /// Bytes of a connection.
    Bytes,
    /// A connection, or what is wrong with one.
    Network,
    /// A script that a master ran.
    Script,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Microseconds since the world began.
    pub at_us: u64,
    /// What it is about.
    pub about: About,
    /// What happened.
    pub text: String,
}

#[derive(Debug)]
struct Kept {
    hasher: DefaultHasher,
    lines: Option<Vec<Line>>,
}

/// What happened in a world.
#[derive(Debug)]
pub struct Trace {
    began: Instant,
    kept: Mutex<Kept>,
}

impl Trace {
    /// Of a world that begins now.
    pub fn new(keeps_lines: bool) -> Self {
        let kept = Kept { hasher: DefaultHasher::new(), lines: keeps_lines.then(Vec::new) };
        Self { began: Instant::now(), kept: Mutex::new(kept) }
    }

    /// Notes that something happens now, as `bytes`; `text` is asked for where lines are kept.
    pub fn note(&self, about: About, bytes: &[u8], text: impl FnOnce() -> String) {
        let at_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut kept = self.kept.lock();
        (at_us, about, bytes).hash(&mut kept.hasher);
        if let Some(lines) = &mut kept.lines {
            lines.push(Line { at_us, about, text: text() });
        }
    }

    /// A short number for everything so far.
    pub fn print(&self) -> u64 {
        self.kept.lock().hasher.finish()
    }

    /// The lines so far, where they are kept.
    pub fn lines(&self) -> Vec<Line> {
        self.kept.lock().lines.clone().unwrap_or_default()
    }
}
