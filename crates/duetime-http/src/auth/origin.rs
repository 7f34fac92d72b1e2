//! Which web pages and host names a request may come through.
//!
//! A browser sends requests for any page that it shows, also to addresses that only its own machine
//! can reach. Three checks keep foreign pages out: what changes something has a content type that
//! makes browsers ask first (`body`), a foreign `Origin` may only read what browsers hide from it
//! anyway, and a `Host` that is not this node's own name is refused (DNS rebinding).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};

use crate::json::problem::Problem;

/// Most names in `node.hosts`.
const HOSTS_MAX: usize = 256;

/// The names that requests may call this node by, besides addresses and `localhost`.
///
/// Clones share one list, so that it can be replaced while the node serves.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Arc<ArcSwap<Vec<String>>>);

impl Hosts {
    /// Takes names: `duetime.example`, `*.duetime.svc`, or `*` for all.
    ///
    /// # Errors
    ///
    /// A sentence that names the wrong entry and the fix.
    pub fn new(names: &[String]) -> Result<Self, String> {
        let hosts = Self::default();
        hosts.replace(names)?;
        Ok(hosts)
    }

    /// Takes other names from now on.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; the names stay as they were.
    pub fn replace(&self, names: &[String]) -> Result<(), String> {
        if names.len() > HOSTS_MAX {
            return Err(format!("has {} names; give at most {HOSTS_MAX}, or \"*.DOMAIN\"", names.len()));
        }
        for name in names {
            let plain = name.strip_prefix("*.").unwrap_or(name);
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if name != "*" && (plain.is_empty() || !plain.chars().all(allowed)) {
                return Err(format!(
                    "{name:?} is not a host name; write it without scheme and port, like duetime.example"
                ));
            }
        }
        self.0.store(Arc::new(names.iter().map(|name| name.to_ascii_lowercase()).collect()));
        Ok(())
    }

    /// Whether every name is taken.
    #[must_use]
    pub fn allow_all(&self) -> bool {
        self.0.load().iter().any(|name| name == "*")
    }

    fn knows(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host == "localhost"
            || is_address(&host)
            || self.0.load().iter().any(|name| match name.strip_prefix('*') {
                Some("") => true,
                Some(domain) => host.len() > domain.len() && host.ends_with(domain),
                None => *name == host,
            })
    }
}

fn is_address(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok(),
    }
}

/// What the request calls this node: `host` or `host:port`. HTTP/2 has it in the target.
fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, Problem> {
    let misdirected = |detail: String| Problem::new(StatusCode::MISDIRECTED_REQUEST, "unknown_host", detail);
    let mut given = headers.get_all(header::HOST).iter();
    let host = given.next();
    if given.next().is_some() {
        return Err(misdirected("the request has two Host headers; send one".to_owned()));
    }
    let host = match host {
        Some(host) => Some(host.to_str().map_err(|_| misdirected("Host is not a host name".to_owned()))?),
        None => None,
    };
    match (uri.authority().map(|authority| authority.as_str()), host) {
        (Some(target), Some(host)) if !target.eq_ignore_ascii_case(host) => {
            Err(misdirected(format!("the request is for {target:?} and its Host is {host:?}; send the same in both")))
        }
        (Some(target), _) => Ok(Some(target)),
        (None, host) => Ok(host),
    }
}

/// The host of `host:port`; the brackets of an IPv6 address stay.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// `host:port` with the port that the scheme implies left out.
fn plain<'a>(scheme: &str, authority: &'a str) -> &'a str {
    let implied = if scheme == "https" { ":443" } else { ":80" };
    authority.strip_suffix(implied).unwrap_or(authority)
}

/// Whether `origin` is a page of this node itself.
fn is_own(origin: &str, authority: Option<&str>) -> bool {
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    authority.is_some_and(|own| plain(scheme, rest).eq_ignore_ascii_case(plain(scheme, own)))
}

fn checked(hosts: &Hosts, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let authority = authority(uri, headers)?;
    if let Some(host) = authority.map(without_port)
        && !hosts.knows(host)
    {
        let detail = format!(
            "this node does not go by the name {host:?}; call it by its address, or add the name to node.hosts"
        );
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "unknown_host", detail));
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let foreign = |what: String| {
        let detail = format!("{what}: pages of other sites may not change anything here; call the API from a program");
        Err(Problem::new(StatusCode::FORBIDDEN, "foreign_origin", detail))
    };
    for origin in headers.get_all(header::ORIGIN) {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        if !is_own(&origin, authority) {
            return foreign(format!("the request comes from a page of {origin:?}"));
        }
    }
    for site in headers.get_all("sec-fetch-site") {
        if !matches!(site.as_bytes(), b"same-origin" | b"none") {
            return foreign("the request comes from a page of another site (Sec-Fetch-Site)".to_owned());
        }
    }
    Ok(())
}

/// Refuses foreign host names and what foreign pages send.
pub(crate) fn check(hosts: &Hosts, request: &Request) -> Result<(), Problem> {
    checked(hosts, request.method(), request.uri(), request.headers())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(hosts: &[&str], method: Method, headers: &[(&'static str, &str)]) -> Result<(), u16> {
        let names: Vec<String> = hosts.iter().map(|&name| name.to_owned()).collect();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let uri = Uri::from_static("/v1/topics");
        checked(&Hosts::new(&names).unwrap(), &method, &uri, &map).map_err(|problem| problem.status().as_u16())
    }

    #[test]
    fn a_node_answers_to_addresses_localhost_and_the_names_it_was_given() {
        for own in ["127.0.0.1:3830", "10.1.2.3", "[::1]:3830", "[::1]", "localhost", "LocalHost:3830", "localhost."] {
            assert_eq!(answer(&[], Method::GET, &[("host", own)]), Ok(()), "{own}");
        }
        for foreign in [
            "evil.example:3830",
            "127.0.0.1.nip.io",
            "localhost.evil.example",
            "::1",
            "",
            "localhost:80@evil",
            "127.0.0.1:x",
        ] {
            assert_eq!(answer(&[], Method::GET, &[("host", foreign)]), Err(421), "{foreign}");
        }
        let named = ["duetime.example", "*.svc.local"];
        for (host, wanted) in [
            ("duetime.example:3830", Ok(())),
            ("DUETIME.example", Ok(())),
            ("x.svc.local", Ok(())),
            (".svc.local", Err(421)),
            ("svc.local", Err(421)),
            ("evilduetime.example", Err(421)),
        ] {
            assert_eq!(answer(&named, Method::POST, &[("host", host)]), wanted, "{host}");
        }
        assert_eq!(answer(&["*"], Method::GET, &[("host", "any.name")]), Ok(()));
        assert_eq!(answer(&[], Method::GET, &[]), Ok(()), "HTTP/1.0 and no browser");
        assert_eq!(answer(&[], Method::GET, &[("host", "localhost"), ("host", "evil.example")]), Err(421));
    }

    #[test]
    fn a_foreign_page_may_not_change_anything() {
        let host = ("host", "127.0.0.1:3830");
        let post = |more: &[(&'static str, &str)]| answer(&[], Method::POST, &[&[host], more].concat());
        assert_eq!(post(&[]), Ok(()), "a program");
        assert_eq!(post(&[("origin", "http://127.0.0.1:3830"), ("sec-fetch-site", "same-origin")]), Ok(()));
        assert_eq!(post(&[("sec-fetch-site", "none")]), Ok(()), "typed in by the user");
        for foreign in
            ["http://127.0.0.1:3831", "http://evil.example", "null", "", "127.0.0.1:3830", "http://localhost:3830"]
        {
            assert_eq!(post(&[("origin", foreign)]), Err(403), "{foreign}");
            let read = answer(&[], Method::GET, &[host, ("origin", foreign)]);
            assert_eq!(read, Ok(()), "browsers hide the answer");
        }
        assert_eq!(post(&[("sec-fetch-site", "cross-site")]), Err(403));
        assert_eq!(post(&[("sec-fetch-site", "same-site")]), Err(403), "another port of this machine");
        let named = |origin: &str| answer(&["d.example"], Method::PUT, &[("host", "d.example"), ("origin", origin)]);
        assert_eq!(named("https://d.example:443"), Ok(()));
        assert_eq!(named("https://d.example:8443"), Err(403));
    }

    #[test]
    fn a_name_with_scheme_or_port_is_refused() {
        for wrong in ["http://d.example", "d.example:3830", "", "*.", "a b"] {
            assert!(Hosts::new(&[wrong.to_owned()]).unwrap_err().contains("host name"), "{wrong:?}");
        }
    }
}
