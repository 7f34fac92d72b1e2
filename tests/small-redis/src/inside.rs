//! What one server keeps: its keys, its clients, its scripts, and what its replicas have of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::commands::Exec;
use crate::db::Db;
use crate::lua::Script;
use crate::pipe::Pipe;
use crate::reply::Reply;

/// What a server with no keys is said to use of memory.
const BARE_BYTES: usize = 1_000_000;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) addr: String,
    pub(crate) pipe: Arc<Pipe>,
    pub(crate) channels: BTreeSet<Bytes>,
    /// Offset of its last write.
    pub(crate) wrote: u64,
    pub(crate) asking: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Follower {
    pub(crate) db: Db,
    pub(crate) has: u64,
    /// Nothing reaches it.
    pub(crate) cut: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Inside {
    pub(crate) exec: Exec,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) next_client: u64,
    pub(crate) scripts: HashMap<String, Arc<Script>>,
    pub(crate) maxmemory: usize,
    /// Changes that not all replicas have, each with its offset.
    pub(crate) log: VecDeque<(u64, Vec<Vec<Bytes>>)>,
    pub(crate) offset: u64,
    pub(crate) followers: Vec<Follower>,
    /// Grows with each history.
    pub(crate) history: u64,
    /// Nobody listens.
    pub(crate) down: bool,
    /// Another has its place.
    pub(crate) demoted: bool,
    pub(crate) may_not_kill: bool,
}

impl Inside {
    pub(crate) fn end_all(&mut self) {
        for (_, client) in std::mem::take(&mut self.clients) {
            client.pipe.close();
        }
    }

    /// The replicas begin anew with what the server has.
    pub(crate) fn begin_history(&mut self) {
        self.history += 1;
        self.end_all();
        self.log.clear();
        for follower in &mut self.followers {
            follower.db = self.exec.db.clone();
            follower.has = self.offset;
        }
    }

    pub(crate) fn catch_up(&mut self) {
        let Self { followers, log, offset, exec, .. } = self;
        for follower in followers.iter_mut().filter(|follower| !follower.cut) {
            let mut copy = Exec { db: std::mem::take(&mut follower.db), now_us: exec.now_us, ..Exec::default() };
            for (_, effects) in log.iter().filter(|(at, _)| *at > follower.has) {
                effects.iter().for_each(|args| drop(copy.run(args)));
                copy.effects.clear();
            }
            follower.db = copy.db;
            follower.has = *offset;
        }
        let least = followers.iter().map(|follower| follower.has).min().unwrap_or(*offset);
        while log.front().is_some_and(|(at, _)| *at <= least) {
            log.pop_front();
        }
    }

    pub(crate) fn reached(&self, offset: u64) -> usize {
        self.followers.iter().filter(|follower| follower.has >= offset).count()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.maxmemory > 0 && BARE_BYTES + self.exec.db.bytes() > self.maxmemory
    }

    pub(crate) fn info(&self) -> String {
        let role = if self.demoted { "slave" } else { "master" };
        let replicas = self.followers.iter().enumerate().map(|(n, follower)| {
            let lag = if follower.cut { 60 } else { 0 };
            format!("slave{n}:ip=10.0.0.{n},port=1,state=online,offset={},lag={lag}\r\n", follower.has)
        });
        format!(
            "# Server\r\nredis_version:7.0.15\r\n# Memory\r\nused_memory:{}\r\nmaxmemory:{}\r\n\
             maxmemory_policy:noeviction\r\n# Persistence\r\n\
             rdb_last_bgsave_status:ok\r\naof_enabled:0\r\n# Replication\r\n\
             role:{role}\r\nconnected_slaves:{}\r\n{}master_replid:{:040x}\r\nmaster_repl_offset:{}\r\n",
            BARE_BYTES + self.exec.db.bytes(),
            self.maxmemory,
            self.followers.len(),
            replicas.collect::<String>(),
            self.history,
            self.offset,
        )
    }

    pub(crate) fn config(&mut self, what: Option<&str>, name: Option<&str>, value: Option<&Bytes>) -> Reply {
        match (what, name) {
            (Some("GET"), Some("MAXMEMORY-POLICY")) => {
                Reply::Array(vec![Reply::bulk(b"maxmemory-policy"), Reply::bulk(b"noeviction")])
            }
            (Some("GET"), Some("MAXMEMORY")) => {
                Reply::Array(vec![Reply::bulk(b"maxmemory"), Reply::Bulk(self.maxmemory.to_string().into())])
            }
            (Some("GET"), _) => Reply::Array(Vec::new()),
            (Some("SET"), Some("MAXMEMORY")) => {
                let bytes = value.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                self.maxmemory = bytes.unwrap_or(self.maxmemory);
                Reply::ok()
            }
            _ => Reply::error("ERR Unknown option or number of arguments for CONFIG"),
        }
    }

    pub(crate) fn client(&mut self, client: u64, what: Option<&str>, args: &[Bytes]) -> Reply {
        match what {
            Some("ID") => Reply::Int(i64::try_from(client).unwrap_or(i64::MAX)),
            Some("INFO") => {
                let addr = &self.clients[&client].addr;
                Reply::Bulk(
                    format!("id={client} addr={addr} laddr=10.0.0.1:6379 fd=8 name= resp=2 user=default\n").into(),
                )
            }
            Some("SETINFO" | "SETNAME") => Reply::ok(),
            Some("KILL") if self.may_not_kill => {
                Reply::error("NOPERM this user has no permissions to run the 'client|kill' command")
            }
            Some("KILL") => {
                let (mut id, mut addr) = (None, None);
                for pair in args[2..].chunks(2) {
                    let [name, value] = pair else { return Reply::error("ERR syntax error") };
                    let value = String::from_utf8_lossy(value).into_owned();
                    if name.eq_ignore_ascii_case(b"ID") {
                        id = value.parse::<u64>().ok();
                    } else if name.eq_ignore_ascii_case(b"ADDR") {
                        addr = Some(value);
                    }
                }
                let is = |one: &u64, of: &Client| {
                    *one != client && id == Some(*one) && addr.as_ref().is_none_or(|addr| *addr == of.addr)
                };
                let ended: Vec<u64> =
                    self.clients.iter().filter(|(one, of)| is(one, of)).map(|(one, _)| *one).collect();
                for one in &ended {
                    if let Some(gone) = self.clients.remove(one) {
                        gone.pipe.close();
                    }
                }
                Reply::count(ended.len())
            }
            _ => Reply::error("ERR unknown subcommand of CLIENT"),
        }
    }
}
