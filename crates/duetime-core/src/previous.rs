//! The payload that a message had before somebody edited it.
//!
//! It is kept among the headers of the message, so stores move and copy it as they do those, and nobody who is handed
//! the message sees it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::message::{Headers, PREVIOUS};
use crate::time::Timestamp;

/// Of a longer payload its length alone is kept.
const KEPT_BYTES_MAX: usize = 8 << 10;

/// What a message was before it was edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previous {
    /// When it was edited.
    pub edited_at: Timestamp,
    /// Bytes of the former payload.
    pub bytes: u64,
    /// The former payload; `None`: it was too long to be kept.
    pub payload: Option<Bytes>,
}

impl Previous {
    /// What is kept of `payload`, of a message that is edited now.
    #[must_use]
    pub fn new(payload: &Bytes, now: Timestamp) -> Self {
        let kept = (payload.len() <= KEPT_BYTES_MAX).then(|| payload.clone());
        Self { edited_at: now, bytes: payload.len() as u64, payload: kept }
    }

    /// That of a message with these headers; a header that cannot be read is none of ours.
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Self> {
        let mut parts = headers.get(PREVIOUS)?.split(' ');
        let edited_at = Timestamp::from_millis(parts.next()?.parse().ok()?);
        let bytes = parts.next()?.parse().ok()?;
        let payload = parts.next().map(|text| STANDARD.decode(text)).transpose().ok()?.map(Bytes::from);
        Some(Self { edited_at, bytes, payload })
    }

    /// The value of the header that keeps it.
    #[must_use]
    pub fn value(&self) -> String {
        let length = format!("{} {}", self.edited_at.as_millis(), self.bytes);
        match &self.payload {
            Some(payload) => format!("{length} {}", STANDARD.encode(payload)),
            None => length,
        }
    }

    /// The headers with it, in place of that of an earlier edit. Where Duetime's own are as many or as long as they may
    /// be, the payload is left out, and then all of it.
    #[must_use]
    pub fn kept_in(&self, headers: &Headers) -> Headers {
        let length = Self { payload: None, ..self.clone() };
        let others = headers.without(PREVIOUS);
        let with = |value: String| others.clone().append(PREVIOUS, &value).ok();
        [self.value(), length.value()].into_iter().find_map(with).unwrap_or(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX, OWN_HEADERS, OWN_HEADERS_MAX};

    const NOW: Timestamp = Timestamp::from_millis(1_795_492_282_000);

    fn headers(count: usize, bytes: usize) -> Headers {
        Headers::from_stored((0..count).map(|n| (format!("h{n}"), "x".repeat(bytes))).collect())
    }

    #[test]
    fn what_was_kept_is_read_again_byte_for_byte_and_is_shown_to_nobody() {
        let previous = Previous::new(&Bytes::from_static(b"\0\xff old"), NOW);
        let kept = previous.kept_in(&headers(2, 3));
        assert_eq!(Previous::of(&kept), Some(previous));
        assert_eq!(kept.delivered().count(), 2);
        // A second edit takes the place of the first.
        let next = Previous::new(&Bytes::from_static(b""), NOW);
        assert_eq!((Previous::of(&next.kept_in(&kept)), kept.len()), (Some(next), 3));
    }

    #[test]
    fn a_payload_too_long_is_known_by_its_length_and_headers_stay_within_their_bounds() {
        let long = Previous::new(&Bytes::from(vec![b'x'; KEPT_BYTES_MAX + 1]), NOW);
        let length = Previous { edited_at: NOW, bytes: KEPT_BYTES_MAX as u64 + 1, payload: None };
        assert_eq!(Previous::of(&long.kept_in(&headers(2, 3))), Some(length));
        let most = Previous::new(&Bytes::from(vec![b'x'; KEPT_BYTES_MAX]), NOW);
        let full = most.kept_in(&headers(1, HEADER_BYTES_MAX - 1000));
        assert_eq!(Previous::of(&full), Some(Previous { payload: None, ..most.clone() }));
        assert_eq!(full.check_size(), Ok(()));
        // A producer's headers take no place of it, Duetime's own do.
        assert_eq!(Previous::of(&most.kept_in(&headers(HEADERS_MAX, 1))), Some(most.clone()));
        let own = (0..HEADERS_MAX + OWN_HEADERS_MAX).map(|n| (format!("{OWN_HEADERS}{n}"), String::new()));
        let own = Headers::from_stored(own.collect());
        assert_eq!(most.kept_in(&own), own);
    }

    #[test]
    fn what_others_wrote_under_this_name_is_no_former_payload() {
        for text in ["", "x", "1", "1 x", "1 2 *", "9999999999999999999999 1"] {
            let strange = Headers::from_stored(vec![(PREVIOUS.to_owned(), text.to_owned())]);
            assert_eq!(Previous::of(&strange), None, "{text:?}");
        }
    }
}
