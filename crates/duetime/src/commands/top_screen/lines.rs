//! One line of the topics of `duetime top`: its cells, what they are sorted by, and how bad it is.

use duetime_client::{Topic, TopicRates};
use ratatui::style::Color;

use crate::commands::topic::{named, sink_of};

/// A message that waits this long is late, and very late.
const LATE_S: [f64; 2] = [1.0, 10.0];
/// The share of deliveries that may be late, as in the console: one of a thousand.
const LATE_SHARE: f64 = 0.001;
/// Names and widths (that of the topics is the least), in the order of the console; counts are of messages, and what
/// else a cell counts it says itself.
pub const COLUMNS: [(&str, u16); 14] = [
    ("Topic", 17),
    ("Oldest due", 11),
    ("Due", 8),
    ("Late, p99", 10),
    ("Out/s", 6),
    ("Dead", 7),
    ("In flight", 10),
    ("Scheduled", 10),
    ("Goes to", 16),
    ("In/s", 6),
    ("Cancelled/s", 12),
    ("Late, p50", 10),
    ("Budget left", 12),
    ("Shards", 7),
];
/// The column with the sink.
pub const GOES_TO: usize = 8;
/// The columns of text, which is sorted as such and aligned left; the others have numbers.
pub const TEXTS: [usize; 2] = [0, GOES_TO];

/// One line of the topics.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicLine {
    pub name: String,
    pub cells: [String; COLUMNS.len()],
    pub keys: [f64; COLUMNS.len()],
    pub is_down: bool,
    /// What is worst comes first, in the order of docs/CONSOLE.md. 3: nothing can be delivered; 2: very late; 1: late.
    pub severity: usize,
    /// Some were given up within the last minute.
    has_new_dead: bool,
}

impl TopicLine {
    /// What is said behind the name where these columns are shown.
    pub fn mark(&self, shown: &[usize]) -> &str {
        // In a narrow terminal nothing else says so.
        if self.is_down && !shown.contains(&GOES_TO) {
            ": sink down"
        } else {
            self.cells[0].strip_prefix(&self.name).unwrap_or_default()
        }
    }

    /// Red: somebody is needed; yellow: it may be so.
    pub fn colour(&self) -> Option<Color> {
        if self.severity > 1 {
            Some(Color::Red)
        } else if self.severity == 1 || self.has_new_dead {
            Some(Color::Yellow)
        } else {
            None
        }
    }
}

/// A number a second.
pub fn rate(number: f64) -> String {
    if number >= 10.0 || number == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

/// Milliseconds, from a second on in seconds.
pub fn millis(ms: Option<f64>) -> String {
    match ms {
        None => "–".to_owned(),
        Some(ms) if ms < 1000.0 => format!("{ms:.0} ms"),
        Some(ms) => format!("{:.1} s", ms / 1000.0),
    }
}

/// Seconds, below one in milliseconds.
pub fn seconds(s: Option<f64>) -> String {
    millis(s.map(|s| s * 1000.0))
}

/// What is left of the budget of late deliveries since the nodes started.
fn budget(left: Option<f64>) -> String {
    match left {
        None => "–".to_owned(),
        Some(left) if left < 0.0 => "overdrawn".to_owned(),
        Some(left) => format!("{:.0} %", left * 100.0),
    }
}

/// What is known of a topic at this moment, in milliseconds since the Unix epoch.
pub fn line(topic: &Topic, rates: Option<&TopicRates>, at: i64) -> TopicLine {
    let waited = topic.oldest_due_at.map(|due| at.saturating_sub(due).max(0) as f64 / 1000.0);
    let of = |pick: fn(&TopicRates) -> f64| rates.map_or(0.0, pick);
    let (incoming, cancelled, out) = (of(|r| r.scheduled), of(|r| r.cancelled), of(|r| r.delivered));
    // Lateness that is kept of several topics together is that of none of them.
    let own = rates.filter(|rates| !rates.of_rest);
    let (p50, p99) = (own.and_then(|r| r.late_p50_ms), own.and_then(|r| r.late_p99_ms));
    let late = waited.unwrap_or(0.0).max(p99.map_or(0.0, |ms| ms / 1000.0));
    // What somebody paused waits on purpose.
    let late = if topic.config.paused { 0.0 } else { late };
    let is_down = topic.sink_issue.is_some();
    let cannot_deliver = is_down || topic.unreachable_shards > 0;
    let left = own
        .filter(|r| r.deliveries_total > 0)
        .map(|r| 1.0 - r.late_total as f64 / r.deliveries_total as f64 / LATE_SHARE);
    let sink = topic.config.sink.as_ref().map_or_else(|| "consumers".to_owned(), |sink| sink_of(topic, &sink.name));
    let counts = [topic.scheduled, topic.due, topic.in_flight, topic.dead].map(|count| count as f64);
    TopicLine {
        name: topic.name.clone(),
        keys: [
            0.0,
            waited.unwrap_or(-1.0),
            counts[1],
            p99.unwrap_or(-1.0),
            out,
            counts[3],
            counts[2],
            counts[0],
            0.0,
            incoming,
            cancelled,
            p50.unwrap_or(-1.0),
            left.unwrap_or(f64::INFINITY),
            f64::from(topic.shard_count),
        ],
        cells: [
            named(topic),
            seconds(waited),
            topic.due.to_string(),
            millis(p99),
            rate(out),
            topic.dead.to_string(),
            topic.in_flight.to_string(),
            topic.scheduled.to_string(),
            sink,
            rate(incoming),
            rate(cancelled),
            millis(p50),
            budget(left),
            topic.shard_count.to_string(),
        ],
        is_down,
        severity: if cannot_deliver { 3 } else { LATE_S.iter().filter(|limit| late > **limit).count() },
        has_new_dead: of(|r| r.dead) > 0.0,
    }
}
