//! A redis-server of the test's own, that can be killed, stalled and started again on its data.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use duetime_testkit::servers::{ServerProcess, SkewedClock, free_port};
use duetime_testkit::wait::{Because, let_pass};
use nix::sys::signal::Signal;

/// How long a server may take to start.
const START_WITHIN: Duration = Duration::from_secs(10);

pub struct Server {
    pub port: u16,
    pub dir: tempfile::TempDir,
    process: ServerProcess,
}

fn spawn(port: u16, dir: &Path, tls: bool, more: &[&str]) -> ServerProcess {
    spawn_with(port, dir, tls, more, Vec::new())
}

fn spawn_with(port: u16, dir: &Path, tls: bool, more: &[&str], env: Vec<(&str, String)>) -> ServerProcess {
    let port = port.to_string();
    let ports = if tls { ["--port", "0", "--tls-port", &port] } else { ["--tls-port", "0", "--port", &port] };
    let mut command = Command::new("redis-server");
    command
        .args(ports)
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", "always", "--dir"])
        .arg(dir)
        .args(more)
        .envs(env)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    ServerProcess::start(&mut command)
}

impl Server {
    /// A server with its data in a folder of its own; every write is on disk before it is answered.
    pub async fn start(more: &[&str]) -> Self {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let server = Self { port, process: spawn(port, dir.path(), false, more), dir };
        server.answering().await;
        server
    }

    /// The same, by a clock that may be wrong.
    pub async fn start_by(clock: &SkewedClock) -> Self {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let server = Self { port, process: spawn_with(port, dir.path(), false, &[], clock.env()), dir };
        server.answering().await;
        server
    }

    /// The same, speaking TLS alone.
    pub async fn start_tls(more: &[&str]) -> Self {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let server = Self { port, process: spawn(port, dir.path(), true, more), dir };
        let listens = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                let_pass(Duration::from_millis(20), Because::AskedAgain).await;
            }
        };
        tokio::time::timeout(START_WITHIN, listens).await.expect("redis-server starts with TLS");
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub async fn connection(&self) -> Option<redis::aio::MultiplexedConnection> {
        let client = redis::Client::open(self.url()).unwrap();
        client.get_multiplexed_async_connection().await.ok()
    }

    /// Runs one command, given as words.
    pub async fn ask(&self, words: &str) -> redis::RedisResult<redis::Value> {
        let mut words = words.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            cmd.arg(word);
        });
        cmd.query_async(&mut self.connection().await.expect("the server is up")).await
    }

    /// One ping.
    pub async fn try_ping(&self) -> redis::RedisResult<redis::Value> {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("PING").query_async(&mut connection).await
    }

    /// Waits until it answers a ping.
    pub async fn answering(&self) {
        let up = async {
            while self.try_ping().await.is_err() {
                let_pass(Duration::from_millis(20), Because::AskedAgain).await;
            }
        };
        tokio::time::timeout(START_WITHIN, up).await.expect("redis-server starts");
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// kill -9.
    pub fn crash(&mut self) {
        self.process.stop_hard();
    }

    /// Starts it again on its data; does not wait until it answers.
    pub fn revive(&mut self, more: &[&str]) {
        self.process = spawn(self.port, self.dir.path(), false, more);
    }
}
