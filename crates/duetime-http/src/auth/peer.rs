//! Where a request came from.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The other end of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub SocketAddr);

/// IPv4 as it is; IPv6 by its network of 64 bits, which one customer usually has.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}
