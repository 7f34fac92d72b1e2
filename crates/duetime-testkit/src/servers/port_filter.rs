//! Packets to or from one port of this machine are dropped, and nobody is notified.
//!
//! For servers that announce an address on loopback, which a network namespace does not have. The rules
//! are in a table of their own; needs root. It goes with its owner, and where nothing is dropped (the
//! process is killed) a guard takes it away.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::network::{Guard, Way};

/// Packets to or from one port of this machine are dropped, and nobody is notified.
#[derive(Debug)]
pub struct PortFilter {
    table: String,
    _guard: Guard,
}

fn nft(rules: &str) -> bool {
    let made = Command::new("nft").arg(rules).stdin(Stdio::null()).output();
    made.is_ok_and(|output| output.status.success())
}

impl PortFilter {
    /// One that drops nothing; `None` where this is not root or there is no nftables.
    #[must_use]
    pub fn new() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let table = format!("duetime_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        if !nft(&format!("add table inet {table}")) {
            return None;
        }
        let guard = Guard::new("nft delete table inet \"$0\"", &[&table]);
        Some(Self { table, _guard: guard })
    }

    /// Drops what goes to this port ([`Way::In`]: requests), what comes from it ([`Way::Out`]: answers), or both.
    pub fn drop_packets(&self, port: u16, way: Way) {
        // On loopback what goes to the port and what comes from it are both input.
        let directions = [(Way::In, "input", "dport"), (Way::Out, "input", "sport")];
        let rules = way.rules(&format!("inet {}", self.table), &port.to_string(), directions);
        assert!(nft(&rules), "nft refuses {rules:?}");
    }

    /// Drops nothing any more.
    pub fn heal(&self) {
        let table = &self.table;
        assert!(nft(&format!("flush table inet {table}; delete chain inet {table} input")), "nft refuses to heal");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn packets_of_one_port_are_dropped_until_it_is_healed() {
        let filter = PortFilter::new().expect("tests that drop packets need root and nft: sudo -E ./test");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let connects = |within_ms| TcpStream::connect_timeout(&address, Duration::from_millis(within_ms)).is_ok();
        assert!(connects(10_000));
        for way in [Way::In, Way::Out, Way::Both] {
            filter.drop_packets(address.port(), way);
            assert!(!connects(300), "{way:?}");
            filter.heal();
            assert!(connects(10_000));
        }
    }
}
