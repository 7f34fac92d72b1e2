//! Messages that come again by a rule: when the next one of a series falls due, and what it is.
//!
//! The rule is kept among the headers of the message, so stores move and copy it as they do those. Who settles a message
//! of a series computes the next one here, and the store writes it in the step that settles this one. Pure: the present
//! is an argument. Time zones are those that the program carries, so all nodes of a version go by the same.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::end::End;
use crate::limits::{DUE_AHEAD_MAX, EVERY_MIN};
use crate::message::{Headers, Nonce, PREVIOUS, REPEAT};
use crate::time::Timestamp;
use crate::units::{check_due_at, maybe_duration, maybe_time, show_duration};

mod cron;

use cron::Cron;
pub use cron::RepeatError;

/// No message of a series falls due later, in 2255: scores are exact up to there, see [`crate::Score`].
const LATEST: Timestamp = Timestamp::from_millis((1 << 53) / 1_000 - 1);

/// What a refusal shows of a header at most.
const SHOWN_CHARS: usize = 100;

/// What a producer asks for: how a message repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RepeatAsk {
    /// So long after the one before, counted from the first. Instead of `cron`.
    #[serde(with = "maybe_duration", skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// At these times: minute, hour, day of the month, month, day of the week.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Whose clocks `cron` goes by, as in the time zone database of IANA; absent: `UTC`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// None falls due after this.
    #[serde(with = "maybe_time", skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How many there are, with the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// What becomes of those whose time passed before they could be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
}

/// What becomes of the due times that passed while the message before them was not settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// They are left out: the next one is the first after the present.
    #[default]
    Skip,
    /// They come as one: the next one has the last of these times, so it is due at once.
    Once,
}

/// When the messages of a series fall due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At `start`, and each `every` after it.
    Every {
        /// The distance.
        every: Duration,
        /// The first due time.
        start: Timestamp,
    },
    /// By the clocks of a time zone.
    Cron {
        /// Five fields.
        text: String,
        /// The zone, as the database of IANA has it.
        zone: String,
    },
}

/// The rule of a series and how far it has come: what the header [`REPEAT`] of one of its messages says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// When they fall due.
    pub rule: Rule,
    /// The time of the rule that this message is for. A reschedule moves the message and leaves this.
    pub at: Timestamp,
    /// None is for a time after this.
    pub until: Option<Timestamp>,
    /// How many there are still, this one among them.
    pub left: Option<u32>,
    /// What becomes of times that pass unused.
    pub missed: Missed,
}

impl Rule {
    /// The first time after `from`; `None`: there is none.
    fn after(&self, from: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every { start, .. } if from < *start => Some(*start),
            Self::Every { every, start } => Some(grid(*start, *every, turns(*start, *every, from) + 1)),
            Self::Cron { text, zone } => Cron::read(text, zone).ok()?.after(from),
        }
    }

    /// The last time that is no later than `till`.
    fn last(&self, till: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every { start, .. } if till < *start => None,
            Self::Every { every, start } => Some(grid(*start, *every, turns(*start, *every, till))),
            Self::Cron { text, zone } => Cron::read(text, zone).ok()?.last(till),
        }
    }
}

/// How many whole distances lie between `start` and `till`.
fn turns(start: Timestamp, every: Duration, till: Timestamp) -> u64 {
    millis(till.since(start)) / millis(every).max(1)
}

/// The time of a grid with this number.
fn grid(start: Timestamp, every: Duration, turns: u64) -> Timestamp {
    start.plus(Duration::from_millis(millis(every).saturating_mul(turns)))
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

impl RepeatAsk {
    /// The field, and why it is refused with what to give, where `part` of it cannot be read, or, if empty, the whole.
    #[must_use]
    pub fn refusal(part: &str, why: &str) -> (String, String) {
        let fix = match part {
            "every" => "give a string with a unit, like \"1h\"",
            "cron" => "give five fields as a string, like \"0 9 * * MON-FRI\"",
            "time_zone" => "give a name as a string, like \"Europe/Berlin\"",
            "until" => "give whole milliseconds since the Unix epoch or RFC 3339 like \"2030-01-31T12:00:00Z\"",
            "times" => "give a whole number, 1 or more",
            "missed" => "give \"skip\" or \"once\"",
            _ => "give {\"every\": \"1h\"} or {\"cron\": \"0 9 * * *\"}",
        };
        let field = if part.is_empty() { "repeat".to_owned() } else { format!("repeat.{part}") };
        let detail = format!("{field}: {why}; {fix}");
        (field, detail)
    }

    /// The rule with its first message, which falls due at `due` where that is given, else at the first time of the
    /// rule after `now`: [`Repeat::at`].
    ///
    /// # Errors
    ///
    /// [`RepeatError`], with the field and the fix.
    pub fn first(&self, due: Option<Timestamp>, now: Timestamp) -> Result<Repeat, RepeatError> {
        let (field, rule, first) = match (self.every, &self.cron) {
            (Some(_), Some(_)) => return Err(RepeatError::new("cron", "is given beside every; give one of them")),
            (None, None) => {
                return Err(RepeatError::new(
                    "every",
                    "is missing; give every, like \"1h\", or cron, like \"0 9 * * *\"",
                ));
            }
            (Some(every), None) => {
                if self.time_zone.is_some() {
                    return Err(RepeatError::new("time_zone", "belongs to cron; leave it out with every"));
                }
                if !(EVERY_MIN..=DUE_AHEAD_MAX).contains(&every) {
                    let (given, least) = (show_duration(every), show_duration(EVERY_MIN));
                    return Err(RepeatError::new("every", format!("is {given}; give {least} to 10 years")));
                }
                let every = Duration::from_millis(millis(every));
                let start = due.unwrap_or_else(|| now.plus(every));
                ("every", Rule::Every { every, start }, Some(start))
            }
            (None, Some(text)) => {
                let zone = self.time_zone.as_deref().unwrap_or("UTC");
                let cron = Cron::read(text, zone)?;
                let rule = Rule::Cron { text: text.trim().to_owned(), zone: zone.to_owned() };
                ("cron", rule, due.or_else(|| cron.after(now)))
            }
        };
        let first =
            first.ok_or_else(|| RepeatError::new(field, "matches no time before the year 5000; give another"))?;
        let at = check_due_at(first, now).map_err(|error| RepeatError::new(field, format!("is refused: {error}")))?;
        if self.until.is_some_and(|until| until < at) {
            let detail = "is before the first due time; give a later one, or an earlier due time";
            return Err(RepeatError::new("until", detail));
        }
        let left = self.times.map(u32::try_from).transpose().ok().filter(|times| *times != Some(0));
        let left =
            left.ok_or_else(|| RepeatError::new("times", format!("is not 1 to {}; give that many", u32::MAX)))?;
        Ok(Repeat { rule, at, until: self.until, left, missed: self.missed.unwrap_or_default() })
    }
}

impl Repeat {
    /// That of a message with these headers; a header that cannot be read is none of ours.
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Self> {
        let (mut at, mut every, mut start, mut cron, mut zone) = (None, None, None, None, None);
        let (mut until, mut left, mut missed) = (None, None, Missed::Skip);
        let time = |text: &str| text.parse().ok().map(Timestamp::from_millis);
        // Anybody may give the header itself: what no `repeat` could ask for repeats nothing.
        let in_bounds = |every: u64| (EVERY_MIN..=DUE_AHEAD_MAX).contains(&Duration::from_millis(every));
        for part in headers.get(REPEAT)?.split(';') {
            match part.split_once('=')? {
                ("at", value) => at = Some(time(value)?),
                ("every", value) => every = Some(value.parse().ok().filter(|every: &u64| in_bounds(*every))?),
                ("start", value) => start = Some(time(value)?),
                ("cron", value) => cron = Some(value),
                ("zone", value) => zone = Some(value),
                ("until", value) => until = Some(time(value)?),
                ("left", value) => left = Some(value.parse().ok()?),
                ("missed", "once") => missed = Missed::Once,
                _ => return None,
            }
        }
        let rule = match (every, start, cron, zone) {
            (Some(every), Some(start), None, None) => Rule::Every { every: Duration::from_millis(every), start },
            (None, None, Some(text), Some(zone)) => Rule::Cron { text: text.to_owned(), zone: zone.to_owned() },
            _ => return None,
        };
        Some(Self { rule, at: at?, until, left, missed })
    }

    /// True if a message with these headers is one of a series. Cheaper than [`Repeat::of`].
    #[must_use]
    pub fn is_in(headers: &Headers) -> bool {
        headers.get(REPEAT).is_some()
    }

    /// Refuses headers of a new message that say a rule by which none would follow: the series would end without a word.
    ///
    /// # Errors
    ///
    /// A sentence that names the header and the fix.
    pub fn check(headers: &Headers) -> Result<(), String> {
        let Some(text) = headers.get(REPEAT) else { return Ok(()) };
        let is_time = |at: Timestamp| (Timestamp::ZERO..=LATEST).contains(&at);
        let is_rule = |rule: &Rule| match rule {
            Rule::Every { start, .. } => is_time(*start),
            Rule::Cron { text, zone } => Cron::read(text, zone).is_ok(),
        };
        if Self::of(headers).is_some_and(|repeat| is_time(repeat.at) && is_rule(&repeat.rule)) {
            return Ok(());
        }
        let shown: String = text.chars().take(SHOWN_CHARS).collect();
        Err(format!(
            "header {REPEAT:?} is {shown:?}, by which no message comes again; leave it out and give \"repeat\", like \
             {{\"every\": \"1h\"}}, or give it as a read of the message has it"
        ))
    }

    /// The headers with it.
    #[must_use]
    pub fn kept_in(&self, headers: &Headers) -> Headers {
        let mut text = format!("at={}", self.at.as_millis());
        match &self.rule {
            Rule::Every { every, start } => {
                text += &format!(";every={};start={}", every.as_millis(), start.as_millis());
            }
            Rule::Cron { text: cron, zone } => text += &format!(";cron={cron};zone={zone}"),
        }
        if let Some(until) = self.until {
            text += &format!(";until={}", until.as_millis());
        }
        if let Some(left) = self.left {
            text += &format!(";left={left}");
        }
        if self.missed == Missed::Once {
            text += ";missed=once";
        }
        headers.with(REPEAT, &text)
    }

    /// The rule at the message that follows one with this due time that is settled at `now`; `None`: it was the last.
    ///
    /// A message that was moved behind times of the rule stands for them too.
    #[must_use]
    pub fn next(&self, due_at: Timestamp, now: Timestamp) -> Option<Self> {
        let left = match self.left {
            Some(0 | 1) => return None,
            left => left.map(|left| left - 1),
        };
        let before = self.at.max(due_at);
        let first = self.rule.after(before)?;
        let at = match self.missed {
            _ if first > now => first,
            Missed::Skip => self.rule.after(now)?,
            Missed::Once => {
                let till = self.until.map_or(now, |until| until.min(now));
                self.rule.last(till).filter(|last| *last >= first).unwrap_or(first)
            }
        };
        let is_over = at <= before || at > LATEST || self.until.is_some_and(|until| until < at);
        (!is_over).then(|| Self { at, left, ..self.clone() })
    }
}

/// The next message of a series: it takes the place of the one before it in the step that settles that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// How the one before it ends: delivered or expired.
    pub end: End,
    /// When it falls due.
    pub due_at: Timestamp,
    /// Made from that of the one before it: whoever makes the successor of a message for one time of its rule makes
    /// the same.
    pub nonce: Nonce,
    /// Those of the one before it, with the rule as far as it has come.
    pub headers: Headers,
    /// That of the one before it.
    pub payload: Bytes,
}

impl Successor {
    /// What follows a message with these parts that ends at `now`; `None`: it is not of a series, or was its last one.
    #[must_use]
    pub fn of(
        (headers, payload): (&Headers, &Bytes),
        (due_at, nonce): (Timestamp, Nonce),
        end: End,
        now: Timestamp,
    ) -> Option<Box<Self>> {
        let next = Repeat::of(headers)?.next(due_at, now)?;
        let cause = format!("next {}", next.at.as_millis());
        // What an edit of the one before left is about that one.
        let headers = next.kept_in(&headers.without(PREVIOUS));
        let nonce = nonce.derived(cause.as_bytes());
        Some(Box::new(Self { end, due_at: next.at, nonce, headers, payload: payload.clone() }))
    }

    /// Bytes that a store is given of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.headers.bytes() + self.payload.len()
    }
}

#[cfg(test)]
mod tests;
