//! What every delivery says of itself, put together once for all sinks.
//!
//! Upstream: sinks whose carrier has headers or fields. The Redis script that hands over in place
//! (`hand_over.lua` of the store) writes the same, but for the delivery id.

use duetime_core::{Delivery, MessageId};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What the names of our headers begin with; those of a message that do are left out.
pub const PREFIX: &str = "duetime-";

/// What is not plain visible ASCII, and the percent sign.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Names and values, all of visible ASCII: the topic, the id (percent-encoded as in a path), the delivery id, the
/// attempt and the due time in milliseconds.
#[must_use]
pub fn of(message: &Delivery) -> [(&'static str, String); 5] {
    [
        ("duetime-topic", message.topic.as_str().to_owned()),
        ("duetime-id", encoded(&message.id)),
        ("duetime-delivery-id", message.delivery_id()),
        ("duetime-attempt", message.attempt.to_string()),
        ("duetime-due-at", message.due_at.as_millis().to_string()),
    ]
}

fn encoded(id: &MessageId) -> String {
    utf8_percent_encode(id.as_str(), ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_delivery_says_of_itself_is_visible_ascii_and_begins_with_our_prefix() {
        let mut message = duetime_testkit::conformance::sink::message("order 100% \"ü\"~", "");
        message.attempt = 3;
        let own = of(&message);
        let expected = [
            ("duetime-topic", "conformance"),
            ("duetime-id", "order%20100%25%20%22%C3%BC%22~"),
            ("duetime-delivery-id", &message.delivery_id()),
            ("duetime-attempt", "3"),
            ("duetime-due-at", "1800000000123"),
        ];
        assert_eq!(own.each_ref().map(|(name, value)| (*name, value.as_str())), expected);
        assert!(
            own.iter().all(|(name, value)| name.starts_with(PREFIX) && value.bytes().all(|b| b.is_ascii_graphic()))
        );
    }
}
