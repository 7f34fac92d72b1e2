//! Packets to or from one port of this machine are dropped, and nobody is notified.
//!
//! For servers that announce an address on loopback, which a network namespace does not have. The rules
//! are in a table of their own; needs root. It goes with its owner, and where nothing is dropped (the
//! process is killed) a guard takes it away.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::network::Way;

/// Packets to or from one port of this machine are dropped, and nobody is notified.
#[derive(Debug)]
pub struct PortFilter {
    table: String,
    guard: Child,
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
        let guard = Command::new("sh")
            .args(["-c", "cat >/dev/null; nft delete table inet \"$0\"", &table])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        Some(Self { table, guard })
    }

    /// Drops what goes to this port ([`Way::In`]: requests), what comes from it ([`Way::Out`]: answers), or both.
    pub fn drop_packets(&self, port: u16, way: Way) {
        let table = &self.table;
        let mut rules = vec![format!("add chain inet {table} cut {{ type filter hook input priority 0; }}")];
        for (wanted, field) in [(Way::In, "dport"), (Way::Out, "sport")] {
            if way == wanted || way == Way::Both {
                rules.push(format!("add rule inet {table} cut tcp {field} {port} drop"));
            }
        }
        assert!(nft(&rules.join("; ")), "nft refuses {rules:?}");
    }

    /// Drops nothing any more.
    pub fn heal(&self) {
        let table = &self.table;
        assert!(nft(&format!("flush table inet {table}; delete chain inet {table} cut")), "nft refuses to heal");
    }
}

impl Drop for PortFilter {
    fn drop(&mut self) {
        // The end of its pipe has it clean up.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
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
