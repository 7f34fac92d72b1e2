//! The real program as a node: started, asked for readiness, terminated or killed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::network::NetworkSpace;
use super::process::{Process, ServerProcess, free_port, is_its_process, read, until};
use crate::violation::timed_out;

/// Longest wait for the node to be ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for a line of its log.
const SAID_MAX: Duration = Duration::from_secs(60);
/// Longest wait for one answer to "are you ready".
const ASK_MAX: Duration = Duration::from_secs(1);

/// Names another program than the one that the tests build: a release, for runs whose figures are kept.
const PROGRAM_VARIABLE: &str = "DUETIME_TEST_PROGRAM";

/// Where and how a node runs.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// Variables of its environment.
    pub env: Vec<(&'static str, String)>,
    /// Flags of `serve` besides those of each node.
    pub flags: Vec<&'static str>,
    /// It runs inside, and listens on the address there: its configuration needs a token.
    pub space: Option<Arc<NetworkSpace>>,
}

/// The real program as a node: started, asked for readiness, terminated or killed. Ends when dropped.
#[derive(Debug)]
pub struct Node {
    program: PathBuf,
    store: String,
    port: u16,
    options: NodeOptions,
    folder: TempDir,
    process: ServerProcess,
}

is_its_process!(Node);

impl Node {
    /// Starts `program serve` on the store with this configuration file, and waits until it is ready.
    ///
    /// The program is the tests' own: `env!("CARGO_BIN_EXE_duetime-under-test")`.
    pub async fn start(program: impl AsRef<Path>, store: &str, config: &str) -> Self {
        Self::start_as(program, store, config, NodeOptions::default()).await
    }

    /// The same with these variables.
    pub async fn start_with(
        program: impl AsRef<Path>,
        store: &str,
        config: &str,
        env: Vec<(&'static str, String)>,
    ) -> Self {
        Self::start_as(program, store, config, NodeOptions { env, ..NodeOptions::default() }).await
    }

    /// The same, where and how it is asked.
    pub async fn start_as(program: impl AsRef<Path>, store: &str, config: &str, options: NodeOptions) -> Self {
        let folder = tempfile::tempdir().expect("a private folder");
        std::fs::write(folder.path().join("duetime.toml"), config).expect("our own folder");
        let program = std::env::var_os(PROGRAM_VARIABLE).map_or_else(|| program.as_ref().to_owned(), PathBuf::from);
        let mut node = Self {
            program,
            store: store.to_owned(),
            port: free_port(),
            options,
            folder,
            process: ServerProcess::default(),
        };
        node.start_again().await;
        node
    }

    /// The same on an embedded store in the node's own folder.
    pub async fn start_embedded(program: impl AsRef<Path>, config: &str) -> Self {
        Self::start(program, "embedded:data", config).await
    }

    /// Starts it after its end, on the same address and store.
    pub async fn start_again(&mut self) {
        assert!(!self.runs(), "it runs");
        let output = std::fs::File::options().create(true).append(true).open(self.path("output"));
        let output = output.expect("our own folder");
        let mut command = match &self.options.space {
            None => Command::new(&self.program),
            Some(space) => {
                let [first, rest @ ..] = space.prefix();
                let mut command = Command::new(first);
                command.args(rest).arg(&self.program);
                command
            }
        };
        let address = self.address();
        command
            .current_dir(self.folder.path())
            .args(["serve", "--config", "duetime.toml", "--store", &self.store])
            .args(["--listen", &address.to_string()])
            .args(&self.options.flags)
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output);
        let steers = |name: &String| name.starts_with("DUETIME_") || name.starts_with("OTEL_");
        for name in std::env::vars().map(|(name, _)| name).filter(steers) {
            command.env_remove(name);
        }
        command.envs(self.options.env.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start(&mut command);
        let told = self.path("output");
        let ready = || process.exited().is_some() || is_ready(address);
        until(PATIENCE, || format!("the node is not ready:\n{}", read(&told)), ready).await;
        assert!(process.exited().is_none(), "the node ended:\n{}", read(&told));
        self.process = ServerProcess::of(process);
    }

    /// From its next start on it is another program.
    pub fn set_program(&mut self, program: impl AsRef<Path>) {
        self.program = program.as_ref().to_owned();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn address(&self) -> SocketAddr {
        let host = self.options.space.as_ref().map_or(Ipv4Addr::LOCALHOST, |space| space.inside());
        SocketAddr::from((host, self.port))
    }

    /// Where it listens: `http://127.0.0.1:PORT`, or the address inside.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// All it printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        read(&self.path("output"))
    }

    /// Waits until it printed this text so many times, and gives all it printed: a node answers first, and prints then.
    ///
    /// # Panics
    ///
    /// When it does not within a minute.
    pub async fn until_said(&self, text: &str, times: usize) -> String {
        let said = || self.output().matches(text).count() >= times;
        until(SAID_MAX, || format!("{text:?} is not said {times} times:\n{}", self.output()), said).await;
        self.output()
    }

    /// Its private folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes another configuration file, for the next start.
    pub fn configure(&self, config: &str) {
        std::fs::write(self.path("duetime.toml"), config).expect("our own folder");
    }

    /// Asks it to end, and waits for its exit status.
    pub async fn sigterm(&mut self, longest: Duration) -> ExitStatus {
        let mut process = self.process.take().expect("it runs");
        process.signal(Signal::SIGTERM);
        let ended = process.wait(longest).await;
        ended.unwrap_or_else(|| timed_out(format!("the node does not end:\n{}", self.output())))
    }

    /// Asks it to read its configuration anew.
    pub fn sighup(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Kills it at once: nothing is settled, released or said.
    pub fn kill(&mut self) {
        self.stop_hard();
    }
}

fn is_ready(address: SocketAddr) -> bool {
    answers(address, "/readyz", "HTTP/1.1 200")
}

/// Whether a GET of `path` is answered with `text` in it.
pub(super) fn answers(address: SocketAddr, path: &str, text: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&address, ASK_MAX)?;
        socket.set_read_timeout(Some(ASK_MAX))?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(text))
}
