//! Why a topic is paused: kept in its record beside the setting `paused`, for people, and for the resume of a sink.
//!
//! Upstream: the catalog writes it, the API shows it. Whether anything is claimed depends on the setting alone.

use serde::{Deserialize, Serialize};

use crate::limits::PAUSE_REASON_BYTES_MAX;

/// Why a topic is paused: kept in its record beside the setting `paused`, for people, and for the resume of a sink. A
/// node of a version without it keeps it as it is, whatever it makes of the pause: so it counts only
/// with the very version of the record that it was written with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseNote {
    /// As somebody gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the pause began, milliseconds since the Unix epoch by the clock of the node that was asked. Absent: nobody
    /// noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
    /// The name of the token of whoever paused it, or gave the reason; absent without tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The sink through which it was paused; absent: it was paused by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// Of the record that it was written with.
    #[serde(default)]
    pub version: u64,
}

impl PauseNote {
    /// The same, in a record of this version.
    #[must_use]
    pub fn at_version(self, version: u64) -> Self {
        Self { version, ..self }
    }
}

/// Refuses a reason that is empty, too long, or has control characters.
///
/// # Errors
///
/// A sentence that names the bound and the fix.
pub fn check_pause_reason(reason: &str) -> Result<(), String> {
    if reason.trim().is_empty() {
        return Err("reason must not be empty; leave it out for none".to_owned());
    }
    if reason.len() > PAUSE_REASON_BYTES_MAX {
        return Err(format!("reason must have {PAUSE_REASON_BYTES_MAX} bytes or less, this has {}", reason.len()));
    }
    if reason.chars().any(char::is_control) {
        return Err("reason must have no control characters; write it in one line".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        assert!(check_pause_reason(&"é".repeat(PAUSE_REASON_BYTES_MAX / 2)).is_ok());
        for (bad, fix) in [
            (String::new(), "leave it out"),
            (" ".to_owned(), "leave it out"),
            ("x".repeat(PAUSE_REASON_BYTES_MAX + 1), "200 bytes or less"),
            ("two\nlines".to_owned(), "one line"),
            ("\u{1b}[31mred".to_owned(), "control characters"),
        ] {
            let refused = check_pause_reason(&bad).unwrap_err();
            assert!(refused.starts_with("reason") && refused.contains(fix), "{bad:?}: {refused}");
        }
    }
}
