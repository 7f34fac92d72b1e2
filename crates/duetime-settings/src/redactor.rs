//! Removes known secrets from texts that come from a target or a library.
//!
//! Upstream: every sink, before it shows what its target said. A target repeats a secret as it was sent, or in another
//! notation: as JSON, in an address, as HTML, as a program shows a text.

use std::fmt;

use crate::secret::{self, DOTS};

/// Secrets shorter than this are not redacted: they would match ordinary words.
pub const REDACTED_BYTES_MIN: usize = 6;

/// Most backslashes before a character that are taken to be its escape: text that was quoted four times.
const BACKSLASHES_MAX: usize = 15;

/// Most ways to read a text that are followed at once.
const READINGS_MAX: usize = 8;

/// A text that ends within so many bytes of an escape may have been cut there.
const ESCAPE_BYTES_MAX: usize = 12;

/// The names of characters in HTML.
const HTML: [(&str, char); 5] = [("&quot;", '"'), ("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&apos;", '\'')];

/// Removes the secrets of a target from texts.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
    /// Which bytes a secret may begin with, in any notation.
    begins: Begins,
}

#[derive(Clone)]
struct Begins([bool; 256]);

impl Default for Begins {
    fn default() -> Self {
        Self([false; 256])
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({})", self.secrets.len())
    }
}

impl Redactor {
    /// Knows the secrets of all others, for texts that may have anything in them: those of panics.
    #[must_use]
    pub fn of_all_secrets() -> Self {
        Self::knowing(secret::remembered())
    }

    /// Knows these secrets, and from now on [`Redactor::of_all_secrets`] does.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let secrets: Vec<String> = secrets.into_iter().collect();
        secret::remember(&secrets);
        Self::knowing(secrets)
    }

    /// Knows these secrets, which are of one text: nobody else has to know them.
    #[must_use]
    pub fn knowing(secrets: Vec<String>) -> Self {
        let long = secrets.into_iter().filter(|text| text.len() >= REDACTED_BYTES_MIN);
        // As it is, and as it is shown.
        let mut secrets: Vec<String> = long.flat_map(|text| [plain(&text), text]).collect();
        secrets.sort_unstable();
        secrets.dedup();
        let mut begins = Begins::default();
        for byte in secrets.iter().map(|secret| secret.as_bytes()[0]).chain(*b"\\%&+") {
            begins.0[usize::from(byte)] = true;
        }
        Self { secrets, begins }
    }

    /// Whatever a secret covers goes, also where two of them overlap.
    fn without(&self, text: &str) -> String {
        let mut covered: Vec<(usize, usize)> = Vec::new();
        if !self.secrets.is_empty() {
            for (at, _) in text.char_indices().filter(|(at, _)| self.begins.0[usize::from(text.as_bytes()[*at])]) {
                let ends = self.secrets.iter().filter_map(|secret| end_of(text, at, secret));
                covered.extend(ends.max().map(|end| (at, end)));
            }
        }
        let (mut shown, mut end) = (String::with_capacity(text.len()), 0);
        for (begin, until) in covered {
            if begin >= end {
                shown.push_str(&text[end..begin]);
                shown.push_str(DOTS);
            }
            end = end.max(until);
        }
        shown.push_str(&text[end..]);
        shown
    }

    /// `text` with dots for each known secret, without control characters, cut after `bytes_max`.
    ///
    /// Where only the beginning of an answer was read, it may end within a secret: that part goes too.
    #[must_use]
    pub fn redact(&self, text: &str, bytes_max: usize) -> String {
        let text = self.without(&plain(&self.without(text)));
        let end = text.floor_char_boundary(bytes_max);
        text[..end].trim().to_owned()
    }
}

/// `text` without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Where `secret`, which begins at `at`, ends in `text`: at the end of the text, if that was cut within it.
fn end_of(text: &str, at: usize, secret: &str) -> Option<usize> {
    let mut readings = vec![at];
    for (done, c) in secret.char_indices() {
        let mut next = Vec::with_capacity(readings.len());
        for at in readings {
            let rest = &text[at..];
            if done >= REDACTED_BYTES_MIN && is_cut(rest) {
                return Some(text.len());
            }
            next.extend(lengths(rest, c).map(|length| at + length));
        }
        next.sort_unstable();
        next.dedup();
        next.truncate(READINGS_MAX);
        if next.is_empty() {
            return None;
        }
        readings = next;
    }
    readings.last().copied()
}

/// Whether nothing is left of a text that was cut, or only a part of a character.
fn is_cut(rest: &str) -> bool {
    let is_begun = rest.len() < ESCAPE_BYTES_MAX && rest.starts_with(['\\', '%', '&']);
    rest.chars().all(|c| c == char::REPLACEMENT_CHARACTER || is_begun && c.is_ascii() && c != ' ')
}

/// How many bytes of `text` write `c`, for each notation that does.
fn lengths(text: &str, c: char) -> impl Iterator<Item = usize> {
    let slashes = text.bytes().take(BACKSLASHES_MAX).take_while(|byte| *byte == b'\\').count();
    let after = &text[slashes..];
    // A backslash itself is one of them, or as many as so many quotations make of it.
    let backslashes = [1, 2, 4, 8].into_iter().filter(move |count| c == '\\' && *count <= slashes);
    let itself = after.starts_with(c).then(|| slashes + c.len_utf8());
    let code = (slashes > 0).then(|| escaped(after, c)).flatten().map(|length| slashes + length);
    let other = if slashes == 0 { in_address(text, c).or_else(|| in_html(text, c)) } else { None };
    itself.into_iter().chain(code).chain(other).chain(backslashes)
}

/// `u0022`, `u{22}` or `x22`, after a backslash.
fn escaped(text: &str, c: char) -> Option<usize> {
    let digits = |text: &str| u32::from_str_radix(text, 16).ok() == Some(u32::from(c));
    if let Some(rest) = text.strip_prefix("u{") {
        let end = rest.find('}')?;
        return digits(&rest[..end]).then_some(end + 3);
    }
    let length = match text.as_bytes().first()? {
        b'u' => 5,
        b'x' => 3,
        _ => return None,
    };
    text.get(1..length).is_some_and(digits).then_some(length)
}

/// `%22`, or `+` for a space.
fn in_address(text: &str, c: char) -> Option<usize> {
    if c == ' ' && text.starts_with('+') {
        return Some(1);
    }
    let (mut utf8, mut rest) = ([0; 4], text);
    for byte in c.encode_utf8(&mut utf8).bytes() {
        let digits = rest.strip_prefix('%')?.get(..2)?;
        if u8::from_str_radix(digits, 16) != Ok(byte) {
            return None;
        }
        rest = &rest[3..];
    }
    Some(text.len() - rest.len())
}

/// `&quot;`, `&#34;` or `&#x22;`.
fn in_html(text: &str, c: char) -> Option<usize> {
    if let Some((name, _)) = HTML.iter().find(|(name, of)| *of == c && text.starts_with(name)) {
        return Some(name.len());
    }
    let number = text.strip_prefix("&#")?;
    let end = number.bytes().take(ESCAPE_BYTES_MAX).position(|byte| byte == b';')?;
    let digits = &number[..end];
    let code = match digits.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    (code == Ok(u32::from(c))).then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

    use super::*;

    #[test]
    fn a_secret_with_every_printable_character_is_found_in_any_notation() {
        let marked = (' '..='~').filter(|c| !c.is_ascii_alphanumeric()).map(|odd| format!("kept{odd}"));
        let secret = format!("{}kept", marked.collect::<String>());
        let redactor = Redactor::new([secret.clone()]);
        let json = serde_json::to_string(&secret).unwrap();
        let numbers = |show: fn(u32) -> String| {
            secret.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_string() } else { show(c.into()) }).collect()
        };
        let html = [('&', "&amp;"), ('"', "&quot;"), ('<', "&lt;"), ('>', "&gt;"), ('\'', "&#x27;")];
        let html = html.iter().fold(secret.clone(), |text, (c, name)| text.replace(*c, name));
        let notations: Vec<String> = vec![
            secret.clone(),
            json.clone(),
            serde_json::to_string(&json).unwrap(),
            json.replace('/', "\\/"),
            format!("{secret:?} {:?}", format!("{secret:?}")),
            utf8_percent_encode(&secret, NON_ALPHANUMERIC).to_string(),
            utf8_percent_encode(&secret, NON_ALPHANUMERIC).to_string().to_lowercase().replace("%20", "+"),
            html,
            numbers(|code| format!("&#{code};")),
            numbers(|code| format!("\\u{code:04x}")),
            numbers(|code| format!("\\\\u{code:04X}")),
            numbers(|code| format!("\\x{code:02x}")),
            numbers(|code| format!("\\u{{{code:x}}}")),
        ];
        for text in notations {
            let said = redactor.redact(&format!("refused: {text}, sorry"), usize::MAX);
            assert!(said.starts_with("refused: ") && said.ends_with(", sorry") && !said.contains("kept"), "{said}");
            // However much of it was read.
            for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
                let said = redactor.redact(&text[..end], usize::MAX);
                assert!(said.matches("kept").count() <= 1, "{end}: {said}");
            }
        }
    }

    #[test]
    fn a_text_of_nothing_but_escapes_is_read_in_no_time() {
        let redactor = Redactor::new(["\\".repeat(40), "%25".repeat(20)]);
        for odd in ["\\", "%", "%25", "&#37;"] {
            let _ = redactor.redact(&odd.repeat(2_000), 500);
        }
    }

    #[test]
    fn a_secret_is_taken_out_of_a_text_that_was_cut_or_made_plain() {
        let redactor =
            Redactor::new(["key of many words".to_owned(), "tab\tbed secret".to_owned(), "schlüssel".to_owned()]);
        assert_eq!(redactor.redact("key\tof\nmany words", 500), DOTS);
        assert_eq!(redactor.redact("tab bed secret, tab\tbed secret", 500), "***, ***");
        assert_eq!(redactor.redact("refused: key of man", 500), "refused: ***");
        assert_eq!(redactor.redact(&String::from_utf8_lossy(&"x schlüssel".as_bytes()[..7]), 500), "x schl\u{fffd}");
        assert_eq!(redactor.redact("x schlüsse", 500), "x ***");
        assert_eq!(redactor.redact("the key of", 500), "the ***");
        assert_eq!(redactor.redact("the key", 500), "the key");
    }
}
