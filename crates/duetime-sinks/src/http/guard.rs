//! Which addresses a webhook may reach, decided after the name was resolved.
//!
//! The connection goes to the very address that was checked: a name cannot point elsewhere between
//! the two. Public addresses are allowed; others only if the configuration names them or the host.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::fault::SinkFault;

/// A range of addresses, as `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AddressRange {
    base: IpAddr,
    bits: u8,
}

impl FromStr for AddressRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (base, bits) = text.split_once('/').map_or((text, None), |(base, bits)| (base, Some(bits)));
        let base: IpAddr = base.parse().map_err(|_| ())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| ()))?;
        if bits > most { Err(()) } else { Ok(Self { base, bits }) }
    }
}

impl AddressRange {
    fn contains(self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                u32::from(base).checked_shr(shift) == u32::from(address).checked_shr(shift)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                u128::from(base).checked_shr(shift) == u128::from(address).checked_shr(shift)
            }
            _ => false,
        }
    }
}

/// An address that may not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    host: String,
    address: IpAddr,
    class: &'static str,
    /// The setting that would allow it.
    key: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is at {}, {}, which a webhook may not reach; to allow it, add {:?} or its range to `{}` of the sink",
            self.host,
            self.address,
            self.class,
            self.address.to_string(),
            self.key
        )
    }
}

impl std::error::Error for Refused {}

/// Ranges and hosts.
#[derive(Clone, Debug, Default)]
struct ListedRanges {
    ranges: Vec<AddressRange>,
    hosts: Vec<String>,
}

/// Which addresses a webhook may reach, decided after the name was resolved.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    allow: ListedRanges,
    only: Option<ListedRanges>,
}

impl ListedRanges {
    fn new(key: &'static str, entries: &[String]) -> Result<Self, SinkFault> {
        let mut listed = Self::default();
        for entry in entries {
            let host_like = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if let Ok(range) = entry.parse() {
                listed.ranges.push(range);
            } else if !entry.is_empty() && entry.chars().all(host_like) && entry.contains(char::is_alphabetic) {
                listed.hosts.push(entry.to_ascii_lowercase());
            } else {
                let fault =
                    format!("{key} has {entry:?}; write a range like \"10.0.0.0/8\", an address, or a host name");
                return Err(SinkFault::at(key, fault));
            }
        }
        Ok(listed)
    }

    fn has(&self, host: &str, address: IpAddr) -> bool {
        let mapped = match address {
            IpAddr::V6(six) => six.to_ipv4_mapped().map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let named = self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host.trim_end_matches('.')));
        let ranged = |address: IpAddr| self.ranges.iter().any(|range| range.contains(address));
        named || ranged(address) || mapped.is_some_and(ranged)
    }
}

impl Guard {
    /// Takes what the configuration allows besides public addresses, and to what it keeps a webhook
    /// altogether, if to anything.
    ///
    /// # Errors
    ///
    /// A sentence that names the entry that is neither a range nor a host.
    pub fn new(allow: &[String], only: Option<&[String]>) -> Result<Self, SinkFault> {
        let only = only.map(|only| ListedRanges::new("only", only)).transpose()?;
        Ok(Self { allow: ListedRanges::new("allow", allow)?, only })
    }

    /// Whether `host`, found at `address`, may be reached.
    ///
    /// # Errors
    ///
    /// [`Refused`] says why and how to allow it.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), Refused> {
        let refused = |class, key| Err(Refused { host: host.to_owned(), address, class, key });
        match class(address) {
            _ if self.only.as_ref().is_some_and(|only| !only.has(host, address)) => refused("not on its list", "only"),
            // A host on the list of `only` may not lead inside by what its name resolves to.
            Some(class) if !self.allow.has(host, address) => refused(class, "allow"),
            _ => Ok(()),
        }
    }
}

/// What is special about an address; `None`: it is a public one.
fn class(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => class_v6(address),
    }
}

/// The registry: <https://www.iana.org/assignments/iana-ipv4-special-registry>.
fn class_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("an address of no host"),
        [10, ..] | [192, 168, ..] | [172, 16..=31, ..] => Some("a private address"),
        [100, 64..=127, ..] => Some("a shared address of a provider"),
        [127, ..] => Some("a loopback address"),
        [169, 254, ..] => Some("a link-local address"),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18 | 19, ..] => {
            Some("a reserved address")
        }
        [224..=239, ..] => Some("a multicast address"),
        [240..=255, ..] => Some("a reserved address"),
        _ => None,
    }
}

/// The registry: <https://www.iana.org/assignments/iana-ipv6-special-registry>. Addresses that carry
/// one of version 4 are as special as that one.
fn class_v6(address: Ipv6Addr) -> Option<&'static str> {
    let carried = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        class_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => carried(high, low),
        [0x64, 0xff9b, ..] => Some("a private address"),
        [0, 0, 0, 0, 0, 0, ..] => Some("an address of no host"),
        [0x2002, high, low, ..] => carried(high, low),
        [0x2001, 0, ..] | [0x2001, 0xdb8, ..] | [0x100, 0, 0, 0, ..] | [0x3fff, 0..=0xfff, ..] | [0x5f00, ..] => {
            Some("a reserved address")
        }
        [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a private address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        _ => None,
    }
}

/// Names that one sink has resolved at once. Each takes a thread that the store's reads are made on too, and a server
/// of names that does not answer keeps it for as long as the system asks: seconds, longer than the request waits.
pub(super) const LOOKUPS_MAX: usize = 4;
/// The same of a sink whose messages name hosts themselves: names that nobody answers for keep only part of it.
pub(super) const LOOKUPS_OF_MANY_MAX: usize = 32;

/// There a name waits for its turn for this part of the time that a connection may take.
pub(super) const TURN_PART: u32 = 2;

/// A name had no turn to be resolved: those before it have no answer.
#[derive(Debug, thiserror::Error)]
#[error("as many names as may be are being resolved already, and their servers do not answer")]
pub(super) struct LookupsBusy;

/// Resolves names, so many at once, and lets through only what the guard allows. Clones share the bound; each sink has
/// its own, so that names of one do not keep others waiting.
#[derive(Clone, Debug)]
pub struct GuardedResolver {
    guard: Arc<Guard>,
    turns: Arc<Semaphore>,
    turn_within: Duration,
}

impl GuardedResolver {
    /// The one of a sink, which has so many names resolved at once; each has its turn within this time, or is refused.
    pub fn new(guard: Arc<Guard>, lookups_max: usize, turn_within: Duration) -> Self {
        Self { guard, turns: Arc::new(Semaphore::new(lookups_max)), turn_within }
    }
}

impl Service<Name> for GuardedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { guard, turns, turn_within } = self.clone();
        Box::pin(async move {
            let turn = tokio::time::timeout(turn_within, turns.acquire_owned()).await.map_err(|_| LookupsBusy)??;
            let host = name.clone();
            // A request that is given up does not end the thread, which keeps its turn.
            let look_up = move || {
                let _turn = turn;
                (host.as_str(), 0).to_socket_addrs()
            };
            let found = tokio::task::spawn_blocking(look_up).await??;
            let mut refused = None;
            let mut allowed = Vec::with_capacity(found.len());
            for address in found {
                match guard.check(name.as_str(), address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(why) => refused = Some(why),
                }
            }
            match refused {
                Some(why) if allowed.is_empty() => Err(why.into()),
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for names of this machine.
    const TURN_WITHIN: Duration = Duration::from_secs(60);

    #[test]
    fn only_public_addresses_are_reached_unless_others_are_allowed() {
        let strict = Guard::default();
        for inside in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:0:127.0.0.1",
            "192.88.99.1",
            "3fff::1",
            "5f00::1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::7f00:1",
        ] {
            assert!(strict.check("hooks.example", inside.parse().unwrap()).is_err(), "{inside}");
        }
        for outside in ["93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:2800:220:1::1", "::ffff:8.8.8.8"] {
            assert_eq!(strict.check("hooks.example", outside.parse().unwrap()), Ok(()), "{outside}");
        }
        let allow = ["10.0.0.0/8", "Hooks.internal", "fd00::/8"].map(str::to_owned);
        let open = Guard::new(&allow, None).unwrap();
        assert!(open.check("x", "10.255.0.1".parse().unwrap()).is_ok());
        assert!(open.check("x", "::ffff:10.0.0.1".parse().unwrap()).is_ok());
        assert!(open.check("x", "fd12::1".parse().unwrap()).is_ok());
        assert!(open.check("hooks.internal.", "192.168.1.1".parse().unwrap()).is_ok());
        let refused = open.check("x", "192.168.1.1".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("private address") && refused.contains("`allow`"), "{refused}");
        let all = Guard::new(&["0.0.0.0/0".to_owned(), "::/0".to_owned()], None).unwrap();
        assert!(all.check("x", "127.0.0.1".parse().unwrap()).is_ok());
        assert!(all.check("x", "::1".parse().unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_sink_has_a_few_names_resolved_at_once_and_keeps_no_other_waiting() {
        let guard = Arc::new(Guard::new(&["localhost".to_owned()], None).unwrap());
        let name = || Name::from_str("localhost").unwrap();
        let mut slow = GuardedResolver::new(guard.clone(), LOOKUPS_MAX, TURN_WITHIN);
        let all = u32::try_from(LOOKUPS_MAX).unwrap();
        let held = slow.turns.clone().acquire_many_owned(all).await.unwrap();
        let mut waits = slow.call(name());
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut waits).await.is_err());
        let mut other = GuardedResolver::new(guard, LOOKUPS_MAX, TURN_WITHIN);
        assert!(other.call(name()).await.unwrap().next().is_some());
        drop(held);
        assert!(waits.await.is_ok());
    }

    #[test]
    fn a_strict_list_keeps_out_public_addresses_too_and_lets_no_name_lead_inside() {
        let only = ["hooks.example", "8.8.0.0/16"].map(str::to_owned);
        let strict = Guard::new(&[], Some(&only)).unwrap();
        let check = |host: &str, address: &str| strict.check(host, address.parse().unwrap());
        assert_eq!(check("Hooks.example.", "93.184.216.34"), Ok(()));
        assert_eq!(check("elsewhere.example", "8.8.4.4"), Ok(()));
        let refused = check("elsewhere.example", "93.184.216.34").unwrap_err().to_string();
        assert!(refused.contains("not on its list") && refused.contains("`only`"), "{refused}");
        let refused = check("hooks.example", "169.254.169.254").unwrap_err().to_string();
        assert!(refused.contains("link-local") && refused.contains("`allow`"), "{refused}");
        assert!(Guard::new(&[], Some(&[])).unwrap().check("x", "8.8.8.8".parse().unwrap()).is_err());
        let inside = Guard::new(&["10.0.0.0/8".to_owned()], Some(&["10.1.0.0/16".to_owned()])).unwrap();
        assert!(inside.check("x", "10.1.2.3".parse().unwrap()).is_ok());
        assert!(inside.check("x", "10.2.2.3".parse().unwrap()).is_err());
    }

    #[test]
    fn an_entry_that_is_neither_range_nor_host_is_refused() {
        for wrong in ["10.0.0.0/33", "::/129", "", "http://x", "10.0.0", "a b"] {
            let error = Guard::new(&[wrong.to_owned()], None).unwrap_err().text;
            assert!(error.contains("10.0.0.0/8"), "{error}");
        }
    }
}
