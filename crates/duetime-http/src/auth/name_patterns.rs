//! Names that a token is for, as the configuration writes them: whole names, or beginnings followed by `*`.
//!
//! Upstream: `auth`, for the topics and the sinks of a token.

/// Whole names, or beginnings followed by `*`.
#[derive(Clone, Debug)]
pub(crate) struct NamePatterns(Vec<String>);

impl NamePatterns {
    /// The patterns of the setting `key`, and a sentence for each that cannot be one.
    pub fn read(key: &str, patterns: Vec<String>) -> Result<Self, Vec<String>> {
        let is_one =
            |pattern: &String| !pattern.is_empty() && !pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
        let help = |pattern| format!("{key} has {pattern:?}; write names, or beginnings of names followed by one *");
        let faults: Vec<String> = patterns.iter().filter(|pattern| !is_one(pattern)).map(help).collect();
        if faults.is_empty() { Ok(Self(patterns)) } else { Err(faults) }
    }

    /// Whether `name` is among them.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => pattern == name,
        })
    }

    /// As they are written.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_a_beginning_and_one_that_is_neither_is_refused_by_its_key() {
        let read = |patterns: &[&str]| NamePatterns::read("sinks", patterns.iter().map(|p| (*p).to_owned()).collect());
        let some = read(&["shop", "eu-*"]).unwrap();
        assert!(some.has("shop") && some.has("eu-1") && some.has("eu-") && !some.has("shop-1") && !some.has("eu"));
        assert!(read(&["*"]).unwrap().has("any") && !read(&[]).unwrap().has(""));
        let faults = read(&["", "a*b", "**", "ok"]).unwrap_err();
        assert_eq!(faults.len(), 3);
        assert!(faults.iter().all(|fault| fault.starts_with("sinks has ")), "{faults:?}");
    }
}
