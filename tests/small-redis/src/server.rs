//! One server: its keys, its clients, its scripts, and replicas that are behind.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::commands::{Exec, name_of};
use crate::db::Db;
use crate::inside::{Client, Follower, Inside};
use crate::lua::{Script, sha1_hex};
use crate::pipe::Pipe;
use crate::reply::Reply;

/// How often a WAIT looks again.
const WAIT_LOOKS_EVERY: Duration = Duration::from_millis(5);

/// A script that is run, for who looks on.
#[derive(Debug)]
pub struct ScriptCall<'a> {
    /// The address of the client that sent it.
    pub from: &'a str,
    /// Its name on the server.
    pub sha: &'a str,
    /// The server's time while it runs, in microseconds.
    pub now_us: i64,
    /// The script as its client sent it.
    pub text: &'a [u8],
    /// Its keys.
    pub keys: &'a [Bytes],
    /// Its arguments.
    pub args: &'a [Bytes],
}

/// Looks on while scripts run, and changes nothing.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Before a script runs.
    fn before(&self, db: &Db, call: &ScriptCall<'_>);
    /// After it ran.
    fn after(&self, db: &Db, call: &ScriptCall<'_>, reply: &Reply);
}

/// Gives a script's text another one to run by; none: it runs as it is.
pub type Edit = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a command comes to.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answers(Vec<Reply>),
    Waits(Wait),
}

/// A WAIT.
#[derive(Debug)]
pub(crate) struct Wait {
    offset: u64,
    least: usize,
    until: Option<Instant>,
}

/// One server.
pub struct Server {
    addr: String,
    clock_us: Arc<dyn Fn() -> i64 + Send + Sync>,
    cluster: Option<Arc<Cluster>>,
    edit: Option<Edit>,
    witness: Option<Arc<dyn Witness>>,
    /// How long a WAIT waits for a replica that is asked.
    lag: Arc<dyn Fn() -> Duration + Send + Sync>,
    inside: Mutex<Inside>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addr", &self.addr).finish_non_exhaustive()
    }
}

/// All that a server keeps, as it was at a moment.
#[derive(Clone, Debug)]
pub struct Snapshot(Db);

impl Server {
    /// An empty server at `addr` (`host:port`), whose clock shows microseconds.
    pub fn new(addr: &str, clock_us: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self {
            addr: addr.to_owned(),
            clock_us: Arc::new(clock_us),
            cluster: None,
            edit: None,
            witness: None,
            lag: Arc::new(|| Duration::ZERO),
            inside: Mutex::new(Inside { next_client: 1, ..Inside::default() }),
        }
    }

    /// As a node of a cluster.
    #[must_use]
    pub fn of_cluster(mut self, cluster: &Arc<Cluster>) -> Self {
        self.cluster = Some(cluster.clone());
        self
    }

    /// Runs scripts as `edit` has them.
    #[must_use]
    pub fn with_edit(mut self, edit: Option<Edit>) -> Self {
        self.edit = edit;
        self
    }

    /// With somebody who looks on.
    #[must_use]
    pub fn with_witness(mut self, witness: Arc<dyn Witness>) -> Self {
        self.witness = Some(witness);
        self
    }

    /// With so many replicas; one that a WAIT asks has everything after `lag`.
    #[must_use]
    pub fn with_replicas(mut self, count: usize, lag: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.inside.get_mut().followers = (0..count).map(|_| Follower::default()).collect();
        self.lag = Arc::new(lag);
        self
    }

    /// `host:port`.
    #[must_use]
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Users may not end connections.
    pub fn forbid_kill(&self) {
        self.inside.lock().may_not_kill = true;
    }

    /// Looks at the keys.
    pub fn look<T>(&self, look: impl FnOnce(&Db) -> T) -> T {
        look(&self.inside.lock().exec.db)
    }

    /// Most bytes that it may use; 0: no limit.
    pub fn set_maxmemory(&self, bytes: usize) {
        self.inside.lock().maxmemory = bytes;
    }

    /// All that it keeps.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.inside.lock().exec.db.clone())
    }

    /// Starts it again from a snapshot, or with nothing: connections and scripts are gone.
    pub fn restart(&self, from: Option<&Snapshot>) {
        let mut inside = self.inside.lock();
        inside.exec.db = from.map_or_else(Db::default, |snapshot| snapshot.0.clone());
        inside.begin_history();
        inside.scripts.clear();
    }

    /// The keys that `is` names are as they were in a snapshot, or gone, here and at the replicas. Nothing else
    /// changes.
    pub fn put_back(&self, from: Option<&Snapshot>, is: impl Fn(&Bytes) -> bool) {
        let mut inside = self.inside.lock();
        inside.catch_up();
        let Inside { exec, followers, .. } = &mut *inside;
        for db in std::iter::once(&mut exec.db).chain(followers.iter_mut().map(|follower| &mut follower.db)) {
            db.retain(|key| !is(key));
            if let Some(Snapshot(from)) = from {
                db.take(from, &is);
            }
        }
    }

    /// Ends all connections and takes no new ones.
    pub fn stop(&self) {
        let mut inside = self.inside.lock();
        inside.down = true;
        inside.end_all();
    }

    /// What replicas have, they have now, but for those that are cut off.
    pub fn replicate(&self) {
        self.inside.lock().catch_up();
    }

    /// Cuts the replicas off, or not.
    pub fn cut_replicas(&self, cut: bool) {
        self.inside.lock().followers.iter_mut().for_each(|follower| follower.cut = cut);
    }

    /// The first replica takes its place at the same address: what that had not is lost, and so are connections.
    pub fn fail_over(&self) {
        let mut inside = self.inside.lock();
        if let Some(first) = inside.followers.first_mut() {
            inside.exec.db = std::mem::take(&mut first.db);
        }
        inside.begin_history();
    }

    /// The first replica is a server of its own at `addr`; this one is none that takes writes any more.
    #[must_use]
    pub fn promote(&self, addr: &str) -> Self {
        let mut inside = self.inside.lock();
        let db = inside.followers.first_mut().map(|first| std::mem::take(&mut first.db)).unwrap_or_default();
        let followers = inside.followers.iter().map(|_| Follower { db: db.clone(), ..Follower::default() }).collect();
        inside.followers.clear();
        inside.demoted = true;
        inside.exec.read_only = Some("READONLY You can't write against a read only replica.".to_owned());
        Self {
            addr: addr.to_owned(),
            clock_us: self.clock_us.clone(),
            cluster: self.cluster.clone(),
            edit: self.edit.clone(),
            witness: self.witness.clone(),
            lag: self.lag.clone(),
            inside: Mutex::new(Inside {
                exec: Exec { db, ..Exec::default() },
                next_client: 1,
                followers,
                history: inside.history + 1,
                maxmemory: inside.maxmemory,
                may_not_kill: inside.may_not_kill,
                ..Inside::default()
            }),
        }
    }

    /// A new client; none: nobody listens.
    pub(crate) fn accept(&self, addr: &str, pipe: &Arc<Pipe>) -> Option<u64> {
        let mut inside = self.inside.lock();
        if inside.down {
            return None;
        }
        let id = inside.next_client;
        inside.next_client += 1;
        let (pipe, channels) = (pipe.clone(), BTreeSet::new());
        inside.clients.insert(id, Client { addr: addr.to_owned(), pipe, channels, wrote: 0, asking: false });
        Some(id)
    }

    pub(crate) fn is_open(&self, client: u64) -> bool {
        self.inside.lock().clients.contains_key(&client)
    }

    pub(crate) fn leaves(&self, client: u64) {
        self.inside.lock().clients.remove(&client);
    }

    /// Passes a message on to who has subscribed here.
    fn hear(&self, channel: &Bytes, message: &Bytes) {
        let inside = self.inside.lock();
        for client in inside.clients.values().filter(|client| client.channels.contains(channel)) {
            let parts = [Reply::bulk(b"message"), Reply::Bulk(channel.clone()), Reply::Bulk(message.clone())];
            let mut out = Vec::new();
            Reply::Array(parts.into()).write(&mut out);
            client.pipe.answer(out);
        }
    }

    /// Carries out one command of a client.
    pub(crate) fn carry_out(&self, client: u64, args: &[Bytes]) -> Outcome {
        let (outcome, published) = {
            let mut inside = self.inside.lock();
            inside.exec.now_us = (self.clock_us)();
            let outcome = self.carry_out_in(&mut inside, client, args);
            let effects = std::mem::take(&mut inside.exec.effects);
            if !effects.is_empty() {
                inside.offset += 1;
                let offset = inside.offset;
                if !inside.followers.is_empty() {
                    inside.log.push_back((offset, effects));
                }
                if let Some(client) = inside.clients.get_mut(&client) {
                    client.wrote = offset;
                }
            }
            (outcome, std::mem::take(&mut inside.exec.published))
        };
        for (channel, message) in published {
            match &self.cluster {
                Some(cluster) => cluster.servers().iter().for_each(|server| server.hear(&channel, &message)),
                None => self.hear(&channel, &message),
            }
        }
        outcome
    }

    fn carry_out_in(&self, inside: &mut Inside, client: u64, args: &[Bytes]) -> Outcome {
        let name = name_of(args);
        let one = |reply: Reply| Outcome::Answers(vec![reply]);
        let Some(asker) = inside.clients.get_mut(&client) else { return Outcome::Answers(Vec::new()) };
        let asking = std::mem::take(&mut asker.asking);
        let word = |at: usize| args.get(at).map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
        if !asker.channels.is_empty() && name == "PING" {
            return one(Reply::Array(vec![
                Reply::bulk(b"pong"),
                Reply::Bulk(args.get(1).cloned().unwrap_or_default()),
            ]));
        }
        if let Some(cluster) = &self.cluster
            && let Some(away) = cluster.redirection(&self.addr, &name, args, asking, &mut inside.exec)
        {
            return one(Reply::Error(away));
        }
        match name.as_str() {
            "CLIENT" => one(inside.client(client, word(1).as_deref(), args)),
            "ASKING" => {
                asker.asking = true;
                one(Reply::ok())
            }
            "SELECT" | "READONLY" | "AUTH" => one(Reply::ok()),
            "SUBSCRIBE" => {
                let said = args[1..].iter().map(|channel| {
                    asker.channels.insert(channel.clone());
                    let count = Reply::count(asker.channels.len());
                    Reply::Array(vec![Reply::bulk(b"subscribe"), Reply::Bulk(channel.clone()), count])
                });
                Outcome::Answers(said.collect())
            }
            "WAIT" => {
                let number = |at: usize| std::str::from_utf8(args.get(at)?).ok()?.parse::<u64>().ok();
                let (Some(least), Some(ms)) = (number(1), number(2)) else {
                    return one(Reply::error("ERR value is not an integer or out of range"));
                };
                if inside.demoted {
                    return one(Reply::error("ERR WAIT cannot be used with replica instances."));
                }
                let until = (ms > 0).then(|| Instant::now() + Duration::from_millis(ms));
                let offset = asker.wrote;
                let reached = inside.reached(offset);
                let least = usize::try_from(least).unwrap_or(usize::MAX);
                if reached >= least {
                    return one(Reply::count(reached));
                }
                Outcome::Waits(Wait { offset, least, until })
            }
            "INFO" => one(Reply::Bulk(inside.info().into())),
            "ROLE" if inside.demoted => one(Reply::Array(vec![Reply::bulk(b"slave")])),
            "ROLE" => one(Reply::Array(vec![Reply::bulk(b"master"), Reply::Int(0), Reply::Array(Vec::new())])),
            "CONFIG" => one(inside.config(word(1).as_deref(), word(2).as_deref(), args.get(3))),
            "CLUSTER" => one(match &self.cluster {
                Some(cluster) => cluster.answer(word(1).as_deref()),
                None => Reply::error("ERR This instance has cluster support disabled"),
            }),
            "SCRIPT" => one(self.script(inside, word(1).as_deref(), args)),
            "EVAL" | "EVALSHA" => {
                let from = asker.addr.clone();
                one(self.run_script(inside, &from, name == "EVAL", args))
            }
            _ => {
                inside.exec.full = inside.is_full();
                let reply = inside.exec.run(args);
                one(reply.unwrap_or_else(|| {
                    Reply::error(format!("ERR unknown command '{name}', with args beginning with: "))
                }))
            }
        }
    }

    fn load(&self, inside: &mut Inside, text: &Bytes) -> Result<Arc<Script>, String> {
        if let Some(known) = inside.scripts.get(&sha1_hex(text)) {
            return Ok(known.clone());
        }
        let edited = self.edit.as_ref().and_then(|edit| edit(&String::from_utf8_lossy(text)));
        let script = Arc::new(Script::load(text, edited)?);
        inside.scripts.insert(script.sha.clone(), script.clone());
        Ok(script)
    }

    fn script(&self, inside: &mut Inside, what: Option<&str>, args: &[Bytes]) -> Reply {
        match (what, args.get(2)) {
            (Some("LOAD"), Some(text)) => match self.load(inside, text) {
                Ok(script) => Reply::bulk(script.sha.as_bytes()),
                Err(error) => Reply::Error(error),
            },
            (Some("FLUSH"), _) => {
                inside.scripts.clear();
                Reply::ok()
            }
            (Some("EXISTS"), Some(_)) => {
                let is = |sha: &Bytes| inside.scripts.contains_key(&*String::from_utf8_lossy(sha));
                Reply::Array(args[2..].iter().map(|sha| Reply::Int(i64::from(is(sha)))).collect())
            }
            _ => Reply::error("ERR unknown subcommand of SCRIPT"),
        }
    }

    fn run_script(&self, inside: &mut Inside, from: &str, by_text: bool, args: &[Bytes]) -> Reply {
        let (Some(what), Some(count)) = (args.get(1), args.get(2)) else {
            return Reply::error("ERR wrong number of arguments for 'eval' command");
        };
        let count = std::str::from_utf8(count).ok().and_then(|count| count.parse::<usize>().ok());
        let Some(count) = count.filter(|count| *count + 3 <= args.len()) else {
            return Reply::error("ERR Number of keys can't be greater than number of args");
        };
        let script = if by_text {
            self.load(inside, what)
        } else {
            let known = inside.scripts.get(&*String::from_utf8_lossy(what).to_ascii_lowercase());
            known.cloned().ok_or_else(|| "NOSCRIPT No matching script. Please use EVAL.".to_owned())
        };
        let script = match script {
            Ok(script) => script,
            Err(error) => return Reply::Error(error),
        };
        let (keys, args) = args[3..].split_at(count);
        inside.exec.full = inside.is_full();
        if inside.exec.full && script.has_flags && !script.allow_oom {
            return Reply::error(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            );
        }
        if script.has_flags
            && let Some(why) = &inside.exec.read_only
        {
            return Reply::Error(why.clone());
        }
        let now_us = inside.exec.now_us;
        let call = ScriptCall { from, sha: &script.sha, now_us, text: &script.text, keys, args };
        if let Some(witness) = &self.witness {
            witness.before(&inside.exec.db, &call);
        }
        let reply = script.run(&mut inside.exec, keys, args);
        if let Some(witness) = &self.witness {
            witness.after(&inside.exec.db, &call, &reply);
        }
        reply
    }

    /// Waits for replicas. None: the connection was ended.
    pub(crate) async fn waited_for(&self, client: u64, wait: Wait) -> Option<Reply> {
        sleep((self.lag)()).await;
        self.replicate();
        loop {
            {
                let inside = self.inside.lock();
                if !inside.clients.contains_key(&client) {
                    return None;
                }
                if inside.demoted {
                    return Some(Reply::error(
                        "UNBLOCKED force unblock from blocking operation, instance state changed",
                    ));
                }
                let reached = inside.reached(wait.offset);
                if reached >= wait.least || wait.until.is_some_and(|until| until <= Instant::now()) {
                    return Some(Reply::count(reached));
                }
            }
            sleep(WAIT_LOOKS_EVERY).await;
            self.replicate();
        }
    }
}
