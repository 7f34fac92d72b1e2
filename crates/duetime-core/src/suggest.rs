//! What was most likely meant by a word that is not known.
//!
//! Upstream: whoever reads keys, fields and settings that people write.

/// Less alike than this is another word (Jaro and Winkler's measure, 0 to 1).
const ALIKE_MIN: f64 = 0.7;

/// The known word that `word` most likely was meant to be.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(word, known), known))
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

/// `unknown key "lisen", did you mean "listen"?`, where `what` is a key.
#[must_use]
pub fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("unknown {what} {word:?}, did you mean {near:?}?"),
        None if known.is_empty() => format!("unknown {what} {word:?}; none is known here"),
        None => format!("unknown {what} {word:?}; known here: {}", known.join(", ")),
    }
}

/// `a, b and c`, for a sentence.
#[must_use]
pub fn listed(words: &[&str]) -> String {
    match words {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_proposed_and_nothing_where_none_is_near() {
        let known = ["listen", "hosts"];
        assert_eq!(unknown("key", "lisen", &known), "unknown key \"lisen\", did you mean \"listen\"?");
        assert_eq!(unknown("key", "zzz", &known), "unknown key \"zzz\"; known here: listen, hosts");
        assert_eq!(unknown("setting", "x", &[]), "unknown setting \"x\"; none is known here");
    }
}
