//! Where a target is, and the targets that the operator allows to sinks that are put by the API.
//!
//! Upstream: `by_api`. An address that came by the API is read strictly: what parsers may read in two ways is refused.

use std::fmt;

/// Ports that are meant where none is given.
const PORTS: [(&str, u16); 10] = [
    ("http", 80),
    ("https", 443),
    ("amqp", 5672),
    ("amqps", 5671),
    ("nats", 4222),
    ("tls", 4222),
    ("kafka", 9092),
    ("redis", 6379),
    ("rediss", 6379),
    ("redis-cluster", 6379),
];

/// One address of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    scheme: String,
    host: String,
    port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme, self.host, self.port)
    }
}

fn is_host(host: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let six = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match six {
        Some(six) => six.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !plain(host).is_empty() && host.chars().all(is_name),
    }
}

/// As hosts are compared.
fn plain(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// Host, and the port where one is given.
fn split_port(place: &str) -> (&str, Option<&str>) {
    match place.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (place, None),
    }
}

fn default_port(scheme: &str) -> Result<u16, String> {
    let known = PORTS.iter().find(|(known, _)| *known == scheme).map(|(_, port)| *port);
    known.ok_or_else(|| "no port is known for this scheme; write it behind the host".to_owned())
}

fn address(scheme: &str, place: &str) -> Result<Address, String> {
    let refused = || "no address can be read from it; write it as \"https://host.example:443/path\"".to_owned();
    let (host, port) = split_port(place);
    if !is_host(host) {
        return Err(refused());
    }
    let digits = |port: &str| port.parse().ok().filter(|_| port.bytes().all(|b| b.is_ascii_digit()));
    let port = match port {
        Some(port) => digits(port).ok_or_else(refused)?,
        None => default_port(scheme)?,
    };
    Ok(Address { scheme: scheme.to_owned(), host: plain(host), port })
}

/// Where a target of this type is, by its address. `is_trusted`: the operator wrote it, with a password perhaps.
///
/// # Errors
///
/// A sentence that repeats nothing of the text.
pub fn addresses(kind: &str, text: &str, is_trusted: bool) -> Result<Vec<Address>, String> {
    if !is_trusted {
        if text.contains(['@', '?', '#']) {
            let detail = "it has a user, a password, a query or a fragment, which may be secret; name where the nodes have \
                          the whole address: {\"file\": \"NAME\"}";
            return Err(detail.to_owned());
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
            return Err("an address has visible ASCII alone, and no backslash".to_owned());
        }
    }
    let no_scheme = || "an address begins with its scheme, as \"https://\"".to_owned();
    if kind == "kafka" {
        return text.split(',').map(|broker| address("kafka", broker.trim())).collect();
    }
    let mut found = Vec::new();
    // Servers of one cluster stand behind each other, each with its scheme or all behind one.
    let (mut scheme, are_many) = (None, matches!(kind, "nats" | "redis-stream"));
    for part in text.split(|c: char| are_many && c == ',') {
        let rest = match part.split_once("://") {
            Some((named, rest)) => {
                scheme = Some(named.to_ascii_lowercase());
                rest
            }
            None => part,
        };
        let scheme = scheme.as_deref().ok_or_else(no_scheme)?;
        let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        found.push(address(scheme, place)?);
    }
    Ok(found)
}

/// The ports of an allowed target.
#[derive(Clone, Copy, Debug)]
enum Port {
    Any,
    One(u16),
}

/// Targets that the operator allows, as `https://*.shop.example:8443`.
#[derive(Clone, Debug)]
pub struct AllowedTarget {
    scheme: String,
    /// With `*.` before it: all below it; `*`: any.
    host: String,
    port: Port,
}

impl AllowedTarget {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// A sentence with the fix.
    pub fn read(text: &str) -> Result<Self, String> {
        let help =
            || format!("{text:?} is no target; write it as \"https://*.shop.example\" or \"amqps://mq.example:5671\"");
        let (scheme, place) = text.split_once("://").ok_or_else(help)?;
        let (host, port) = split_port(place.strip_suffix('/').unwrap_or(place));
        if scheme.is_empty() || !(host == "*" || is_host(host.strip_prefix("*.").unwrap_or(host))) {
            return Err(help());
        }
        let scheme = scheme.to_ascii_lowercase();
        let port = match port {
            Some("*") => Port::Any,
            Some(port) => Port::One(port.parse().map_err(|_| help())?),
            None => Port::One(default_port(&scheme).map_err(|_| help())?),
        };
        Ok(Self { scheme, host: plain(host), port })
    }

    /// Reads one with a path behind it, and answers the path as it is written; it may be empty.
    ///
    /// # Errors
    ///
    /// A sentence with the fix.
    pub fn read_with_path(text: &str) -> Result<(Self, &str), String> {
        let place_at = text.find("://").map_or(0, |at| at + 3);
        let path_at = text[place_at..].find('/').map_or(text.len(), |at| place_at + at);
        let (target, path) = text.split_at(path_at);
        Ok((Self::read(target)?, path))
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn has(&self, address: &Address) -> bool {
        self.covers(&Self { scheme: address.scheme.clone(), host: address.host.clone(), port: Port::One(address.port) })
    }

    /// Whether all that `other` allows is allowed by this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let is_host = match self.host.strip_prefix('*') {
            Some("") => true,
            Some(below) => other.host.len() > below.len() && other.host.ends_with(below),
            None => self.host == other.host,
        };
        let is_port = match (self.port, other.port) {
            (Port::Any, _) => true,
            (Port::One(port), Port::One(other)) => port == other,
            (Port::One(_), Port::Any) => false,
        };
        is_host && is_port && self.scheme == other.scheme
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(target: &str, kind: &str, text: &str) -> bool {
        let target = AllowedTarget::read(target).unwrap();
        addresses(kind, text, false).unwrap().iter().all(|address| target.has(address))
    }

    #[test]
    fn a_target_is_allowed_by_scheme_host_and_port() {
        assert!(allows("https://*.shop.example/", "http", "https://hooks.Shop.example./in/a"));
        assert!(allows("https://hooks.example:*", "http", "https://hooks.example:8443/in"));
        assert!(allows("kafka://*:9092", "kafka", "a.example,b.example:9092"));
        assert!(allows("nats://*.example", "nats", "nats://a.example:4222,nats://b.example"));
        assert!(allows("redis-cluster://[::1]:7000", "redis-stream", "redis-cluster://[::1]:7000,[::1]:7000"));
        for (target, kind, text) in [
            ("https://*.shop.example", "http", "https://shop.example/in"),
            ("https://*.shop.example", "http", "https://evilshop.example/in"),
            ("https://*.shop.example", "http", "http://hooks.shop.example/in"),
            ("https://*.shop.example", "http", "https://hooks.shop.example:444/in"),
            ("https://hooks.example", "http", "https://hooks.example.evil.example/in"),
            ("kafka://a.example:9092", "kafka", "a.example,b.example"),
            ("nats://a.example", "nats", "nats://a.example,tls://b.example"),
            ("redis-cluster://a.example:7000", "redis-stream", "redis-cluster://a.example:7000,b.example:7000"),
        ] {
            assert!(!allows(target, kind, text), "{target} allows {text}");
        }
    }

    #[test]
    fn a_target_covers_what_allows_no_more_than_it() {
        let covers = |one: &str, other: &str| {
            AllowedTarget::read(one).unwrap().covers(&AllowedTarget::read_with_path(other).unwrap().0)
        };
        for (one, other) in [
            ("https://*.shop.example", "https://*.shop.example/hooks/*"),
            ("https://*.shop.example", "https://*.eu.Shop.example./"),
            ("https://*.shop.example", "https://a.shop.example:443"),
            ("https://*:*", "https://*:8443"),
            ("https://*", "https://[::1]/in"),
            ("https://hooks.example", "https://hooks.example/in"),
        ] {
            assert!(covers(one, other), "{one} does not cover {other}");
        }
        for (one, other) in [
            ("https://*.shop.example", "https://*.example"),
            ("https://*.shop.example", "https://*"),
            ("https://*.shop.example", "https://shop.example"),
            ("https://*.shop.example", "https://*.evilshop.example"),
            ("https://*.shop.example", "https://*.shop.example:*"),
            ("https://*.shop.example", "http://*.shop.example"),
            ("https://a.shop.example", "https://*.shop.example"),
            ("https://hooks.example:8443", "https://hooks.example"),
        ] {
            assert!(!covers(one, other), "{one} covers {other}");
        }
    }

    #[test]
    fn an_address_that_may_be_read_in_two_ways_or_holds_a_secret_is_refused() {
        for text in [
            "https://user:secret@hooks.example/in",
            "https://hooks.example?token=secret",
            "https://hooks.example#secret",
            "https://evil.example\\@hooks.example/",
            "https://hooks.example\t/",
            "https://hooks.exämple/",
            "https://hooks%2eexample/",
            "https:///hooks.example/",
            "https://[::1/in",
            "https://hooks.example:+443/",
            "https://hooks.example:99999/",
            "hooks.example/in",
            "ftp://hooks.example",
            "",
        ] {
            let refused = addresses("http", text, false).unwrap_err();
            assert!(!refused.contains("secret@") && !refused.contains("hooks"), "{text:?}: {refused}");
        }
        let trusted = addresses("rabbitmq", "amqp://u:p%40ss@mq.example/vhost", true).unwrap();
        assert_eq!(trusted[0].to_string(), "amqp://mq.example:5672");
    }

    #[test]
    fn a_target_that_makes_no_sense_is_refused_with_an_example() {
        for text in [
            "hooks.example",
            "https://",
            "https://*..",
            "https://a*.example",
            "https://a.example:x",
            "ftp://a.example",
            "https://a/b",
        ] {
            assert!(AllowedTarget::read(text).is_err_and(|fault| fault.contains("shop.example")), "{text}");
        }
    }
}
