//! The queue of lines, and the thread that writes them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::output::Output;

/// Bytes of ordinary lines that wait at most: some 10,000 lines.
const ORDINARY_BYTES_MAX: usize = 4 << 20;
/// Bytes of lines that must not be lost which wait at most, beside the ordinary ones.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Bytes that are written at once: what a pipe of Linux takes.
const WRITE_BYTES: usize = 64 << 10;
/// A write that failed is tried again so often.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// A write that takes longer is a stall.
const STALL_AFTER: Duration = Duration::from_secs(5);
/// A loss of lines is shown for this long after the last of them.
const LOSS_SHOWN_FOR: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "a thread without a runtime, and what a write really takes")]
fn now() -> Instant {
    Instant::now()
}

/// What may become of a line while nothing can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// It is lost, and counted, where the queue is full.
    Ordinary,
    /// It waits beside the ordinary ones, in room of its own. Ask [`LineWriter::has_room`] before the deed it is about:
    /// it is taken in any case.
    Kept,
}

/// The line that says how many were lost; `None`: it is said elsewhere.
pub type Notice = Box<dyn Fn(u64) -> Option<Vec<u8>> + Send>;

/// Why nothing is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// For how long.
    pub since: Duration,
    /// Lines that wait.
    pub waiting: usize,
    /// Lines that were lost since the start.
    pub lost: u64,
    /// What the system answered; `None`: it does not answer.
    pub error: Option<String>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, waiting, lost, error } = self;
        let why = error.as_deref().unwrap_or("it takes no bytes, as a pipe whose reader stands still");
        write!(f, "takes no lines since {} s: {why}; {waiting} wait, {lost} were lost since the start", since.as_secs())
    }
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<(Importance, Vec<u8>)>,
    ordinary_bytes: usize,
    kept_bytes: usize,
    /// Lines that are being written.
    writing: usize,
    /// Since when what is being written is.
    writing_since: Option<Instant>,
    /// Why the last write failed.
    error: Option<String>,
    lost: u64,
    /// Lost, and no line says so.
    unsaid: u64,
    lost_at: Option<Instant>,
    /// Where lines go from the next write on.
    next: Option<Output>,
}

impl Queue {
    fn bytes(&mut self, of: Importance) -> &mut usize {
        match of {
            Importance::Ordinary => &mut self.ordinary_bytes,
            Importance::Kept => &mut self.kept_bytes,
        }
    }

    fn add(&mut self, importance: Importance, line: Vec<u8>) {
        *self.bytes(importance) += line.len();
        self.lines.push_back((importance, line));
    }

    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.writing == 0
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There are lines, or there is another output.
    more: Condvar,
    /// Everything is written.
    idle: Condvar,
}

/// Takes lines, and has a thread of its own write them. Clones write to the same place.
#[derive(Clone)]
pub struct LineWriter(Arc<Shared>);

impl fmt::Debug for LineWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LineWriter")
    }
}

impl LineWriter {
    /// Starts the thread, which is called `name` and lives as long as the process.
    ///
    /// # Errors
    ///
    /// The system's, where it gives no thread.
    pub fn start(name: &str, output: Output, notice: Notice) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || write_all(&of_thread, output, &notice))?;
        Ok(Self(shared))
    }

    /// Takes a line, with its end, and never waits. Answers whether it will be written; one that is [`Importance::Kept`]
    /// always is.
    pub fn push(&self, line: Vec<u8>, importance: Importance) -> bool {
        let mut queue = self.0.queue.lock();
        if importance == Importance::Ordinary && queue.ordinary_bytes + line.len() > ORDINARY_BYTES_MAX {
            queue.lost += 1;
            queue.unsaid += 1;
            queue.lost_at = Some(now());
            return false;
        }
        queue.add(importance, line);
        drop(queue);
        self.0.more.notify_one();
        true
    }

    /// Whether another line that must not be lost may come.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.queue.lock().kept_bytes < KEPT_BYTES_MAX
    }

    /// Writes elsewhere from the next line on.
    pub fn replace(&self, output: Output) {
        self.0.queue.lock().next = Some(output);
        self.0.more.notify_one();
    }

    /// Waits until everything is written, but no longer than `within`. Answers how many lines are not.
    pub fn flush(&self, within: Duration) -> usize {
        let end = now() + within;
        let mut queue = self.0.queue.lock();
        while !queue.is_idle() && !self.0.idle.wait_until(&mut queue, end).timed_out() {}
        queue.lines.len() + queue.writing
    }

    /// Lines that were lost since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.queue.lock().lost
    }

    /// What keeps lines from being written, or has had them lost a moment ago.
    #[must_use]
    pub fn stall(&self) -> Option<Stall> {
        let queue = self.0.queue.lock();
        let writes_for =
            queue.writing_since.map(|at| at.elapsed()).filter(|it| *it >= STALL_AFTER || queue.error.is_some());
        let lost_for = queue.lost_at.map(|at| at.elapsed()).filter(|it| *it < LOSS_SHOWN_FOR);
        let since = writes_for.or(lost_for)?;
        let waiting = queue.lines.len() + queue.writing;
        Some(Stall { since, waiting, lost: queue.lost, error: queue.error.clone() })
    }
}

/// Lines that are written together.
#[derive(Default)]
struct LineBatch {
    bytes: Vec<u8>,
    /// How many of them are written.
    at: usize,
    lines: usize,
    ordinary_bytes: usize,
    kept_bytes: usize,
}

impl LineBatch {
    fn add(&mut self, importance: Importance, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.lines += 1;
        match importance {
            Importance::Ordinary => self.ordinary_bytes += line.len(),
            Importance::Kept => self.kept_bytes += line.len(),
        }
    }

    /// Waits for lines, and takes as many as are written at once.
    fn take(shared: &Shared, output: &mut Output) -> Self {
        let mut queue = shared.queue.lock();
        while queue.lines.is_empty() {
            shared.more.wait(&mut queue);
        }
        if let Some(next) = queue.next.take() {
            *output = next;
        }
        let mut batch = Self::default();
        while let Some((_, line)) = queue.lines.front()
            && (batch.lines == 0 || batch.bytes.len() + line.len() <= WRITE_BYTES)
        {
            let (importance, line) = queue.lines.pop_front().expect("it is there");
            batch.add(importance, &line);
        }
        (queue.writing, queue.writing_since) = (batch.lines, Some(now()));
        batch
    }

    /// Where the line begins of which some is written.
    fn line_begin(&self) -> usize {
        self.bytes[..self.at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
    }

    /// Writes what is left, again and again where the system refuses it.
    fn write(&mut self, shared: &Shared, output: &mut Output) {
        let mut length = None;
        while self.at < self.bytes.len() {
            match output.write(&self.bytes[self.at..]) {
                Ok(0) => self.pause(shared, output, &mut length, "nothing is taken".to_owned()),
                Ok(written) => (self.at, length) = (self.at + written, None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.pause(shared, output, &mut length, error.to_string()),
            }
        }
    }

    /// Waits before another try. A line of which some is written is gone on with; where somebody else has written after
    /// it, or lines go elsewhere by now, it is written again, whole.
    fn pause(&mut self, shared: &Shared, output: &mut Output, length: &mut Option<u64>, error: String) {
        let mut queue = shared.queue.lock();
        queue.error = Some(error);
        *length = length.take().or_else(|| output.length());
        let until = now() + RETRY_EVERY;
        while queue.next.is_none() && !shared.more.wait_until(&mut queue, until).timed_out() {}
        let next = queue.next.take();
        drop(queue);
        let begin = self.line_begin();
        match next {
            Some(next) => (*output, self.at, *length) = (next, begin, None),
            None if begin < self.at && length.is_some() && output.length() != *length && output.end_line().is_ok() => {
                (self.at, *length) = (begin, None);
            }
            None => {}
        }
    }
}

/// Writes lines for as long as the process lives.
fn write_all(shared: &Shared, mut output: Output, notice: &Notice) {
    loop {
        let mut batch = LineBatch::take(shared, &mut output);
        batch.write(shared, &mut output);
        let mut queue = shared.queue.lock();
        queue.ordinary_bytes -= batch.ordinary_bytes;
        queue.kept_bytes -= batch.kept_bytes;
        (queue.writing, queue.writing_since, queue.error) = (0, None, None);
        // One line for all that were lost, and not before there is room for those that follow.
        let unsaid = if queue.ordinary_bytes <= ORDINARY_BYTES_MAX / 2 { std::mem::take(&mut queue.unsaid) } else { 0 };
        drop(queue);
        if unsaid > 0
            && let Some(line) = notice(unsaid)
        {
            shared.queue.lock().add(Importance::Kept, line);
        }
        if shared.queue.lock().is_idle() {
            shared.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
