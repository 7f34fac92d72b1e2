//! A real primary with its replica, and the sentinels that watch them.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::certificates::write_certificates;
use super::process::until;
use super::redis::{RedisOptions, RedisServer};

/// Longest wait for the sentinels to know each other and the replica, or to fail over.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the sentinels call the primary.
const MASTER: &str = "main";
/// After this silence a server counts as dead. A busy machine is silent for a second now and then.
const DOWN_AFTER_MS: u32 = 3000;
/// A replica that was silent for this long does not count, where servers refuse writes without one.
const MAX_LAG_S: u32 = 2;
/// A failover that takes longer is begun again.
const FAILOVER_TIMEOUT_MS: u32 = 5000;

/// A real primary with its replica, and the sentinels that watch them. Ends when dropped.
#[derive(Debug)]
pub struct Sentinel {
    /// The first is the primary until a failover.
    pub servers: Vec<RedisServer>,
    /// They decide by majority.
    pub sentinels: Vec<RedisServer>,
    /// The certificates of all, where they speak TLS.
    certificates: Option<TempDir>,
}

impl Sentinel {
    /// Starts a primary, a replica and `sentinels` sentinels, and waits until all know each other.
    pub async fn start(sentinels: usize) -> Self {
        Self::make(None, None, (1, 0), sentinels).await
    }

    /// The same over TLS, with sentinels that ask for this user and password; the servers ask for none.
    pub async fn start_guarded(sentinels: usize, user: &str, password: &str) -> Self {
        let certificates = tempfile::tempdir().expect("a private folder");
        write_certificates(certificates.path());
        Self::make(None, Some((certificates, user, password)), (1, 0), sentinels).await
    }

    /// The same with another program than `redis-server`.
    pub async fn start_on(program: Option<PathBuf>, sentinels: usize) -> Self {
        Self::make(program, None, (1, 0), sentinels).await
    }

    /// The same with `replicas` replicas, where every server refuses writes without `min_replicas` of them.
    pub async fn start_careful(replicas: usize, min_replicas: usize, sentinels: usize) -> Self {
        Self::make(None, None, (replicas, min_replicas), sentinels).await
    }

    async fn make(
        program: Option<PathBuf>,
        guard: Option<(TempDir, &str, &str)>,
        (count, min_replicas): (usize, usize),
        sentinels: usize,
    ) -> Self {
        let certificates = guard.as_ref().map(|(folder, ..)| folder.path().to_owned());
        let append_only = RedisOptions {
            append_only: true,
            tls: certificates.is_some(),
            certificates: certificates.clone(),
            lines: vec![
                "repl-diskless-sync-delay 0".to_owned(),
                format!("min-replicas-to-write {min_replicas}\nmin-replicas-max-lag {MAX_LAG_S}"),
            ],
            program: program.clone(),
            ..RedisOptions::default()
        };
        let primary = RedisServer::start_with(append_only.clone()).await;
        let following = RedisOptions { replica_of: Some(primary.port()), ..append_only };
        let mut replicas = Vec::with_capacity(count);
        for _ in 0..count {
            replicas.push(RedisServer::start_with(following.clone()).await);
        }
        // A sentinel asks for replicas when it starts, and then rarely.
        let follows = || {
            let up = |replica: &RedisServer| replica.cli(&["INFO", "replication"]).contains("master_link_status:up");
            replicas.iter().all(up) && primary.cli(&["INFO", "replication"]).matches("state=online").count() == count
        };
        until(PATIENCE, || "the replica does not follow".to_owned(), follows).await;
        let quorum = sentinels / 2 + 1;
        let mut lines = vec![
            format!("sentinel monitor {MASTER} 127.0.0.1 {} {quorum}", primary.port()),
            format!("sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}"),
            format!("sentinel failover-timeout {MASTER} {FAILOVER_TIMEOUT_MS}"),
        ];
        if let Some((_, user, password)) = &guard {
            // How they greet each other.
            lines.push(format!("sentinel sentinel-user {user}\nsentinel sentinel-pass {password}"));
        }
        let options = RedisOptions {
            sentinel: true,
            tls: certificates.is_some(),
            certificates,
            user: guard.as_ref().map(|(_, user, password)| ((*user).to_owned(), (*password).to_owned())),
            lines,
            program,
            ..RedisOptions::default()
        };
        let mut watching = Vec::with_capacity(sentinels);
        for _ in 0..sentinels {
            watching.push(RedisServer::start_with(options.clone()).await);
        }
        let certificates = guard.map(|(folder, ..)| folder);
        let servers = std::iter::once(primary).chain(replicas).collect();
        let all = Self { servers, sentinels: watching, certificates };
        let known = |sentinel: &RedisServer| {
            let told = sentinel.cli(&["INFO", "sentinel"]);
            told.contains(&format!("slaves={count}")) && told.contains(&format!("sentinels={sentinels}"))
        };
        let state = || "the sentinels do not find each other".to_owned();
        until(PATIENCE, state, || all.sentinels.iter().all(known)).await;
        all
    }

    /// As a store's URL.
    #[must_use]
    pub fn url(&self) -> String {
        let all: Vec<String> = self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        let scheme = if self.certificates.is_some() { "rediss-sentinel" } else { "redis-sentinel" };
        format!("{scheme}://{}/{MASTER}", all.join(","))
    }

    /// Index of the server that the first sentinel calls the primary.
    #[must_use]
    pub fn primary(&self) -> usize {
        let told = self.sentinels[0].cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
        let port = told.lines().nth(1).and_then(|port| port.parse().ok());
        self.servers.iter().position(|server| Some(server.port()) == port).expect("one of our servers")
    }

    /// Has the sentinels make a replica the primary, and waits until it is.
    pub async fn fail_over(&self) {
        let before = self.primary();
        self.sentinels[0].cli(&["SENTINEL", "FAILOVER", MASTER]);
        self.left(before).await;
    }

    /// Waits until another server than `before` is the primary, for itself and for the first sentinel.
    pub async fn left(&self, before: usize) {
        let state = || "no replica is promoted".to_owned();
        until(PATIENCE, state, || self.primary() != before).await;
        self.promoted(self.primary()).await;
    }

    /// Waits until this server is the primary, for itself and for the first sentinel.
    pub async fn promoted(&self, server: usize) {
        let state = || "the replica is not promoted".to_owned();
        let done = || self.primary() == server && self.servers[server].cli(&["ROLE"]).starts_with("master");
        until(PATIENCE, state, done).await;
    }
}
