//! A real `nats-server` with JetStream, to be killed and started again.

use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::process::{Process, ServerProcess, free_port, is_its_process, read, until};

/// Longest wait for the server to serve.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the server's log says when it serves.
const SERVES: &str = "Server is ready";

/// A real `nats-server` with JetStream, to be killed and started again. Ends when dropped.
#[derive(Debug)]
pub struct NatsServer {
    lines: String,
    port: u16,
    folder: TempDir,
    process: ServerProcess,
    starts: usize,
}

is_its_process!(NatsServer);

impl NatsServer {
    /// A server whose configuration has these lines too.
    pub async fn start_with(lines: &str) -> Self {
        let folder = tempfile::tempdir().expect("a private folder");
        let mut server =
            Self { lines: lines.to_owned(), port: free_port(), folder, process: ServerProcess::default(), starts: 0 };
        server.start_again().await;
        server
    }

    /// Starts it after its end, on the same port and streams.
    pub async fn start_again(&mut self) {
        assert!(!self.runs(), "it runs");
        let path = |name: &str| self.folder.path().join(name);
        let (log, config) = (path("log"), path("nats.conf"));
        let text = format!(
            "host: 127.0.0.1\nport: {}\nlog_file: {:?}\njetstream {{ store_dir: {:?} }}\n{}\n",
            self.port,
            log,
            path("streams"),
            self.lines
        );
        std::fs::write(&config, text).expect("our own folder");
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::start(&mut command);
        self.starts += 1;
        let starts = self.starts;
        let serves = || process.exited().is_some() || read(&log).matches(SERVES).count() >= starts;
        until(PATIENCE, || format!("nats-server does not serve:\n{}", read(&log)), serves).await;
        assert!(process.exited().is_none(), "nats-server ended:\n{}", read(&log));
        self.process = ServerProcess::of(process);
    }

    /// The port it serves on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}
