//! What is wrong with the section of a sink: at which of its keys, and the sentence.
//!
//! Upstream: the check of each kind of sink makes it, and the program finds the line of the file by its key.

use std::fmt;
use std::time::Duration;

/// What is wrong with the section of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkFault {
    /// The key of the section that has to be changed; `None`: what several keys say together, or one that is missing.
    pub key: Option<&'static str>,
    /// The sentence, with the fix.
    pub text: String,
}

impl SinkFault {
    /// At one key.
    pub fn at(key: &'static str, text: impl Into<String>) -> Self {
        Self { key: Some(key), text: text.into() }
    }

    /// At none of the keys that are there.
    pub fn whole(text: impl Into<String>) -> Self {
        Self { key: None, text: text.into() }
    }

    /// Refuses waits of nothing.
    pub fn of_zero(timeout: Duration, connect_timeout: Duration) -> Result<(), Self> {
        let key = match (timeout.is_zero(), connect_timeout.is_zero()) {
            (true, _) => "timeout",
            (false, true) => "connect_timeout",
            (false, false) => return Ok(()),
        };
        Err(Self::at(key, "timeout and connect_timeout must be above 0"))
    }
}

impl fmt::Display for SinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
