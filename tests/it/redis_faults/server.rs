//! A redis-server of the test's own, that can be killed, stalled and started again on its data.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use duetime_testkit::servers::SkewedClock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a server may take to start.
const START_WITHIN: Duration = Duration::from_secs(10);

pub struct Server {
    pub port: u16,
    pub dir: tempfile::TempDir,
    child: Child,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(port: u16, dir: &Path, tls: bool, more: &[&str]) -> Child {
    spawn_with(port, dir, tls, more, Vec::new())
}

fn spawn_with(port: u16, dir: &Path, tls: bool, more: &[&str], env: Vec<(&str, String)>) -> Child {
    let port = port.to_string();
    let ports = if tls { ["--port", "0", "--tls-port", &port] } else { ["--tls-port", "0", "--port", &port] };
    Command::new("redis-server")
        .args(ports)
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", "always", "--dir"])
        .arg(dir)
        .args(more)
        .envs(env)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed; on Debian: apt-get install redis-server")
}

impl Server {
    /// A server with its data in a folder of its own; every write is on disk before it is answered.
    pub async fn start(more: &[&str]) -> Self {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let server = Self { port, child: spawn(port, dir.path(), false, more), dir };
        server.answering().await;
        server
    }

    /// The same, by a clock that may be wrong.
    pub async fn start_by(clock: &SkewedClock) -> Self {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let server = Self { port, child: spawn_with(port, dir.path(), false, &[], clock.env()), dir };
        server.answering().await;
        server
    }

    /// The same, speaking TLS alone.
    pub async fn start_tls(more: &[&str]) -> Self {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let server = Self { port, child: spawn(port, dir.path(), true, more), dir };
        let listens = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
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
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(START_WITHIN, up).await.expect("redis-server starts");
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// kill -9.
    pub fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on its data; does not wait until it answers.
    pub fn revive(&mut self, more: &[&str]) {
        self.child = spawn(self.port, self.dir.path(), false, more);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
