//! A real `redis-server`, to be restarted, killed, stalled and asked with `redis-cli`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::certificates::write_certificates;
use super::process::{ServerProcess, free_port, is_its_process, read, until};

/// Longest wait for the server to serve or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the server's log says when it serves.
const SERVES: &str = "Ready to accept connections";
/// What a sentinel's log says when it watches.
const WATCHES: &str = "+monitor master";
/// Names another server program than `redis-server`, to run the tests on another version.
const PROGRAM_VARIABLE: &str = "DUETIME_TEST_REDIS_SERVER";

/// How the server is set up.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Keep an append-only file with fsync at every write, so that a kill loses nothing.
    pub append_only: bool,
    /// `maxmemory`, as `"20mb"`.
    pub max_memory: Option<String>,
    /// `maxmemory-policy`; Redis' own default is `noeviction`.
    pub policy: Option<String>,
    /// Serve over TLS alone, with a certificate of an authority of the test's own.
    pub tls: bool,
    /// Folder that [`write_certificates`] wrote to, for several servers of one authority; else its own.
    pub certificates: Option<PathBuf>,
    /// Name and password of the only user, who may do everything.
    pub user: Option<(String, String)>,
    /// Port of the server to replicate.
    pub replica_of: Option<u16>,
    /// It is no server but a sentinel; `lines` say what it watches.
    pub sentinel: bool,
    /// Another program than `redis-server`; see [`ServerVersion`](super::ServerVersion).
    pub program: Option<PathBuf>,
    /// Variables of its environment.
    pub env: Vec<(&'static str, String)>,
    /// More lines of `redis.conf`.
    pub lines: Vec<String>,
}

/// A real `redis-server`, to be restarted, killed, stalled and asked with `redis-cli`. Ends when dropped.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    port: u16,
    folder: TempDir,
    process: ServerProcess,
    starts: usize,
}

is_its_process!(RedisServer);

impl RedisServer {
    /// A plain server that keeps nothing on disk.
    pub async fn start() -> Self {
        Self::start_with(RedisOptions::default()).await
    }

    /// A server set up as asked.
    pub async fn start_with(options: RedisOptions) -> Self {
        let folder = tempfile::tempdir().expect("a private folder");
        let mut server = Self { options, port: free_port(), folder, process: ServerProcess::default(), starts: 0 };
        if server.options.tls && server.options.certificates.is_none() {
            write_certificates(server.folder.path());
        }
        server.write_config();
        server.start_again().await;
        server
    }

    fn write_config(&self) {
        let folder = self.folder.path().display();
        let mut lines = vec!["bind 127.0.0.1".to_owned(), format!("dir {folder}"), format!("logfile {folder}/log")];
        if !self.options.sentinel {
            lines.push("save \"\"".to_owned());
        }
        let port = self.port;
        if self.options.tls {
            lines.push(format!("port 0\ntls-port {port}\ntls-auth-clients no"));
            let own = self.certificates().display();
            lines.push(format!("tls-cert-file {own}/server.pem\ntls-key-file {own}/server.key"));
            lines.push(format!("tls-ca-cert-file {own}/ca.pem\ntls-replication yes"));
        } else {
            lines.push(format!("port {port}"));
        }
        if self.options.append_only {
            lines.push("appendonly yes\nappendfsync always".to_owned());
        }
        if let Some(bound) = &self.options.max_memory {
            lines.push(format!("maxmemory {bound}"));
        }
        if let Some(policy) = &self.options.policy {
            lines.push(format!("maxmemory-policy {policy}"));
        }
        if let Some((name, password)) = &self.options.user {
            lines.push(format!("user default off\nuser {name} on >{password} ~* &* +@all"));
        }
        if let Some(primary) = self.options.replica_of {
            lines.push(format!("replicaof 127.0.0.1 {primary}"));
        }
        lines.extend(self.options.lines.iter().cloned());
        std::fs::write(self.path("redis.conf"), lines.join("\n") + "\n").expect("our own folder");
    }

    fn certificates(&self) -> &Path {
        self.options.certificates.as_deref().unwrap_or(self.folder.path())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// From its next start on, other lines of `redis.conf` than [`RedisOptions::lines`].
    pub fn configure(&mut self, lines: &[&str]) {
        self.options.lines = lines.iter().map(|line| (*line).to_owned()).collect();
        self.write_config();
    }

    /// Starts it after [`RedisServer::stop`] or [`RedisServer::stop_hard`], on the same port and data.
    pub async fn start_again(&mut self) {
        self.launch();
        self.serves().await;
    }

    /// The same, and does not wait until it serves.
    ///
    /// # Panics
    ///
    /// When it runs.
    pub fn launch(&mut self) {
        assert!(!self.runs(), "it runs");
        let asked = self.options.program.clone().map(PathBuf::into_os_string);
        let program = asked.or_else(|| std::env::var_os(PROGRAM_VARIABLE)).unwrap_or_else(|| "redis-server".into());
        let mut command = Command::new(program);
        command
            .arg(self.path("redis.conf"))
            .args(self.options.sentinel.then_some("--sentinel"))
            .envs(self.options.env.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.process = ServerProcess::start(&mut command);
        self.starts += 1;
    }

    /// Waits until it serves.
    pub async fn serves(&mut self) {
        let (log, starts) = (self.path("log"), self.starts);
        let mut process = self.process.take().expect("it was started");
        let sign = if self.options.sentinel { WATCHES } else { SERVES };
        let serves = || process.exited().is_some() || read(&log).matches(sign).count() >= starts;
        until(PATIENCE, || format!("redis-server does not serve:\n{}", read(&log)), serves).await;
        assert!(process.exited().is_none(), "redis-server ended:\n{}", read(&log));
        self.process = ServerProcess::of(process);
    }

    /// Stops it in good order.
    pub async fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::SIGTERM);
            process.wait(PATIENCE).await;
        }
    }

    /// Stops it in good order and starts it again.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    /// The port it serves on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As a store's URL, with the user if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same on another port, for a proxy before it.
    #[must_use]
    pub fn url_at(&self, port: u16) -> String {
        let user = self.options.user.as_ref().map_or_else(String::new, |(name, word)| format!("{name}:{word}@"));
        if self.options.tls {
            format!("rediss://{user}localhost:{port}")
        } else {
            format!("redis://{user}127.0.0.1:{port}")
        }
    }

    /// The authority that signed its certificate.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificates().join("ca.pem")
    }

    /// Where its data and log lie.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it logged.
    #[must_use]
    pub fn log(&self) -> String {
        read(&self.path("log"))
    }

    /// Asks it with `redis-cli`; answers what that printed, without the last line end.
    pub fn cli(&self, args: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if self.options.tls {
            command.arg("--tls").arg("--cacert").arg(self.ca_file());
        }
        if let Some((name, password)) = &self.options.user {
            command.args(["--user", name, "--pass", password, "--no-auth-warning"]);
        }
        let output = command.args(args).stdin(Stdio::null()).output().unwrap_or_else(|error| {
            panic!("redis-cli does not start ({error}); `./test --tools` installs what the tests need")
        });
        assert!(output.status.success(), "redis-cli {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_keeps_its_port_and_its_data_over_a_kill() {
        let options = RedisOptions { append_only: true, ..RedisOptions::default() };
        let mut server = RedisServer::start_with(options).await;
        assert_eq!(server.cli(&["SET", "a", "1"]), "OK");
        server.stop_hard();
        server.start_again().await;
        assert_eq!(server.cli(&["GET", "a"]), "1");
        server.restart().await;
        assert_eq!(server.cli(&["GET", "a"]), "1");
    }

    #[tokio::test]
    async fn a_server_speaks_tls_to_its_one_user() {
        let user = Some(("courier".to_owned(), "secret".to_owned()));
        let server = RedisServer::start_with(RedisOptions { tls: true, user, ..RedisOptions::default() }).await;
        assert_eq!(server.cli(&["ACL", "WHOAMI"]), "courier");
        assert!(server.url().starts_with("rediss://courier:secret@localhost:"));
    }

    #[tokio::test]
    async fn a_replica_follows_its_primary() {
        let primary = RedisServer::start().await;
        let options = RedisOptions { replica_of: Some(primary.port()), ..RedisOptions::default() };
        let replica = RedisServer::start_with(options).await;
        assert!(replica.cli(&["INFO", "replication"]).contains("role:slave"));
    }
}
