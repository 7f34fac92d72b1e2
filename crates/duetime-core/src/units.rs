//! Durations, sizes and moments as people write them, each with a clear refusal.

use std::time::Duration;

use crate::limits::DUE_AHEAD_MAX;
use crate::time::Timestamp;

/// The first moment that is taken, 10^12 milliseconds: 2001-09-09. Before it lie moments of today in seconds.
const TIME_MS_MIN: i64 = 1_000_000_000_000;

/// Reads `"500ms"`, `"30m"` or `"1h 30m"`. A number without a unit is refused, for some mean seconds by it and others
/// milliseconds; but for 0, which is the same in both.
///
/// # Errors
///
/// A sentence that says what was read and how a duration is written.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return match text.trim_start_matches('0') {
            "" => Ok(Duration::ZERO),
            _ => Err(format!(
                "{text} has no unit; write \"{text}s\" for seconds or \"{text}ms\" for milliseconds, like \"500ms\", \
                 \"30m\", \"1h 30m\""
            )),
        };
    }
    humantime::parse_duration(text)
        .map_err(|_| format!("{text:?} is not a duration; write \"500ms\", \"30s\", \"30m\" or \"1h 30m\""))
}

/// Writes a duration the way [`parse_duration`] reads it, rounded down to milliseconds.
#[must_use]
pub fn show_duration(value: Duration) -> String {
    let millis = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// Writes a size the way [`parse_size`] reads it, in the largest unit that says it exactly.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let exact = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    exact.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// Reads a number of bytes or `"256KiB"` (B, KiB, MiB, GiB; KB, MB, GB are powers of ten).
///
/// # Errors
///
/// A sentence that says what was read and how a size is written.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let help = || format!("{text:?} is not a size; write a number of bytes or \"256KiB\"");
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = trimmed[..digits].parse().map_err(|_| help())?;
    let unit: u64 = match trimmed[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(help()),
    };
    number.checked_mul(unit).ok_or_else(help)
}

/// Where the seconds are in `2030-01-31T12:00:00Z`.
const LEAP_SECOND_AT: std::ops::Range<usize> = 16..19;

/// Reads a moment: whole milliseconds since the Unix epoch, or RFC 3339; none before 2001, for that is seconds taken for
/// milliseconds.
///
/// # Errors
///
/// A sentence that says what was read and how a moment is written.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    // A leap second is read as the one before it. Nothing is delivered before the moment that was written.
    let leap_ms = if text.get(LEAP_SECOND_AT) == Some(":60") { 1_000 } else { 0 };
    let millis = match text.parse::<i64>() {
        Ok(millis) => millis,
        Err(_) if offset_hours(text).is_some_and(|hours| hours > 23) => {
            return Err(format!("{text:?} is not a time: an offset from UTC has at most 23 hours"));
        }
        Err(_) => match text.parse::<jiff::Timestamp>() {
            // Rounded up: a message is never delivered before the moment that was written.
            Ok(at) => {
                i64::try_from(at.as_nanosecond().div_euclid(1_000_000)).unwrap_or(i64::MAX)
                    + i64::from(at.as_nanosecond().rem_euclid(1_000_000) > 0)
                    + leap_ms
            }
            Err(_) => {
                return Err(format!(
                    "{text:?} is not a time; give milliseconds since the Unix epoch or RFC 3339 \
                     like \"2030-01-31T12:00:00Z\""
                ));
            }
        },
    };
    if millis < 0 {
        return Err(format!("{text} lies before 1970; give milliseconds since the Unix epoch"));
    }
    if millis < TIME_MS_MIN {
        return Err(match text.parse::<i64>() {
            Ok(seconds) if seconds > 0 => format!(
                "{text} lies before 2001: is it in seconds? Give milliseconds since the Unix epoch, {seconds}000, or RFC 3339"
            ),
            _ => format!("{text} lies before 2001; give a time since then, or none"),
        });
    }
    Ok(Timestamp::from_millis(millis))
}

/// The hours of the offset from UTC in RFC 3339.
fn offset_hours(text: &str) -> Option<u8> {
    let (_, clock) = text.split_once(['T', 't', ' '])?;
    let (_, offset) = clock.split_once(['+', '-'])?;
    offset.get(..2)?.parse().ok()
}

/// Refuses a moment further ahead of `now` than [`DUE_AHEAD_MAX`].
///
/// # Errors
///
/// A sentence that names the bound.
pub fn check_due_at(due_at: Timestamp, now: Timestamp) -> Result<Timestamp, String> {
    if due_at.since(now) > DUE_AHEAD_MAX {
        return Err("the due time lies more than 10 years ahead; schedule it nearer".to_owned());
    }
    if due_at < Timestamp::ZERO {
        return Err("the due time lies before 1970; give milliseconds since the Unix epoch".to_owned());
    }
    Ok(due_at)
}

/// Refuses a delay longer than [`DUE_AHEAD_MAX`]; parts of a millisecond are rounded up.
///
/// # Errors
///
/// A sentence that names the bound.
pub fn check_delay(delay: Duration) -> Result<Duration, String> {
    if delay > DUE_AHEAD_MAX {
        return Err("the delay is longer than 10 years; schedule it nearer".to_owned());
    }
    // Stores keep milliseconds; what is rounded down would be delivered too early.
    Ok(Duration::from_millis(u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)))
}

struct TextOrNumber(String);

impl<'de> serde::Deserialize<'de> for TextOrNumber {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = TextOrNumber;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string with a unit, or a whole number not below 0")
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Self::Value, E> {
                Ok(TextOrNumber(v.to_owned()))
            }
            fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Self::Value, E> {
                Ok(TextOrNumber(v.to_string()))
            }
            fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Self::Value, E> {
                u64::try_from(v)
                    .map(|v| TextOrNumber(v.to_string()))
                    .map_err(|_| E::custom(format!("{v} is negative; give a whole number not below 0")))
            }
        }
        source.deserialize_any(Visitor)
    }
}

/// `#[serde(with = "duetime_core::units::duration")]`: a string with a unit, or 0.
pub mod duration {
    use super::{Duration, TextOrNumber, parse_duration, show_duration};

    /// Writes a string with units.
    ///
    /// # Errors
    ///
    /// Whatever the serializer answers.
    pub fn serialize<S: serde::Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&show_duration(*value))
    }

    /// Reads a string with units, or 0.
    ///
    /// # Errors
    ///
    /// The sentence of [`parse_duration`].
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = <TextOrNumber as serde::Deserialize>::deserialize(from)?;
        parse_duration(&text.0).map_err(serde::de::Error::custom)
    }
}

/// `#[serde(with = "duetime_core::units::maybe_duration")]`: the same, or nothing.
pub mod maybe_duration {
    use super::{Duration, duration};

    /// Writes a string with units.
    ///
    /// # Errors
    ///
    /// Whatever the serializer answers.
    pub fn serialize<S: serde::Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => duration::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    /// Reads a string with units, or null.
    ///
    /// # Errors
    ///
    /// The sentence of [`super::parse_duration`].
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        #[derive(serde::Deserialize)]
        struct GivenDuration(#[serde(with = "super::duration")] Duration);
        Ok(<Option<GivenDuration> as serde::Deserialize>::deserialize(from)?.map(|given| given.0))
    }
}

/// `#[serde(with = "duetime_core::units::maybe_time")]`: a moment as [`parse_time`] reads it, or nothing.
pub mod maybe_time {
    use super::{TextOrNumber, parse_time};
    use crate::time::Timestamp;

    /// Writes milliseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// Whatever the serializer answers.
    pub fn serialize<S: serde::Serializer>(value: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_i64(value.as_millis()),
            None => to.serialize_none(),
        }
    }

    /// Reads milliseconds since the Unix epoch, RFC 3339, or null.
    ///
    /// # Errors
    ///
    /// The sentence of [`super::parse_time`].
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let text = <Option<TextOrNumber> as serde::Deserialize>::deserialize(from)?;
        text.map(|text| parse_time(&text.0)).transpose().map_err(serde::de::Error::custom)
    }
}

/// `#[serde(with = "duetime_core::units::durations")]`: a list of strings with units.
pub mod durations {
    use super::Duration;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Entry(#[serde(with = "super::duration")] Duration);

    /// Writes a list of strings with units.
    ///
    /// # Errors
    ///
    /// Whatever the serializer answers.
    pub fn serialize<S: serde::Serializer>(list: &[Duration], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|wait| Entry(*wait)))
    }

    /// Reads a list of strings with units.
    ///
    /// # Errors
    ///
    /// The sentence of [`super::parse_duration`].
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Duration>, D::Error> {
        let list = <Vec<Entry> as serde::Deserialize>::deserialize(from)?;
        Ok(list.into_iter().map(|entry| entry.0).collect())
    }
}

/// `#[serde(with = "duetime_core::units::size")]`: a number of bytes or `"256KiB"`.
pub mod size {
    use super::{TextOrNumber, parse_size};

    /// Writes a number of bytes.
    ///
    /// # Errors
    ///
    /// Whatever the serializer answers.
    pub fn serialize<S: serde::Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(*value)
    }

    /// Reads a number of bytes or a string with a unit.
    ///
    /// # Errors
    ///
    /// The sentence of [`parse_size`].
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = <TextOrNumber as serde::Deserialize>::deserialize(from)?;
        parse_size(&text.0).map_err(serde::de::Error::custom)
    }
}

/// `#[serde(with = "duetime_core::units::maybe_size")]`: the same, or nothing.
pub mod maybe_size {
    use super::size;

    /// Writes a number of bytes.
    ///
    /// # Errors
    ///
    /// Whatever the serializer answers.
    pub fn serialize<S: serde::Serializer>(value: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => size::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    /// Reads a number of bytes, a string with a unit, or null.
    ///
    /// # Errors
    ///
    /// The sentence of [`super::parse_size`].
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        #[derive(serde::Deserialize)]
        struct GivenSize(#[serde(with = "super::size")] u64);
        Ok(<Option<GivenSize> as serde::Deserialize>::deserialize(from)?.map(|given| given.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_sizes_and_times_are_read_as_people_write_them() {
        assert_eq!(parse_duration("1h 30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        for (text, help) in [("250", "\"250s\" for seconds"), ("99999999999999999999", "\"99999999999999999999ms\"")] {
            assert!(parse_duration(text).unwrap_err().contains(help), "{text}");
        }
        assert!(parse_duration("-1s").unwrap_err().contains("30m"));
        assert!(parse_duration("NaN").is_err());
        assert!(parse_duration("").is_err());
        assert_eq!(parse_size("256KiB").unwrap(), 262_144);
        assert_eq!(parse_size("10").unwrap(), 10);
        assert!(parse_size("x").is_err());
        assert_eq!(parse_time("2027-01-01T00:00:01Z").unwrap().as_millis(), 1_798_761_601_000);
        let rounded = parse_time("2027-01-01T00:00:00.001000001Z").unwrap();
        assert_eq!(rounded.as_millis(), 1_798_761_600_002, "never too early");
        for offset in ["+24:00", "+25:00", "-24:00"] {
            let error = parse_time(&format!("2027-01-01T00:00:00{offset}")).unwrap_err();
            assert!(error.contains("at most 23 hours"), "{error}");
        }
        let early = parse_time("2027-01-01T00:00:00+02:00").unwrap();
        assert_eq!(early.as_millis() + 7_200_000, parse_time("2027-01-01 00:00:00Z").unwrap().as_millis());
        assert_eq!(parse_time("2016-12-31T23:59:60Z"), parse_time("2017-01-01T00:00:00Z"), "nor by a leap second");
        for before in ["-5", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00+14:00"] {
            assert!(parse_time(before).unwrap_err().contains("1970"));
        }
        assert!(parse_time("1795492282").unwrap_err().contains("is it in seconds? Give milliseconds"));
        assert!(parse_time("1795492282").unwrap_err().contains("1795492282000"));
        for early in ["0", "5", "999999999999", "1970-01-01T00:00:01Z", "2001-01-01T00:00:00Z"] {
            assert!(parse_time(early).unwrap_err().contains("2001"), "{early}");
        }
        assert_eq!(parse_time("1000000000000").unwrap().as_millis(), 1_000_000_000_000);
        assert_eq!(Timestamp::from_millis(1500).to_string(), "1970-01-01T00:00:01.500Z");
        assert_eq!(check_delay(Duration::from_micros(1500)), Ok(Duration::from_millis(2)));
        assert!(check_due_at(Timestamp::from_millis(i64::MAX), Timestamp::ZERO).is_err());
    }
}
