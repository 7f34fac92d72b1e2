//! A real Kafka broker, Tansu, to be killed, stalled and started again. It keeps its topics in memory.

use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::process::{Process, ServerProcess, free_port, is_its_process, read, until};
use super::versions::program;

/// Longest wait for the broker to serve.
const PATIENCE: Duration = Duration::from_secs(30);
/// What its output says when it serves.
const SERVES: &str = "ready in";
/// The program.
const PROGRAM: &str = "tansu-0.6";

/// How a broker is started.
#[derive(Clone, Debug, Default)]
pub struct TansuOptions {
    /// Its topics, and so many partitions in each.
    pub topics: Vec<(&'static str, u32)>,
    /// The port it listens on; a free one if none is given.
    pub port: Option<u16>,
    /// The port it sends clients to: that of a proxy before it. Its own if none is given.
    pub advertised: Option<u16>,
}

/// A real Kafka broker, Tansu, to be killed, stalled and started again. Ends when dropped.
#[derive(Debug)]
pub struct TansuServer {
    port: u16,
    options: TansuOptions,
    folder: TempDir,
    process: ServerProcess,
}

is_its_process!(TansuServer);

impl TansuServer {
    /// A broker with these topics and so many partitions in each.
    pub async fn start(topics: &[(&'static str, u32)]) -> Self {
        Self::start_with(TansuOptions { topics: topics.to_vec(), ..TansuOptions::default() }).await
    }

    /// A broker with these options.
    pub async fn start_with(options: TansuOptions) -> Self {
        let folder = tempfile::tempdir().expect("a private folder");
        let port = options.port.unwrap_or_else(free_port);
        let mut server = Self { port, options, folder, process: ServerProcess::default() };
        server.start_again().await;
        server
    }

    /// Starts it after its end, at the same address and with the same topics, which are empty again.
    pub async fn start_again(&mut self) {
        assert!(!self.runs(), "it runs");
        let log = self.folder.path().join("log");
        let output = std::fs::File::create(&log).expect("our own folder");
        let errors = output.try_clone().expect("an open file");
        let own = format!("tcp://127.0.0.1:{}", self.port);
        let mut command = Command::new(program(PROGRAM));
        command.current_dir(self.folder.path()).arg("broker").args(["--listener-url", &own]);
        command.args(["--advertised-listener-url", &format!("tcp://{}", self.address())]);
        command.args(["--storage-engine", "memory://tansu/"]);
        let mut process = Process::start(command.stdout(output).stderr(errors));
        let serves = || process.exited().is_some() || read(&log).contains(SERVES);
        until(PATIENCE, || format!("tansu does not serve:\n{}", read(&log)), serves).await;
        assert!(process.exited().is_none(), "tansu ended:\n{}", read(&log));
        self.process = ServerProcess::of(process);
        for (name, partitions) in &self.options.topics {
            let partitions = partitions.to_string();
            let mut create = Command::new(program(PROGRAM));
            create.args(["topic", "create", "--broker", &own, "--partitions", &partitions, name]);
            let made = create.stdin(Stdio::null()).output().expect("tansu starts");
            assert!(made.status.success(), "{name}: {}", String::from_utf8_lossy(&made.stderr));
        }
    }

    /// Where clients find it, as `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.options.advertised.unwrap_or(self.port))
    }
}
