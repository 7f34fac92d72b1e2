//! What every delivery says of itself, put together once for all sinks.
//!
//! Upstream: sinks whose carrier has headers or fields. The Redis script that delivers in place
//! (`hand_over.lua` of the store) writes the same, but for the delivery id.

use duetime_core::dead_origin::DEAD_HEADERS;
use duetime_core::trace::{TRACEPARENT, is_trace_header};
use duetime_core::{Delivery, MessageId};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What the names of our headers begin with; those of a message that do are left out, but for those that say where a
/// forwarded dead letter comes from.
pub const PREFIX: &str = "duetime-";

/// What is not plain visible ASCII, and the percent sign.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The header of a producer's span, where the delivery's own span is sent as `traceparent`.
const CREATED_BY: &str = "duetime-created-by";

/// Names and values, all of visible ASCII: the topic, the id (percent-encoded as in a path), the delivery id, the
/// attempt and the due time in milliseconds; where deliveries are recorded, the `traceparent` of this one and the
/// one that made the message.
#[must_use]
pub fn of(message: &Delivery) -> Vec<(&'static str, String)> {
    let mut own = vec![
        ("duetime-topic", message.topic.as_str().to_owned()),
        ("duetime-id", encoded(&message.id)),
        ("duetime-delivery-id", message.delivery_id()),
        ("duetime-attempt", message.attempt.to_string()),
        ("duetime-due-at", message.due_at.as_millis().to_string()),
    ];
    own.extend(trace_of(message));
    own
}

/// Of these, what is about the trace.
#[must_use]
pub fn trace_of(message: &Delivery) -> Vec<(&'static str, String)> {
    let Some(span) = message.span else { return Vec::new() };
    let creator = message.headers.creator().map(|creator| (CREATED_BY, creator.to_string()));
    creator.into_iter().chain([(TRACEPARENT, span.to_string())]).collect()
}

/// Whether a header of the message with this name is left out: it is one of ours, or another goes on in its place.
#[must_use]
pub fn hides(message: &Delivery, name: &str) -> bool {
    let ours = name.as_bytes().get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX.as_bytes()));
    ours && !says_origin(name) || replaces(message, name)
}

/// Whether it is one of those that say where a forwarded dead letter comes from.
#[must_use]
pub fn says_origin(name: &str) -> bool {
    let start = name.as_bytes().get(..DEAD_HEADERS.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(DEAD_HEADERS.as_bytes()))
}

/// Whether it is about the producer's trace, and the span of the delivery goes on in its place.
#[must_use]
pub fn replaces(message: &Delivery, name: &str) -> bool {
    message.span.is_some() && is_trace_header(name)
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
        assert_eq!(own.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>(), expected);
        assert!(
            own.iter().all(|(name, value)| name.starts_with(PREFIX) && value.bytes().all(|b| b.is_ascii_graphic()))
        );
    }

    #[test]
    fn the_span_of_a_recorded_hand_over_goes_on_in_place_of_the_producers() {
        let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let pairs = [
            ("Traceparent", given),
            ("TRACESTATE", "a=b"),
            ("shop", "7"),
            ("Duetime-x", "y"),
            ("duetime-dead-from", "orders"),
        ];
        let headers = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let mut message = duetime_testkit::conformance::sink::message("a", "");
        message.headers = duetime_core::Headers::new(headers).unwrap();
        let hidden = |message: &Delivery| pairs.map(|(name, _)| hides(message, name));
        assert_eq!((of(&message).len(), hidden(&message)), (5, [false, false, false, true, false]));
        message.span = duetime_core::trace::SpanRef::parse(&given.replace('7', "8"));
        assert_eq!(of(&message)[5..], [(CREATED_BY, given.to_owned()), (TRACEPARENT, given.replace('7', "8"))]);
        assert_eq!(hidden(&message), [true, true, false, true, false]);
    }
}
