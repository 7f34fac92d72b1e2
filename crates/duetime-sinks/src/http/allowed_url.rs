//! The URLs that the messages of a webhook may name: `targets` of the sink, and a strict reading of what a message has.
//!
//! Upstream: `message_url`, `request`. What parsers may read in two ways is refused: the client, the target and what
//! stands between them then mean the host and the path that were compared.

use url::Url;

use super::config::HttpConfig;
use super::guard::Guard;
use crate::allowed_target::{Address, AllowedTarget, addresses};
use crate::fault::SinkFault;

/// Longest URL of a message.
const URL_BYTES_MAX: usize = 4096;
/// Decodings that a path is looked at after. What is coded more often than proxies decode is meant by nobody.
const DECODINGS_MAX: usize = 8;
/// Bytes of `%u002e`.
const UTF_16_FORM_BYTES: usize = 6;

const TWO_WAYS: &str = "parsers may read it in two ways; write the host and the path in their plain form, the rest \
                        percent-encoded as UTF-8, without a part that is \".\" or \"..\", in any coding";

/// Whether an address begins as one of the web does.
fn is_web(text: &str) -> bool {
    let is_one = |scheme: &str| ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme));
    text.split_once("://").is_some_and(|(scheme, _)| is_one(scheme))
}

/// A URL that is read in one way only.
#[derive(Debug)]
pub(super) struct StrictUrl {
    pub(super) url: Url,
    address: Address,
}

impl StrictUrl {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// A sentence with the fix that repeats nothing of the text.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("it is longer than {URL_BYTES_MAX} bytes; shorten it"));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b"\\#".contains(&b)) {
            return Err(
                "a URL has visible ASCII alone, no backslash and no fragment; percent-encode the rest".to_owned()
            );
        }
        let (scheme, rest) = text
            .split_once("://")
            .filter(|_| is_web(text))
            .ok_or("a URL begins with \"https://\" or \"http://\"; write it whole")?;
        let (place, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if place.contains('@') {
            return Err("it has a user or a password; put credentials into `headers` of the sink".to_owned());
        }
        let path = rest.split('?').next().filter(|path| !path.is_empty()).unwrap_or("/");
        let address = addresses("http", &format!("{scheme}://{place}"), false)?.remove(0);
        let two_ways = || TWO_WAYS.to_owned();
        let url: Url = text.parse().map_err(|_| two_ways())?;
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let is_same = format!("{}://{host}:{port}", url.scheme()) == address.to_string() && url.path() == path;
        if is_same && !climbs(path) { Ok(Self { url, address }) } else { Err(two_ways()) }
    }
}

/// One entry of `targets`, such as `https://*.shop.example/hooks/*`.
#[derive(Clone, Debug)]
struct AllowedUrl {
    target: AllowedTarget,
    path: String,
    /// What begins with `path`, and not that alone.
    is_beginning: bool,
}

impl AllowedUrl {
    fn read(text: &str) -> Option<Self> {
        let (target, path) = AllowedTarget::read_with_path(text).ok()?;
        let (path, is_beginning) = match path {
            "" | "/" => ("/", true),
            _ => path.strip_suffix("/*").map_or((path, false), |_| (&path[..path.len() - 1], true)),
        };
        let is_plain = path.bytes().all(|b| b.is_ascii_graphic() && !b"*?#\\".contains(&b)) && !climbs(path);
        (is_web(text) && is_plain).then(|| Self { target, path: path.to_owned(), is_beginning })
    }

    fn has(&self, url: &StrictUrl) -> bool {
        let path = url.url.path();
        let is_path = if self.is_beginning { path.starts_with(&self.path) } else { path == self.path };
        is_path && self.target.has(&url.address)
    }
}

/// The URLs that the messages of a webhook may name.
#[derive(Debug)]
pub(super) struct AllowedUrls {
    patterns: Vec<AllowedUrl>,
    guard: Guard,
}

impl AllowedUrls {
    /// Reads `targets` of the sink.
    pub(super) fn new(config: &HttpConfig) -> Result<Self, SinkFault> {
        let patterns = config.targets.iter().enumerate().map(|(at, text)| {
            let help = || {
                format!(
                    "targets[{at}] is no pattern of URLs; write it as \"https://*.shop.example/hooks/*\" or \
                     \"https://hooks.example\", without a user or a password"
                )
            };
            AllowedUrl::read(text).ok_or_else(|| SinkFault::at("targets", help()))
        });
        let patterns = patterns.collect::<Result<Vec<_>, SinkFault>>()?;
        Ok(Self { patterns, guard: Guard::new(&config.allow, config.only.as_deref())? })
    }

    /// Whether the host of `url` is one of them, whatever its path. An address instead of a name is never resolved, so
    /// it is checked here whether it may be reached.
    ///
    /// # Errors
    ///
    /// A sentence with the fix.
    pub(super) fn check_host(&self, url: &StrictUrl) -> Result<(), String> {
        if !self.patterns.iter().any(|pattern| pattern.target.has(&url.address)) {
            return Err(format!(
                "it leads to {}, which `targets` of the sink does not allow; add it there, or name another",
                url.address
            ));
        }
        let host = url.url.host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) => self.guard.check(host, address).map_err(|refused| refused.to_string()),
            Err(_) => Ok(()),
        }
    }

    /// Whether `url` is one of them, and may be reached as far as its text says.
    ///
    /// # Errors
    ///
    /// A sentence with the fix.
    pub(super) fn check(&self, url: &StrictUrl) -> Result<(), String> {
        self.check_host(url)?;
        if self.patterns.iter().any(|pattern| pattern.has(url)) {
            return Ok(());
        }
        Err(format!(
            "`targets` of the sink allows {}, but not with this path; add the path there, or name another",
            url.address
        ))
    }
}

/// Whether it is `%u002e`, which no standard has and some servers decode.
fn is_utf_16_form(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', b'u' | b'U', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit))
}

/// Whether a target, or a proxy before it, could take a part of the path for `.` or `..`, however often and by whatever
/// of them it is decoded: `/..%2fadmin`, `/.%2e;x/admin`, `/%252e%252e/admin`. So does one of which this is not found
/// out: coded too often, no UTF-8 (some take the overlong `%c0%ae` for `.`), or with `%u002e`. O(n).
pub(super) fn climbs(path: &str) -> bool {
    let ends_name = |byte: &u8| matches!(byte, b';' | b'?' | b'#') || *byte <= b' ';
    let name = |part: &[u8]| part.split(ends_name).next().is_some_and(|name| name == b"." || name == b"..");
    let mut bytes = path.as_bytes().to_vec();
    for _ in 0..DECODINGS_MAX {
        let decoded: Vec<u8> = percent_encoding::percent_decode(&bytes).collect();
        if decoded == bytes {
            let is_odd = str::from_utf8(&bytes).is_err() || bytes.windows(UTF_16_FORM_BYTES).any(is_utf_16_form);
            return is_odd || bytes.split(|byte| matches!(byte, b'/' | b'\\')).any(name);
        }
        bytes = decoded;
    }
    true
}
