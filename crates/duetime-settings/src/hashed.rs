//! Secrets of which only a hash is kept, taken out of texts that may have anything in them.
//!
//! The texts are those of panics: they are short and rare, so each part of one that is as long as a secret is hashed
//! and compared, in the notations in which a program shows a text or an address.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::redactor::REDACTED_BYTES_MIN;
use crate::secret::{DOTS, REMEMBERED_MAX};

/// A hash of a secret.
pub type SecretHash = [u8; 32];

/// How often a text may have been quoted.
const QUOTED_MAX: usize = 4;

/// So much of a text is looked through, and shown as far as a secret that begins there ends in it.
const TEXT_BYTES_MAX: usize = 16 << 10;
const UNSURE_BYTES: usize = 4 << 10;

/// Lengths and hashes.
static REMEMBERED: Mutex<BTreeSet<(usize, SecretHash)>> = Mutex::new(BTreeSet::new());

/// The hash of a secret, which is kept in mind for [`without_hashed`].
#[must_use]
pub fn hash_of(secret: &str) -> SecretHash {
    let hash = Sha256::digest(secret).into();
    let mut all = REMEMBERED.lock();
    if secret.len() >= REDACTED_BYTES_MIN && all.len() < REMEMBERED_MAX {
        all.insert((secret.len(), hash));
    }
    hash
}

/// `text` as it is read in one notation, each byte with the part of the text that writes it.
#[derive(Clone, Default)]
struct HashReading {
    bytes: Vec<u8>,
    parts: Vec<(usize, usize)>,
}

impl HashReading {
    fn plain(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), parts: (0..text.len()).map(|at| (at, at + 1)).collect() }
    }

    /// Reads it once more; `code` finds what the bytes from some place on write, and how many they are.
    fn decoded(&self, code: fn(&[u8]) -> Option<(char, usize)>) -> Self {
        let (mut decoded, mut at) = (Self::default(), 0);
        while at < self.bytes.len() {
            let (byte, length) = (self.bytes[at], code(&self.bytes[at..]));
            let part = |length: usize| (self.parts[at].0, self.parts[at + length - 1].1);
            match length {
                // A byte of an address is no character.
                Some((c, length)) if byte == b'%' => decoded.push(&[c as u8], part(length)),
                Some((c, length)) => decoded.push(c.encode_utf8(&mut [0; 4]).as_bytes(), part(length)),
                None => decoded.push(&[byte], part(1)),
            }
            at += length.map_or(1, |(_, length)| length);
        }
        decoded
    }

    fn push(&mut self, bytes: &[u8], part: (usize, usize)) {
        self.bytes.extend_from_slice(bytes);
        self.parts.extend(bytes.iter().map(|_| part));
    }
}

fn hex(digits: &[u8]) -> Option<char> {
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    char::from_u32(u32::from_str_radix(digits, 16).ok()?)
}

/// `\"`, `\n`, `\u{22}`, `\u0022` or `\x22`.
fn quoted(bytes: &[u8]) -> Option<(char, usize)> {
    let [b'\\', kind, rest @ ..] = bytes else { return None };
    match kind {
        b'n' => Some(('\n', 2)),
        b'r' => Some(('\r', 2)),
        b't' => Some(('\t', 2)),
        b'0' => Some(('\0', 2)),
        b'x' => Some((hex(rest.get(..2)?)?, 4)),
        b'u' if rest.first() == Some(&b'{') => {
            let end = rest.iter().take(8).position(|byte| *byte == b'}')?;
            Some((hex(&rest[1..end])?, end + 3))
        }
        b'u' => Some((hex(rest.get(..4)?)?, 6)),
        b'"' | b'\\' | b'\'' | b'/' => Some((char::from(*kind), 2)),
        _ => None,
    }
}

/// `%22`.
fn in_address(bytes: &[u8]) -> Option<(char, usize)> {
    let [b'%', high, low, ..] = bytes else { return None };
    Some((hex(&[*high, *low])?, 3))
}

/// `text` with dots for each secret whose hash is known. Of a long text only the beginning is left.
#[must_use]
pub fn without_hashed(text: &str) -> String {
    let known = REMEMBERED.lock().clone();
    if known.is_empty() {
        return text.to_owned();
    }
    let seen = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    let mut readings = vec![HashReading::plain(seen)];
    readings.push(readings[0].decoded(in_address));
    for level in 0..QUOTED_MAX {
        let next = readings[if level == 0 { 0 } else { level + 1 }].decoded(quoted);
        readings.push(next);
    }
    let lengths: BTreeSet<usize> = known.iter().map(|(length, _)| *length).collect();
    let mut covered = BTreeSet::new();
    for (reading, length) in readings.iter().flat_map(|reading| lengths.iter().map(move |length| (reading, *length))) {
        for (at, window) in reading.bytes.windows(length).enumerate() {
            if known.contains(&(length, Sha256::digest(window).into())) {
                covered.insert((reading.parts[at].0, reading.parts[at + length - 1].1));
            }
        }
    }
    let shown_to = if seen.len() < text.len() { TEXT_BYTES_MAX - UNSURE_BYTES } else { seen.len() };
    let (mut shown, mut end) = (String::new(), 0);
    for (begin, until) in covered {
        if begin >= end {
            shown.push_str(&seen[end..begin]);
            shown.push_str(DOTS);
        }
        end = end.max(until);
    }
    let rest = seen.floor_char_boundary(shown_to);
    shown.push_str(seen.get(end..rest).unwrap_or_default());
    shown
}

#[cfg(test)]
mod tests {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

    use super::*;

    #[test]
    fn a_secret_of_which_only_the_hash_is_known_is_found_in_every_notation() {
        let marked = (' '..='~').filter(|c| !c.is_ascii_alphanumeric()).map(|odd| format!("kept{odd}"));
        let secret = format!("{}schlüssel-kept", marked.collect::<String>());
        let _ = hash_of(&secret);
        let once = format!("{secret:?}");
        for text in [
            secret.clone(),
            once.clone(),
            format!("{once:?}"),
            format!("{:?}", format!("{once:?}")),
            serde_json::to_string(&once).unwrap(),
            utf8_percent_encode(&secret, NON_ALPHANUMERIC).to_string(),
        ] {
            let shown = without_hashed(&format!("refused: {text}, sorry {text}"));
            assert!(shown.starts_with("refused: ") && shown.contains(", sorry ") && !shown.contains("kept"), "{shown}");
        }
        let long = format!("{}{secret}", "x".repeat(TEXT_BYTES_MAX - 40));
        assert!(!without_hashed(&long).contains("kept"), "the end of a long text may be a part of a secret");
        assert_eq!(without_hashed("nothing of it"), "nothing of it");
    }
}
