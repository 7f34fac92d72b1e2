//! How long a target that is down is left alone at most: a setting that all network sinks have.

use std::time::Duration;

use duetime_core::sink::PROBE_WAIT_MAX_DEFAULT;
use duetime_core::units;
use serde::{Deserialize, Deserializer};

/// The setting `max_probe_wait`: longest wait between two tries of a target that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeWaitMax(pub Duration);

impl ProbeWaitMax {
    /// The smallest value; the first wait is as long.
    pub const LEAST: Duration = Duration::from_millis(100);
    /// The largest value.
    pub const MOST: Duration = Duration::from_secs(3600);
}

impl Default for ProbeWaitMax {
    fn default() -> Self {
        Self(PROBE_WAIT_MAX_DEFAULT)
    }
}

impl<'de> Deserialize<'de> for ProbeWaitMax {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wait = units::duration::deserialize(from)?;
        if (Self::LEAST..=Self::MOST).contains(&wait) {
            Ok(Self(wait))
        } else {
            Err(serde::de::Error::custom("max_probe_wait must be 100ms to 1h"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_duration_within_bounds() {
        let read = |text: &str| serde_json::from_str::<ProbeWaitMax>(text).map_err(|error| error.to_string());
        assert_eq!(read("\"30s\""), Ok(ProbeWaitMax(Duration::from_secs(30))));
        assert_eq!(ProbeWaitMax::default().0, Duration::from_secs(5));
        for refused in ["\"99ms\"", "\"61m\"", "0"] {
            assert!(read(refused).unwrap_err().contains("100ms to 1h"), "{refused}");
        }
    }
}
