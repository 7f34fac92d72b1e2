//! A network namespace of its own for one process, whose packets are dropped as a test asks.
//!
//! It has one wire to this machine, a pair of virtual interfaces. Packets are dropped by nftables
//! inside of it: nobody is notified, as when a switch dies. Needs root. It goes with the test, and where
//! nothing is dropped (the test process is killed) a guard takes it away.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Addresses for tests of networks (RFC 2544): four for each namespace.
const ADDRESSES: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// How many namespaces have addresses, and how many of them one process has.
const SPACES: u32 = 1 << 15;
const SPACES_OF_PROCESS: u32 = 8;
const REMEDY: &str = "tests that cut the network need root, `ip` and `nft`: run `./test --tools` once, and the tests \
                      as root (sudo -E ./test)";

/// Which packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Those that leave the namespace.
    Out,
    /// Those that come in.
    In,
    /// All.
    Both,
}

impl Way {
    /// The rules of nftables by which a table drops packets. Of each direction: the way, its hook, and the field of
    /// TCP that is one of `ports`.
    pub(super) fn rules(self, table: &str, ports: &str, directions: [(Self, &str, &str); 2]) -> String {
        let dropped = directions.into_iter().filter(|(way, ..)| self == *way || self == Self::Both);
        let rules = dropped.flat_map(|(_, hook, field)| {
            [
                format!("add chain {table} {hook} {{ type filter hook {hook} priority 0; }}"),
                format!("add rule {table} {hook} tcp {field} {{ {ports} }} drop"),
            ]
        });
        rules.collect::<Vec<_>>().join("; ")
    }
}

/// A process that runs a command of the shell when this is dropped, or when the test process is killed.
#[derive(Debug)]
pub(super) struct Guard(Child);

impl Guard {
    /// `args` are `$0` and so on of `clean`.
    pub(super) fn new(clean: &str, args: &[&str]) -> Self {
        let guard = Command::new("sh")
            .args(["-c", &format!("cat >/dev/null; {clean}")])
            .args(args)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(guard.expect("sh starts"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The end of its pipe has it clean up.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A network namespace of its own for one process, whose packets are dropped as a test asks.
#[derive(Debug)]
pub struct NetworkSpace {
    name: String,
    outside: Ipv4Addr,
    inside: Ipv4Addr,
    _guard: Guard,
}

fn run(program: &str, args: &[&str]) -> Output {
    let made = Command::new(program).args(args).stdin(Stdio::null()).output();
    made.unwrap_or_else(|error| panic!("{program} does not start ({error}); {REMEDY}"))
}

fn done(program: &str, args: &[&str]) {
    let output = run(program, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {said}; {REMEDY}", args.join(" "));
}

impl NetworkSpace {
    /// A namespace and its wire.
    #[must_use]
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (pid, n) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let place = (pid.wrapping_mul(SPACES_OF_PROCESS) + n % SPACES_OF_PROCESS) % SPACES;
        let first = u32::from(ADDRESSES) + place * 4;
        // Names of interfaces have 15 letters at most.
        let (name, wire) = (format!("dt{pid}-{n}"), format!("dt{pid}-{n}h"));
        let guard = Guard::new("ip link del \"$0\"; ip netns del \"$1\"", &[&wire, &name]);
        // From here on a panic cleans up.
        let space = Self { name, outside: Ipv4Addr::from(first + 1), inside: Ipv4Addr::from(first + 2), _guard: guard };
        let (name, inside) = (space.name.as_str(), format!("{}/30", space.inside));
        done("ip", &["netns", "add", name]);
        done("ip", &["link", "add", &wire, "type", "veth", "peer", "name", "wire", "netns", name]);
        done("ip", &["addr", "add", &format!("{}/30", space.outside), "dev", &wire]);
        done("ip", &["link", "set", &wire, "up"]);
        for args in
            [&["addr", "add", &inside, "dev", "wire"][..], &["link", "set", "wire", "up"], &["link", "set", "lo", "up"]]
        {
            done("ip", &[&["-n", name], args].concat());
        }
        space
    }

    /// This machine, seen from inside.
    #[must_use]
    pub fn outside(&self) -> Ipv4Addr {
        self.outside
    }

    /// What is inside, seen from this machine.
    #[must_use]
    pub fn inside(&self) -> Ipv4Addr {
        self.inside
    }

    /// What a command line begins with to run inside.
    #[must_use]
    pub fn prefix(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// Drops the packets between the inside and these TCP ports of this machine, and no others.
    pub fn cut(&self, ports: &[u16], way: Way) {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let directions = [(Way::Out, "output", "dport"), (Way::In, "input", "sport")];
        let rules = way.rules("ip cut", &ports.join(","), directions);
        self.nft(&format!("flush ruleset; add table ip cut; {rules}"));
    }

    /// Drops nothing any more.
    pub fn heal(&self) {
        self.nft("flush ruleset");
    }

    fn nft(&self, rules: &str) {
        done("ip", &["netns", "exec", &self.name, "nft", rules]);
    }
}

impl Default for NetworkSpace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest wait for a connection that must come, and for one that must not, in seconds.
    const PATIENCE_S: &str = "20";
    const QUIET_S: &str = "1";

    fn ping(space: &NetworkSpace, port: u16, longest_s: &str) -> bool {
        let ask = format!("exec 3<>/dev/tcp/{}/{port}", space.outside());
        let args = [&space.prefix()[1..], &["timeout", longest_s, "bash", "-c", &ask]].concat();
        run("ip", &args).status.success()
    }

    #[test]
    fn packets_are_dropped_one_way_or_both_until_it_is_healed() {
        let space = NetworkSpace::new();
        let listener = std::net::TcpListener::bind((space.outside(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(ping(&space, port, PATIENCE_S));
        for way in [Way::Out, Way::In, Way::Both] {
            space.cut(&[port], way);
            assert!(!ping(&space, port, QUIET_S), "{way:?}");
        }
        space.cut(&[port + 1], Way::Both);
        assert!(ping(&space, port, PATIENCE_S), "another port is not touched");
        space.heal();
        assert!(ping(&space, port, PATIENCE_S));
        let name = space.name.clone();
        drop(space);
        let left = String::from_utf8(run("ip", &["netns", "list"]).stdout).unwrap();
        assert!(!left.split_whitespace().any(|known| known == name), "{left}");
    }
}
