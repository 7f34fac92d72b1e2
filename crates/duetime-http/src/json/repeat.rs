//! How a message repeats: read from a request, and shown.

use duetime_core::units::show_duration;
use duetime_core::{Due, Headers, Missed, Repeat, RepeatAsk, Rule, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::json::fields;
use crate::json::problem::Refusal;
use crate::json::schema;

/// By which rule a message comes again. Give `every` or `cron`.
#[derive(ToSchema)]
#[schema(as = Repeat)]
#[allow(dead_code)]
pub(crate) struct RepeatSchema {
    /// So long after the one before, counted from the first: 1 s to 10 years. Instead of `cron`.
    every: Option<schema::DurationIn>,
    /// At these times: minute, hour, day of the month, month, day of the week, as cron has them.
    #[schema(max_length = 128, example = "0 9 * * MON-FRI")]
    cron: Option<String>,
    /// By whose clocks `cron` goes, as IANA names it; absent: `UTC`.
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// None falls due after this; absent: they come for ever.
    until: Option<schema::TimeIn>,
    /// How many there are, with the first; absent: they come for ever.
    #[schema(minimum = 1)]
    times: Option<u32>,
    /// What becomes of times that passed while the one before was not settled. Absent: `skip`.
    missed: Option<MissedSchema>,
}

/// `skip`: they are left out. `once`: they come as one, at once.
#[derive(ToSchema)]
#[schema(as = Missed, rename_all = "lowercase")]
#[allow(dead_code)]
pub(crate) enum MissedSchema {
    Skip,
    Once,
}

/// Reads `repeat` of a message with this due time, where it has one: the rule at its first message.
pub(crate) fn read_repeat(
    raw: &RawValue,
    due: Option<Due>,
    expires_at_a_moment: bool,
    now: Timestamp,
) -> Result<Repeat, Refusal> {
    let ask: RepeatAsk = fields::read(raw.get().as_bytes()).map_err(|refusal| {
        let (field, detail) = RepeatAsk::refusal(&refusal.field.unwrap_or_default(), &refusal.detail);
        Refusal::new(refusal.code, detail).at(field)
    })?;
    if expires_at_a_moment {
        let detail = "expires_at is one moment, and each message of the series would expire then; give expires, which \
                      counts from each due time, or repeat.until";
        return Err(Refusal::new("invalid_expiry", detail).at("expires_at"));
    }
    let first = ask.first(due.map(|due| due.of(now)), now);
    first.map_err(|error| Refusal::new("invalid_value", error.to_string()).at(format!("repeat.{}", error.field)))
}

/// By which rule a message comes again, and when the next one falls due.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct RepeatView {
    /// So long after the one before.
    every: Option<String>,
    /// At these times.
    cron: Option<String>,
    /// By whose clocks `cron` goes.
    time_zone: Option<String>,
    /// None falls due after this, milliseconds since the Unix epoch.
    until: Option<i64>,
    /// How many there are still, this one among them.
    times: Option<u32>,
    /// `skip` or `once`.
    #[schema(value_type = MissedSchema)]
    missed: Missed,
    /// When the one after this falls due if this one ends when it is due, or now, milliseconds since the Unix epoch;
    /// absent: this is the last.
    next_at: Option<i64>,
}

impl RepeatView {
    /// That of a message with these headers and this due time; `None`: it does not repeat.
    pub fn of(headers: &Headers, due_at: Timestamp, now: Timestamp) -> Option<Self> {
        let repeat = Repeat::of(headers)?;
        // It ends no earlier than it falls due.
        let next = repeat.next(due_at, now.max(due_at));
        let (every, cron, time_zone) = match repeat.rule {
            Rule::Every { every, .. } => (Some(show_duration(every)), None, None),
            Rule::Cron { text, zone } => (None, Some(text), Some(zone)),
        };
        let until = repeat.until.map(Timestamp::as_millis);
        let next_at = next.map(|next| next.at.as_millis());
        Some(Self { every, cron, time_zone, until, times: repeat.left, missed: repeat.missed, next_at })
    }
}
