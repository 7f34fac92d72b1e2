//! Credentials that cannot be printed by accident.
//!
//! Upstream: every config struct. [`Secret`] shows dots, [`TargetUrl`] shows where to but not as whom; what a target said is
//! redacted in `redactor.rs`.

use std::collections::BTreeSet;
use std::fmt;

use parking_lot::Mutex;
use serde::Deserialize;

use crate::source::SecretSource;

/// What stands instead of a credential.
pub(crate) const DOTS: &str = "***";

/// Most secrets that are remembered: of configurations that are reloaded again and again, those of the first.
pub(crate) const REMEMBERED_MAX: usize = 10_000;

/// See [`remember`].
static REMEMBERED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Keeps secrets in mind, for texts that may have anything in them.
pub fn remember(secrets: &[String]) {
    let mut all = REMEMBERED.lock();
    for secret in secrets {
        if all.len() < REMEMBERED_MAX && !all.contains(secret) {
            all.insert(secret.clone());
        }
    }
}

/// All of them.
pub(crate) fn remembered() -> Vec<String> {
    REMEMBERED.lock().iter().cloned().collect()
}

/// A credential: written in the configuration as a [`SecretSource`] is, and read with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a credential.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The credential itself, to be given to the target and to nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DOTS)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut read = SecretSource::deserialize(from)?.read().map_err(serde::de::Error::custom)?;
        let text = std::mem::take(&mut *read);
        remember(std::slice::from_ref(&text));
        Ok(Self(text))
    }
}

/// The address of a target, written as a [`Secret`] is, for it may hold a password. Shown without user, password and
/// query.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetUrl(Secret);

impl<'de> Deserialize<'de> for TargetUrl {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let address = Self(Secret::deserialize(from)?);
        remember(&address.secrets());
        Ok(address)
    }
}

impl TargetUrl {
    /// Takes an address.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(Secret::new(text))
    }

    /// The whole address, with what is secret in it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// What is secret in it: user information and query.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let (scheme, _, place, query) = self.parts();
        let rest = &self.expose()[scheme.len()..];
        let mut secrets: Vec<String> = query.into_iter().map(str::to_owned).collect();
        // A target may repeat the value of one parameter. Where nobody can know what is secret, all of it is.
        let doubtful = if place == DOTS { Some(rest) } else { query };
        for piece in doubtful.into_iter().flat_map(|text| text.split(['&', '=', '#', '?', '@'])) {
            secrets.push(percent_encoding::percent_decode_str(piece).decode_utf8_lossy().into_owned());
            secrets.push(piece.to_owned());
        }
        // A password may have an `@` in it, and so may a query: what ends at any of them is looked for.
        for (at, _) in rest.match_indices('@') {
            let user = &rest[..at];
            secrets.push(user.to_owned());
            if let Some((_, password)) = user.split_once(':') {
                secrets.push(percent_encoding::percent_decode_str(password).decode_utf8_lossy().into_owned());
                secrets.push(password.to_owned());
            }
        }
        secrets
    }

    /// Scheme with `://`, user information, host with path, query.
    ///
    /// A password may have been written as it is, with `/`, `?` or `#` in it: all that stands before the
    /// last `@` is taken to be secret. Where that is more than the user information of a proper address,
    /// dots say that something is left out; where a `?` comes before it, what follows may be the end of
    /// a secret as well, and nothing but the scheme is shown.
    fn parts(&self) -> (&str, Option<&str>, String, Option<&str>) {
        // What has other characters before it is a part of a secret.
        let is_scheme =
            |at: &usize| self.expose()[..*at].bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        let at = self.expose().find("://").filter(is_scheme).map_or(0, |at| at + 3);
        let (scheme, rest) = self.expose().split_at(at);
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        if user.is_some_and(|user| user.contains('?')) {
            return (scheme, Some(rest), DOTS.to_owned(), None);
        }
        let (place, query) = match place.find(['?', '#']) {
            Some(at) => (&place[..at], Some(&place[at + 1..])),
            None => (place, None),
        };
        // `u:password` where host and port should be, or no address at all: a whole secret may stand there.
        let authority = place.split('/').next().unwrap_or_default();
        let is_host = |host: &str| match host.rsplit_once(':') {
            Some((_, port)) => port.bytes().all(|b| b.is_ascii_digit() || b == b']'),
            None => !scheme.is_empty(),
        };
        if (user.is_none() || scheme.is_empty()) && !authority.split(',').all(is_host) {
            return (scheme, Some(rest), DOTS.to_owned(), None);
        }
        let is_proper = user.is_none_or(|user| !user.contains(['/', '#']));
        let place = if is_proper { place.to_owned() } else { format!("{DOTS}@{place}") };
        (scheme, user, place, query)
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, _, place, _) = self.parts();
        write!(f, "{scheme}{place}")
    }
}

impl fmt::Debug for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redactor::Redactor;

    #[test]
    fn a_credential_is_never_printed() {
        let url = TargetUrl::new("amqps://duetime:canary%2Fpass@mq.example:5671/prod?token=canary");
        assert_eq!(url.to_string(), "amqps://mq.example:5671/prod");
        assert_eq!(format!("{url:?} {:?}", Secret::new("canary")), "amqps://mq.example:5671/prod ***");
        let redactor = Redactor::new(url.secrets());
        let said = redactor.redact("ACCESS_REFUSED for duetime:canary%2Fpass or canary/pass\n?token=canary", 500);
        assert!(!said.contains("canary"), "{said}");
        assert_eq!(redactor.redact("ä".repeat(9).as_str(), 5), "ää");
    }

    #[test]
    fn a_password_with_any_character_in_it_is_never_printed() {
        for odd in (0x20..=0x7e).map(char::from) {
            for address in [
                format!("redis://user:left{odd}right@db.example:6379/0"),
                format!("redis-cluster://user:left{odd}right@a.example:1,b.example:2"),
                format!("amqp://left{odd}right@db.example:6379"),
                format!("https://user:left{odd}right@db.example:6379/in?token=left{odd}right"),
            ] {
                let url = TargetUrl::new(&address);
                let shown = format!("{url} {url:?}");
                assert!(!shown.contains("left") && !shown.contains("right"), "{address} is shown as {shown}");
                assert!(shown.contains(".example") || shown.contains("://***"), "{address} is shown as {shown}");
                let said = Redactor::new(url.secrets()).redact(&format!("refused: user:left{odd}right"), 500);
                assert!(!said.contains("left") && !said.contains("right"), "{address}: {said}");
            }
        }
        assert_eq!(TargetUrl::new("amqp://user:password").to_string(), "amqp://***");
        assert_eq!(TargetUrl::new("a-whole-secret").to_string(), "***");
        assert_eq!(TargetUrl::new("a-whole@secret").to_string(), "***");
        assert_eq!(TargetUrl::new("user:pass://word@host").to_string(), "***");
        assert_eq!(TargetUrl::new("user:password@a.example:4222").to_string(), "a.example:4222");
        assert_eq!(TargetUrl::new("a.example:4222").to_string(), "a.example:4222");
        assert_eq!(
            TargetUrl::new("redis-cluster://[::1]:7000,a:7001").to_string(),
            "redis-cluster://[::1]:7000,a:7001"
        );
        let plain = "https://hooks.example/team/in";
        assert_eq!(TargetUrl::new(plain).to_string(), plain);
    }

    #[test]
    fn a_secret_may_be_kept_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "first line \nsecond").unwrap();
        let url: TargetUrl = serde_json::from_value(serde_json::json!({ "file": file.path() })).unwrap();
        assert_eq!(url.expose(), "first line");
        let text = format!("{{\"file\": {:?}}}", file.path());
        assert_eq!(serde_json::from_str::<Secret>(&text).unwrap().expose(), "first line");
        assert_eq!(serde_json::from_str::<Secret>("\"plain\"").unwrap().expose(), "plain");
        let missing = serde_json::from_str::<Secret>("{\"file\": \"/does/not/exist\"}").unwrap_err().to_string();
        assert!(missing.contains("/does/not/exist"), "{missing}");
        let wrong = serde_json::from_str::<Secret>("{\"fil\": \"canary\"}").unwrap_err().to_string();
        assert!(wrong.contains("file") && !wrong.contains("canary"), "{wrong}");
        let list = serde_json::from_str::<Secret>("[\"canary\"]").unwrap_err().to_string();
        assert!(list.contains("as a string") && !list.contains("canary"), "{list}");
    }
}
