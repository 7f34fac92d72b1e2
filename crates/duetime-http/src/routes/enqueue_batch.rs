//! Messages of a request that are enqueued together, and answered in their order.
//!
//! Upstream: `enqueue`, for portions of an array and of a stream.

use duetime_core::store::Enqueue;
use duetime_core::{MessageId, Repeat, TopicName};

use crate::json::message_in::{self, Rules};
use crate::json::ndjson::Line;
use crate::json::problem::Refusal;
use crate::routes::results::Results;
use crate::server::state::HttpParts;

/// A batch of a stream is enqueued when its lines have so many bytes.
const STREAM_BYTES: usize = 4 << 20;

/// What is in the JSON of a message that has a rule.
const REPEAT: &[u8] = b"repeat";

/// One item of a batch: on its way, or refused already.
enum BatchEntry {
    /// By how much its due time is past, and its line.
    Sent(MessageId, Option<u64>, Option<u64>),
    Refused(Option<String>, Refusal, Option<u64>),
}

/// Messages that are enqueued together, and those beside them that were refused.
#[derive(Default)]
pub(super) struct EnqueueBatch {
    entries: Vec<BatchEntry>,
    items: Vec<Enqueue>,
    bytes: usize,
}

impl EnqueueBatch {
    /// Of one refusal that ends a stream.
    pub fn refused(refusal: Refusal) -> Self {
        Self { entries: vec![BatchEntry::Refused(None, refusal, None)], ..Self::default() }
    }

    /// How many there are, with those that were refused.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many are to be stored.
    pub fn messages(&self) -> usize {
        self.items.len()
    }

    /// Bytes of their JSON.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends a stream behind them.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.entries.push(BatchEntry::Refused(None, refusal, None));
    }

    /// Reads a message. Others get their turn after one that repeats, or that is refused, perhaps for its rule: to read a
    /// rule takes as long as a hundred other messages. After every message they would not: the memory of a long stream
    /// grew by that.
    pub async fn read(&mut self, json: &[u8], line: Option<u64>, rules: &Rules<'_>) {
        self.bytes += json.len();
        let read = message_in::read(json, rules);
        let may_have_rule = || json.windows(REPEAT.len()).any(|part| part == REPEAT);
        let has_rule = read.as_ref().map_or_else(|_| may_have_rule(), |item| Repeat::is_in(&item.headers));
        match read {
            Ok(item) => {
                let late_by_ms = message_in::late_by_ms(item.due, rules.now);
                self.entries.push(BatchEntry::Sent(item.id.clone(), late_by_ms, line));
                self.items.push(item);
            }
            Err((id, mut refusal)) => {
                // The column alone says the place within one line.
                if line.is_some() {
                    refusal.detail = refusal.detail.replace(" at line 1 column ", " at column ");
                }
                self.entries.push(BatchEntry::Refused(id, refusal, line));
            }
        }
        if has_rule {
            tokio::task::yield_now().await;
        }
    }

    pub async fn read_line(&mut self, line: Line, rules: &Rules<'_>, bytes_max: usize) {
        match line.bytes {
            Some(bytes) => self.read(&bytes, Some(line.number), rules).await,
            None => {
                let detail = format!("the line has more than {bytes_max} bytes; send less in one message");
                self.entries.push(BatchEntry::Refused(None, Refusal::new("line_too_long", detail), Some(line.number)));
            }
        }
    }

    pub fn is_full(&self, items_max: usize) -> bool {
        self.entries.len() >= items_max || self.bytes >= STREAM_BYTES
    }

    pub async fn enqueue(self, app: &HttpParts, topic: &TopicName, results: &mut Results) {
        let mut answers = app.router.enqueue(topic, self.items).await.into_iter();
        for entry in &self.entries {
            match entry {
                BatchEntry::Sent(id, late_by_ms, line) => {
                    results.placed((id.as_str(), *late_by_ms), &answers.next().expect("one answer for each"), *line);
                }
                BatchEntry::Refused(id, refusal, line) => results.refused(id.as_deref(), refusal, *line),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duetime_core::Timestamp;
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn others_get_their_turn_after_a_message_that_repeats_or_is_refused_and_after_no_other() {
        let now = Timestamp::from_millis(1_763_683_200_000);
        let rules = Rules { now, payload_bytes_max: 1024, delay: Duration::ZERO, trace: None, body: None };
        for (message, yields) in [
            (r#"{"id":"a"}"#, false),
            (r#"{"id":"a","payload":{"repeat":{"every":"1h"}}}"#, false),
            (r#"{"id":"a","repeat":{"every":"1h"}}"#, true),
            (r#"{"id":"a","headers":{"duetime-repeat":"at=5;cron=0 9 * * *;zone=UTC"}}"#, true),
            (r#"{"idd":"a"}"#, false),
            (r#"{"id":"a","repeat":{"cron":"0 0 30 2 *"}}"#, true),
            (r#"{"id":"a","repeat":{"cron":"0 9 * * *"},"expires":"x"}"#, true),
        ] {
            for line in [None, Some(1)] {
                let mut batch = EnqueueBatch::default();
                let read = batch.read(message.as_bytes(), line, &rules).now_or_never();
                assert_eq!(read.is_none(), yields, "{message}");
                assert_eq!((batch.len(), batch.bytes()), (1, message.len()), "{message}");
            }
        }
    }
}
