//! What an entry of a source is as a message.

use duetime_client::NewMessage;
use duetime_core::{Due, Timestamp};

use crate::id::spell_id;

/// What one entry of a source is.
#[derive(Debug)]
pub enum Item {
    /// A delayed message.
    Message(NewMessage),
    /// An entry that cannot be a message, and why.
    Refused {
        /// Its id in the source, or the beginning of the entry.
        id: String,
        /// Why, and what to do.
        why: String,
    },
    /// An entry that is not taken: it is not delayed, or of another queue.
    Other,
}

/// A message of another system, under the spelling of its id.
pub(crate) fn message(id: &[u8], due_ms: i64, payload: Vec<u8>) -> NewMessage {
    NewMessage::new(payload).id(spell_id(id)).due(Due::At(Timestamp::from_millis(due_ms)))
}

/// Adds a header, unless it is empty. What no header can hold is spelled as in an id.
pub(crate) fn header(message: &mut NewMessage, name: &str, value: &[u8]) {
    if value.is_empty() {
        return;
    }
    let text = std::str::from_utf8(value).ok().filter(|text| !text.chars().any(char::is_control));
    message.headers.push((name.to_owned(), text.map_or_else(|| spell_id(value), str::to_owned)));
}

/// A refusal of an entry.
pub(crate) fn refused(id: &[u8], why: impl Into<String>) -> Item {
    Item::Refused { id: spell_id(&id[..id.len().min(100)]), why: why.into() }
}

/// Seconds with a fraction as milliseconds, up: nothing comes early. Parts below a microsecond are what a double adds.
pub(crate) fn millis_of_seconds(seconds: f64) -> i64 {
    let micros = (seconds * 1e6).round() as i64;
    micros.div_euclid(1000) + i64::from(micros.rem_euclid(1000) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_milliseconds_and_never_earlier() {
        let all = [1_763_700_000.123, 1_763_700_000.0, 1_763_700_000.123_4, 1_924_992_000.999_9];
        let wanted = [1_763_700_000_123, 1_763_700_000_000, 1_763_700_000_124, 1_924_992_001_000];
        assert_eq!(all.map(millis_of_seconds), wanted);
    }
}
