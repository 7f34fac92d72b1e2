//! Which server has which slot, and what a server says of one that it does not have.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use duetime_redis::slots::{SLOTS, slot_of_key};
use parking_lot::Mutex;

use crate::commands::Exec;
use crate::reply::Reply;
use crate::server::Server;

#[derive(Debug, Default)]
struct Map {
    /// First and last slot, and the address of the server that has them.
    ranges: Vec<(u16, u16, String)>,
    /// Slots on their way, and where to.
    moving: BTreeMap<u16, String>,
    servers: Vec<Weak<Server>>,
}

/// The slots of all servers, which know each other.
#[derive(Debug, Default)]
pub struct Cluster(Mutex<Map>);

/// The keys of a command.
fn keys_of<'a>(name: &str, args: &'a [Bytes]) -> &'a [Bytes] {
    match name {
        "EVAL" | "EVALSHA" => {
            let count = args.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse().ok()).unwrap_or(0);
            args.get(3..3 + count).unwrap_or_default()
        }
        "DEL" | "UNLINK" | "EXISTS" => args.get(1..).unwrap_or_default(),
        _ => match name.as_bytes().first() {
            Some(b'H' | b'Z' | b'X') if name != "HELLO" => args.get(1..2).unwrap_or_default(),
            _ => match name {
                "GET" | "SET" | "INCR" | "INCRBY" | "TYPE" | "EXPIRE" | "PEXPIRE" | "PEXPIREAT" | "PTTL" | "TTL" => {
                    args.get(1..2).unwrap_or_default()
                }
                _ => &[],
            },
        },
    }
}

impl Cluster {
    /// All slots, evenly over servers of these addresses.
    #[must_use]
    pub fn of(addrs: &[String]) -> Arc<Self> {
        let count = u16::try_from(addrs.len()).expect("few servers");
        let first = |n: u16| u16::try_from(u32::from(n) * u32::from(SLOTS) / u32::from(count)).expect("a slot");
        let ranges = addrs.iter().zip(0..).map(|(addr, n)| {
            let last = if n + 1 == count { SLOTS - 1 } else { first(n + 1) - 1 };
            (first(n), last, addr.clone())
        });
        Arc::new(Self(Mutex::new(Map { ranges: ranges.collect(), ..Map::default() })))
    }

    /// A server that is there from now on.
    pub fn add(&self, server: &Arc<Server>) {
        self.0.lock().servers.push(Arc::downgrade(server));
    }

    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        self.0.lock().servers.iter().filter_map(Weak::upgrade).collect()
    }

    /// All slots of one server are another's now.
    pub fn takes_over(&self, from: &str, to: &str) {
        for (_, _, addr) in &mut self.0.lock().ranges {
            if addr == from {
                to.clone_into(addr);
            }
        }
    }

    /// What a server answers that does not have the keys of a command; none: it has them.
    pub(crate) fn redirection(
        &self,
        own: &str,
        name: &str,
        args: &[Bytes],
        asking: bool,
        exec: &mut Exec,
    ) -> Option<String> {
        let keys = keys_of(name, args);
        let slot = slot_of_key(keys.first()?);
        if keys.iter().any(|key| slot_of_key(key) != slot) {
            return Some("CROSSSLOT Keys in request don't hash to the same slot".to_owned());
        }
        let map = self.0.lock();
        let owner = map.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        let owner = owner.map_or("", |(_, _, addr)| addr);
        let now = exec.now_ms();
        let missing = keys.iter().filter(|key| exec.db.get(key, now).is_none()).count();
        match map.moving.get(&slot) {
            Some(to) if owner == own && missing == keys.len() => Some(format!("ASK {slot} {to}")),
            Some(_) if owner == own && missing > 0 => {
                Some("TRYAGAIN Multiple keys request during rehashing of slot".to_owned())
            }
            Some(to) if asking && to == own && keys.len() > 1 && missing > 0 => {
                Some("TRYAGAIN Multiple keys request during rehashing of slot".to_owned())
            }
            Some(to) if asking && to == own => None,
            _ if owner == own => None,
            _ => Some(format!("MOVED {slot} {owner}")),
        }
    }

    pub(crate) fn answer(&self, what: Option<&str>) -> Reply {
        if what != Some("SLOTS") {
            return Reply::error("ERR unknown subcommand of CLUSTER");
        }
        let row = |(first, last, addr): &(u16, u16, String)| {
            let (host, port) = addr.rsplit_once(':').unwrap_or((addr, "0"));
            let port = Reply::Int(port.parse().unwrap_or(0));
            let master = Reply::Array(vec![Reply::bulk(host.as_bytes()), port, Reply::bulk(addr.as_bytes())]);
            Reply::Array(vec![Reply::Int((*first).into()), Reply::Int((*last).into()), master])
        };
        Reply::Array(self.0.lock().ranges.iter().map(row).collect())
    }
}
