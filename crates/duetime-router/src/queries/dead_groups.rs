//! Dead letters by what killed them: reasons that differ only in numbers and names are one.
//!
//! A bounded part of a topic's dead letters is read, page by page; the answer says whether that was all.

use std::collections::HashMap;
use std::time::Duration;

use duetime_core::{StoredMessage, Timestamp, TopicName};
use tokio::time::Instant;

use crate::error::RouteError;
use crate::queries::dead::{DeadCursor, DeadLetters};

/// Dead letters that are read at most.
pub const SCANNED_MAX: usize = 10_000;
/// Bytes of their bodies, which come along.
const BYTES_MAX: usize = 32 << 20;
/// For this long at most.
const SCAN_FOR: Duration = Duration::from_secs(5);
/// A day.
const DAY_MS: i64 = 86_400_000;
/// Dead letters of one page.
const PAGE: usize = 500;
/// Reasons that are distinguished.
const GROUPS_MAX: usize = 200;
/// The reason of those beyond.
pub const OTHER_REASONS: &str = "other reasons";
/// Characters of a reason that are compared.
const REASON_CHARS_MAX: usize = 300;

/// Dead letters of one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadGroup {
    /// The reason without what differs from message to message.
    pub reason: String,
    /// One of them as it is.
    pub example: String,
    /// How many were read.
    pub count: u64,
    /// How many of these were redriven before.
    pub redriven_before: u64,
    /// How many of these died within a day.
    pub last_day: u64,
    /// When the first of them died.
    pub first: Timestamp,
    /// When the last of them died.
    pub last: Timestamp,
    /// Some ids.
    pub ids: Vec<String>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadGroups {
    /// The largest first.
    pub groups: Vec<DeadGroup>,
    /// Dead letters that were read.
    pub scanned: u64,
    /// Where to read on; `None`: these were the last.
    pub next: Option<DeadCursor>,
}

/// `reason` without what differs from message to message: what is in quotes, hexadecimal names, numbers.
#[must_use]
pub fn normalised(reason: &str) -> String {
    let mut text = String::new();
    let mut chars = reason.chars().take(REASON_CHARS_MAX).peekable();
    while let Some(c) = chars.next() {
        if c == '"' || c == '`' {
            // A quote that is never closed takes the rest: it was cut off.
            let _inside = chars.by_ref().find(|other| *other == c);
            text.extend([c, '…', c]);
        } else if c.is_ascii_alphanumeric() {
            let mut word = String::from(c);
            while let Some(next) = chars.next_if(|next| next.is_ascii_alphanumeric() || *next == '-' || *next == '_') {
                word.push(next);
            }
            text += &word_of(&word);
        } else {
            text.push(c);
        }
    }
    text
}

fn word_of(word: &str) -> String {
    let has_digit = word.chars().any(|c| c.is_ascii_digit());
    let is_hex = word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if has_digit && is_hex && !word.chars().all(|c| c.is_ascii_digit()) {
        return "…".to_owned();
    }
    let mut shown = String::new();
    for c in word.chars() {
        if !c.is_ascii_digit() {
            shown.push(c);
        } else if !shown.ends_with('#') {
            shown.push('#');
        }
    }
    shown
}

/// Takes dead letters in.
#[derive(Debug)]
struct Sorter {
    samples: usize,
    /// A day before it began.
    day_began: Timestamp,
    groups: HashMap<String, DeadGroup>,
    scanned: u64,
}

impl Sorter {
    fn take(&mut self, message: &StoredMessage) {
        self.scanned += 1;
        let (reason, at) = match &message.death {
            Some(death) => (&*death.reason, death.at),
            None => ("", message.visible_at),
        };
        let mut key = normalised(reason);
        if !self.groups.contains_key(&key) && self.groups.len() >= GROUPS_MAX {
            OTHER_REASONS.clone_into(&mut key);
        }
        let make = || DeadGroup {
            reason: key.clone(),
            example: reason.to_owned(),
            count: 0,
            redriven_before: 0,
            last_day: 0,
            first: at,
            last: at,
            ids: Vec::new(),
        };
        let group = self.groups.entry(key.clone()).or_insert_with(make);
        group.count += 1;
        group.redriven_before += u64::from(message.redrives > 0);
        group.last_day += u64::from(at >= self.day_began);
        group.first = group.first.min(at);
        group.last = group.last.max(at);
        if group.ids.len() < self.samples {
            group.ids.push(message.id.to_string());
        }
    }

    fn end(self, next: Option<DeadCursor>) -> DeadGroups {
        let mut groups: Vec<DeadGroup> = self.groups.into_values().collect();
        groups.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
        DeadGroups { groups, scanned: self.scanned, next }
    }
}

impl DeadLetters {
    /// The dead letters of a topic by reason, each with up to `samples` ids: `limit` of them from `cursor` on, and
    /// [`SCANNED_MAX`] at most.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn groups(
        &self,
        topic: &TopicName,
        samples: usize,
        mut cursor: Option<DeadCursor>,
        limit: usize,
    ) -> Result<DeadGroups, RouteError> {
        let limit = limit.min(SCANNED_MAX);
        let begun = Instant::now();
        let day_began = Timestamp::from_millis((self.now().as_millis() - DAY_MS).max(0));
        let mut sorter = Sorter { samples, day_began, groups: HashMap::new(), scanned: 0 };
        let mut bytes = 0;
        loop {
            let left = limit - usize::try_from(sorter.scanned).unwrap_or(limit);
            let page = self.page(topic, cursor, PAGE.min(left)).await?;
            for (_, message) in &page.messages {
                bytes += message.payload.len();
                sorter.take(message);
            }
            cursor = page.next;
            let is_full = sorter.scanned >= limit as u64 || bytes >= BYTES_MAX;
            if cursor.is_none() || is_full || begun.elapsed() >= SCAN_FOR {
                return Ok(sorter.end(cursor));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_and_names_are_one() {
        let same = |a: &str, b: &str| assert_eq!(normalised(a), normalised(b));
        same("503 after 12 ms", "503 after 7 ms");
        same("order \"a b\" is unknown", "order \"c\" is unknown");
        same("id 6f9619ff-8b86-d011-b42d-00cf4fc964ff", "id 0019ff00-8b86-d011-b42d-00cf4fc964ff");
        same("trace deadbeef01", "trace 01cafe0077aa");
        assert_ne!(normalised("connection refused"), normalised("connection reset"));
        assert_eq!(normalised("http 503: \"cut o"), "http #: \"…\"");
        assert_eq!(normalised("deadline of the day 20260101"), "deadline of the day #");
        assert!(normalised(&"x".repeat(5_000)).chars().count() <= REASON_CHARS_MAX);
    }
}
