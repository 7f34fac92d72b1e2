//! Times by the clocks of a time zone: the one place that knows the crate which reads cron.
//!
//! Where clocks are put forward, a time that does not exist on that day is the first moment behind the gap; where they
//! are put back, a time that comes twice counts once, at its first. What is asked for in each hour, or a step of them
//! (`*`, `*/2`), goes on through both: an hour that does not exist is left out, and one that comes twice counts twice.

use std::str::FromStr as _;

use croner::time::days_in_month;
use croner::{CronComponent, CronPattern, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp as Moment, ToSpan as _, Zoned};

use crate::limits::{CRON_BYTES_MAX, TIME_ZONE_BYTES_MAX};
use crate::time::Timestamp;

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: usize = 5;

/// A month of each length there is, by its year. In 400 years each begins on each day of the week, so a rule that matches
/// no day of any of them, whatever day of the week it begins on, matches none ever.
const MONTHS_BY_LENGTH: [(i32, u32); 4] = [(2023, 1), (2023, 4), (2024, 2), (2023, 2)];

/// Longest time that clocks are put back by, in hours, and how many times of a rule there may be in it, and a few more.
const FOLD_HOURS_MAX: i64 = 4;
const FOLD_TIMES_MAX: usize = 60 * 5;

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("repeat.{field} {detail}")]
pub struct RepeatError {
    /// The field of what was asked for that is to blame.
    pub field: &'static str,
    /// What is wrong with it, and what to give.
    pub detail: String,
}

impl RepeatError {
    pub(super) fn new(field: &'static str, detail: impl Into<String>) -> Self {
        Self { field, detail: detail.into() }
    }
}

/// A rule that was read.
#[derive(Debug)]
pub(super) struct Cron {
    times: croner::Cron,
    zone: TimeZone,
    /// It names its hours: times are looked for as clocks on the wall show them, each on each day once.
    names_hours: bool,
}

impl Cron {
    /// Reads a rule of five fields.
    pub fn read(text: &str, zone: &str) -> Result<Self, RepeatError> {
        let refused = |detail: String| RepeatError::new("cron", detail);
        let help = "give five fields, minute, hour, day of the month, month, day of the week, like \"0 9 * * MON-FRI\"";
        if text.len() > CRON_BYTES_MAX {
            return Err(refused(format!("has {} bytes; the limit is {CRON_BYTES_MAX}", text.len())));
        }
        // What else there may be is kept in one header, in parts that these separate.
        let is_plain = |c: char| (c.is_ascii_graphic() || c == ' ') && c != ';' && c != '=';
        if !text.chars().all(is_plain) || text.split_whitespace().count() != FIELDS {
            return Err(refused(format!("is {text:?}; {help}")));
        }
        let times = croner::Cron::from_str(text).map_err(|error| refused(format!("is {text:?}: {error}; {help}")))?;
        if !matches_any(&times.pattern) {
            let detail = format!("is {text:?}, which matches no time that will ever be; {help}");
            return Err(refused(detail));
        }
        let unknown = || {
            let name: String = zone.chars().take(TIME_ZONE_BYTES_MAX).collect();
            RepeatError::new("time_zone", format!("is {name:?}, which is none; give one like \"Europe/Berlin\""))
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
        if zone.len() > TIME_ZONE_BYTES_MAX || !zone.chars().all(is_name) {
            return Err(unknown());
        }
        let zone = TimeZoneDatabase::bundled().get(zone).map_err(|_| unknown())?;
        let names_hours = text.split_whitespace().nth(1).is_some_and(|hours| !hours.starts_with('*'));
        Ok(Self { times, zone, names_hours })
    }

    /// That moment by the zone's clocks, without parts of a second, which no rule has.
    fn zoned(&self, at: Timestamp) -> Option<Zoned> {
        let moment = Moment::from_second(at.as_millis().div_euclid(1_000)).ok()?;
        Some(moment.to_zoned(self.zone.clone()))
    }

    /// The first time after `from`; `None`: there is none before the year 5000. Looks ahead as far as that is.
    pub fn after(&self, from: Timestamp) -> Option<Timestamp> {
        if !self.names_hours {
            let next = self.times.find_next_occurrence(&self.zoned(from)?, false).ok()?;
            return Some(Timestamp::from_millis(next.timestamp().as_millisecond()));
        }
        let mut wall = self.wall(from)?;
        for _ in 0..FOLD_TIMES_MAX {
            wall = self.times.find_next_occurrence(&wall, false).ok()?;
            let at = self.moment(&wall)?;
            if at > from {
                return Some(at);
            }
        }
        None
    }

    /// What clocks show at that moment, as if they were never put forward or back.
    fn wall(&self, at: Timestamp) -> Option<Zoned> {
        self.zoned(at)?.datetime().to_zoned(TimeZone::UTC).ok()
    }

    /// When clocks show this: for the first time, or the first moment behind the gap where they never do.
    fn moment(&self, wall: &Zoned) -> Option<Timestamp> {
        let shown = self.zone.to_ambiguous_timestamp(wall.datetime());
        let earlier = shown.earlier().ok()?;
        let at = match shown.offset() {
            AmbiguousOffset::Gap { .. } => self.zone.following(earlier).next()?.timestamp(),
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => earlier,
        };
        Some(Timestamp::from_millis(at.as_millisecond()))
    }

    /// The last time that is no later than `till`.
    pub fn last(&self, till: Timestamp) -> Option<Timestamp> {
        if !self.names_hours {
            let last = self.times.find_previous_occurrence(&self.zoned(till)?, true).ok()?;
            return Some(Timestamp::from_millis(last.timestamp().as_millisecond()));
        }
        // In the second of two hours that clocks show alike, what is later on the wall was before.
        let (mut wall, mut is_inclusive) = (self.wall(till)?.checked_add(FOLD_HOURS_MAX.hours()).ok()?, true);
        for _ in 0..FOLD_TIMES_MAX {
            wall = self.times.find_previous_occurrence(&wall, is_inclusive).ok()?;
            let at = self.moment(&wall)?;
            if at <= till {
                return Some(at);
            }
            is_inclusive = false;
        }
        None
    }
}

/// Whether there is a time that a rule matches. A search of the calendar would go on to the year 5000 where there is
/// none.
fn matches_any(rule: &CronPattern) -> bool {
    let has_any = |values: &CronComponent| !values.values().is_empty();
    let is_asked = |month: u32| rule.month_match(month).unwrap_or(false);
    has_any(&rule.minutes)
        && has_any(&rule.hours)
        && MONTHS_BY_LENGTH.into_iter().any(|(year, month)| {
            let length = days_in_month(year, month);
            (1..=12).any(|other| is_asked(other) && days_in_month(year, other) == length)
                && (1..=length).any(|day| {
                    let matches = |weekday| rule.day_match(year, month, day, Weekday::from_days_from_sunday(weekday));
                    (0..7).any(|weekday| matches(weekday).unwrap_or(false))
                })
        })
}
