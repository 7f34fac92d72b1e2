//! How what a message says travels in headers of another protocol.

use duetime_core::MessageId;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What is not plain visible ASCII, and the percent sign.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// An id as visible ASCII: percent-encoded as in a path.
#[must_use]
pub fn id(id: &MessageId) -> String {
    utf8_percent_encode(id.as_str(), ENCODED).to_string()
}
