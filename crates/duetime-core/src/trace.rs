//! The context of a trace as HTTP and messages carry it: `traceparent` and `tracestate` of W3C Trace Context.
//!
//! A message keeps that of its producer among its headers, so that it takes no place where there is none, counts
//! against the limits of headers, and reaches every target without their knowing.

use std::fmt;
use std::ops::Range;

use crate::message::Headers;

/// Name of the header that names the parent of what follows.
pub const TRACEPARENT: &str = "traceparent";
/// Name of the header with what tracing systems add to it.
pub const TRACESTATE: &str = "tracestate";
/// Longest `tracestate` that is kept; W3C Trace Context asks for 512 characters at least.
const TRACESTATE_BYTES_MAX: usize = 512;

/// A span, as `traceparent` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanRef {
    /// Of the trace, not 0.
    pub trace_id: u128,
    /// Of the span, not 0.
    pub span_id: u64,
    /// Whether it is recorded.
    pub sampled: bool,
}

impl SpanRef {
    /// Reads a `traceparent`; `None` where it is malformed. Of a later version what version 00 has is read.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let mut parts = text.trim().splitn(5, '-');
        let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lengths = [version, trace_id, span_id, flags].map(str::len) == [2, 32, 16, 2];
        let whole = version != "00" || parts.next().is_none();
        if !lengths || !whole || version == "ff" || ![version, trace_id, span_id, flags].into_iter().all(hex) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace_id, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(span_id, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace_id, span_id, sampled: flags & 1 == 1 })
    }
}

impl SpanRef {
    /// The id of its trace as logs and tools write it: 32 hexadecimal digits.
    #[must_use]
    pub fn trace(&self) -> String {
        self.to_string()[TRACE_DIGITS].to_owned()
    }
}

/// Of a `traceparent`, where the ids of the trace and of the span are.
const TRACE_DIGITS: Range<usize> = 3..35;
const SPAN_DIGITS: Range<usize> = 36..52;

impl fmt::Display for SpanRef {
    /// Digit by digit: a node that records deliveries writes many, and `{:032x}` takes five times as long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        digits(&mut text[TRACE_DIGITS], &self.trace_id.to_be_bytes());
        digits(&mut text[SPAN_DIGITS], &self.span_id.to_be_bytes());
        text[SPAN_DIGITS.end + 2] += u8::from(self.sampled);
        f.write_str(std::str::from_utf8(&text).expect("digits are ASCII"))
    }
}

/// Writes `bytes` in hexadecimal digits, two for each.
fn digits(to: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in to.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Whether a header, of any case, is one of the two.
#[must_use]
pub fn is_trace_header(name: &str) -> bool {
    name.eq_ignore_ascii_case(TRACEPARENT) || name.eq_ignore_ascii_case(TRACESTATE)
}

/// What a producer's request said of its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerTrace {
    traceparent: String,
    tracestate: Option<String>,
}

impl ProducerTrace {
    /// Of a request with these two headers; `None` where they say nothing that is valid.
    #[must_use]
    pub fn new(traceparent: Option<&str>, tracestate: Option<&str>) -> Option<Self> {
        let traceparent = traceparent?.trim();
        SpanRef::parse(traceparent)?;
        let plain = |state: &&str| {
            !state.is_empty() && state.len() <= TRACESTATE_BYTES_MAX && !state.chars().any(char::is_control)
        };
        let tracestate = tracestate.map(str::trim).filter(plain).map(str::to_owned);
        Some(Self { traceparent: traceparent.to_owned(), tracestate })
    }

    /// The span.
    #[must_use]
    pub fn span(&self) -> SpanRef {
        SpanRef::parse(&self.traceparent).expect("it was read before")
    }
}

impl Headers {
    /// The first value of a header, whatever the case of its name.
    fn get_in_any_case(&self, name: &str) -> Option<&str> {
        self.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The span that made the message, where its headers name one.
    #[must_use]
    pub fn creator(&self) -> Option<SpanRef> {
        SpanRef::parse(self.get_in_any_case(TRACEPARENT)?)
    }

    /// With the trace of the request that brought the message: not where the message has one of its own, and not
    /// where it would be more than a message may have.
    #[must_use]
    pub fn traced(self, by: &ProducerTrace) -> Self {
        if self.get_in_any_case(TRACEPARENT).is_some() {
            return self;
        }
        // Of another trace than the request's.
        let state = by.tracestate.as_ref().filter(|_| self.get_in_any_case(TRACESTATE).is_none());
        let added = [(TRACEPARENT, Some(&by.traceparent)), (TRACESTATE, state)];
        added.into_iter().fold(self, |headers, (name, value)| match value {
            Some(value) => headers.append(name, value).unwrap_or_else(|full| full),
            None => headers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX};
    use crate::max_attempts;
    use proptest::prelude::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        Headers::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()).unwrap()
    }

    #[test]
    fn a_traceparent_is_read_as_the_standard_says_and_what_is_malformed_is_none() {
        let read = SpanRef::parse(GIVEN).unwrap();
        assert_eq!((read.trace_id, read.span_id), (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, 0xb7ad_6b71_6920_3331));
        assert!(read.sampled && read.to_string() == GIVEN);
        assert!(!SpanRef::parse(&GIVEN.replace("-01", "-00")).unwrap().sampled);
        assert!(
            SpanRef::parse(&GIVEN.replace("00-0a", "cc-0a").replace("-01", "-01-what-ever")).is_some(),
            "a later one"
        );
        for bad in [
            "",
            "00",
            &GIVEN[1..],
            &format!("{GIVEN}-more"),
            &GIVEN.replace("00-0a", "ff-0a"),
            &GIVEN.to_uppercase(),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-001",
            "00-0af7651916cd43dd8448eb211c80319ü-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(SpanRef::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace_id in 1u128.., span_id in 1u64.., sampled: bool) {
            let span = SpanRef { trace_id, span_id, sampled };
            prop_assert_eq!(SpanRef::parse(&span.to_string()), Some(span));
            prop_assert_eq!(span.to_string(), format!("00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(sampled)));
            prop_assert_eq!(span.trace(), format!("{trace_id:032x}"));
        }

        #[test]
        fn no_text_is_read_as_something_that_cannot_be_written(text in "[0-9a-f-]{0,60}|.{0,60}") {
            if let Some(span) = SpanRef::parse(&text) {
                prop_assert_eq!(SpanRef::parse(&span.to_string()), Some(span));
            }
        }
    }

    #[test]
    fn a_messages_own_trace_wins_over_that_of_its_request_and_limits_hold() {
        let request = ProducerTrace::new(Some(GIVEN), Some("vendor=1")).unwrap();
        let kept = headers(&[("a", "b")]).traced(&request);
        assert_eq!(kept, headers(&[("a", "b"), ("traceparent", GIVEN), ("tracestate", "vendor=1")]));
        assert_eq!(kept.creator(), SpanRef::parse(GIVEN));
        let own = headers(&[("Traceparent", "own")]);
        assert_eq!(own.clone().traced(&request), own, "whatever it says, and without the state of another trace");
        let full: Vec<_> = (0..HEADERS_MAX).map(|n| (format!("h{n}"), String::new())).collect();
        let full = Headers::new(full).unwrap();
        assert_eq!(full.clone().traced(&request), full);
        let full = max_attempts::kept_in(3, &full);
        assert_eq!(full.clone().traced(&request), full, "one of Duetime's own is not counted");
        let long = headers(&[("a", &"b".repeat(HEADER_BYTES_MAX - 1))]);
        assert_eq!(long.clone().traced(&request), long);
    }

    #[test]
    fn a_request_that_says_nothing_valid_leaves_no_trace() {
        assert_eq!(ProducerTrace::new(None, Some("vendor=1")), None);
        assert_eq!(ProducerTrace::new(Some("malformed"), None), None);
        let without = ProducerTrace::new(Some(GIVEN), None);
        for state in ["", " ", "a\u{7}b", &"x".repeat(TRACESTATE_BYTES_MAX + 1)] {
            assert_eq!(ProducerTrace::new(Some(GIVEN), Some(state)), without, "{state:?}");
        }
    }
}
