//! When requests were refused for want of space: how long new messages are refused unasked, and how long that is shown.
//!
//! Upstream: the writer.

use std::time::Duration;

use tokio::time::Instant;

/// A request of so many bytes that does not fit means that hardly any would.
pub const SMALL_BYTES: usize = 1 << 20;
/// New messages are refused unasked for this long after such a one: each try copies the log.
const CLOSED_FOR: Duration = Duration::from_secs(1);
/// A refusal is shown for this long: the next one may be of another producer.
const SHOWN_FOR: Duration = Duration::from_secs(10);
/// Then it is seen so often whether there is space again.
const LOOKED_EVERY: Duration = Duration::from_secs(1);

/// When requests were refused for want of space.
#[derive(Debug, Default)]
pub struct Shortage {
    look_at: Option<Instant>,
    closed_until: Option<Instant>,
}

impl Shortage {
    /// A request of this size (messages and bytes) was refused.
    pub fn refused(&mut self, (_, bytes): &(usize, usize)) {
        let now = Instant::now();
        self.look_at = Some(now + SHOWN_FOR);
        if *bytes <= SMALL_BYTES && !self.is_closed() {
            self.closed_until = Some(now + CLOSED_FOR);
        }
    }

    /// Whether new messages are refused unasked.
    pub fn is_closed(&self) -> bool {
        self.closed_until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether one was refused, none within [`SHOWN_FOR`], and it is time to see whether there is space again.
    pub fn is_looked_at(&mut self) -> bool {
        let now = Instant::now();
        let is_time = self.look_at.is_some_and(|at| now >= at);
        if is_time {
            self.look_at = Some(now + LOOKED_EVERY);
        }
        is_time
    }
}
