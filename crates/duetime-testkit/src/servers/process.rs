//! A child process that ends with the test, however the test ends.
//!
//! Dropping it kills it. Where nothing is dropped (the test process is killed), a guard notices that
//! its pipe from the test process closed, and kills the child.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::wait::{Because, let_pass};

/// Below the range from which the system gives ports away, so that a restarted server finds its port free: also the one
/// that a Redis of a cluster has 10,000 above.
const PORTS: std::ops::Range<u16> = 10_000..22_000;
/// Longest wait until a stopped process stands still.
const STALL_MAX: Duration = Duration::from_secs(5);
/// How often a wait looks again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A port nobody listens on, never given twice by this process.
#[must_use]
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    for _ in 0..1000 {
        let port = rand::random_range(PORTS);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && GIVEN.lock().insert(port) {
            return port;
        }
    }
    panic!("no free port among {PORTS:?}");
}

/// A child process that ends with the test, however the test ends.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    guard: Child,
}

impl Process {
    /// Starts it; where the program is missing, says in one line how to get it.
    pub fn start(command: &mut Command) -> Self {
        crate::stall::watch();
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.process_group(0).stdin(Stdio::null()).spawn().unwrap_or_else(|error| {
            panic!("{program} does not start ({error}); `./test --tools` installs what the tests need")
        });
        let guard = Command::new("sh")
            .args(["-c", "cat >/dev/null; kill -9 \"$0\" 2>/dev/null", &child.id().to_string()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match guard {
            Ok(guard) => Self { child, guard },
            Err(error) => {
                let _ = child.kill();
                panic!("sh does not start: {error}");
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("process ids are small"));
        kill(pid, signal).expect("the child is ours and not reaped");
    }

    /// Waits until all of it stands still.
    pub async fn still(&self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        let still = || read(stat.as_ref()).rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'));
        until(STALL_MAX, || "a stopped process goes on".to_owned(), still).await;
    }

    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child is ours")
    }

    /// Waits for its end; `None` when it takes longer.
    pub async fn wait(&mut self, longest: Duration) -> Option<ExitStatus> {
        let until = tokio::time::Instant::now() + longest;
        loop {
            if let Some(status) = self.exited() {
                return Some(status);
            }
            if tokio::time::Instant::now() >= until {
                return None;
            }
            let_pass(LOOK_EVERY, Because::AskedAgain).await;
        }
    }

    /// Kills it and waits until it is gone.
    pub fn end(&mut self) {
        if self.exited().is_none() {
            // A stopped process is killed as well.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard first: afterwards the number may belong to another process.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        self.end();
    }
}

/// The process of a server that a test kills, stalls and starts again; there is none while it is stopped.
#[derive(Debug, Default)]
pub struct ServerProcess(Option<Process>);

impl ServerProcess {
    /// Starts it; where the program is missing, says in one line how to get it.
    pub fn start(command: &mut Command) -> Self {
        Self::of(Process::start(command))
    }

    pub(super) fn of(process: Process) -> Self {
        Self(Some(process))
    }

    pub(super) fn take(&mut self) -> Option<Process> {
        self.0.take()
    }

    fn running(&self) -> &Process {
        self.0.as_ref().expect("it runs")
    }

    /// Whether it was started and not ended by us.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.0.is_some()
    }

    /// Kills it at once, as a power cut would, except that the disk keeps what was handed to it.
    pub fn stop_hard(&mut self) {
        self.0 = None;
    }

    /// Its number, to look at it under `/proc`.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running().child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.running().signal(signal);
    }

    /// Stalls it, as an overloaded machine would: connections stay, nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// The same, and waits until all of it stands still.
    pub async fn stall(&self) {
        self.pause();
        self.still().await;
    }

    /// Waits until it stands still, where it stalls itself.
    pub async fn still(&self) {
        self.running().still().await;
    }

    /// Ends the stall.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }
}

/// What can be done to a server's process can be done to the server.
macro_rules! is_its_process {
    ($server:ty) => {
        impl std::ops::Deref for $server {
            type Target = $crate::servers::ServerProcess;

            fn deref(&self) -> &Self::Target {
                &self.process
            }
        }

        impl std::ops::DerefMut for $server {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.process
            }
        }
    };
}
pub(super) use is_its_process;

/// Waits until `done` says so, or panics with the text of `what`.
pub(super) async fn until(longest: Duration, what: impl Fn() -> String, mut done: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + longest;
    while !done() {
        crate::in_time!(tokio::time::Instant::now() < end, "{}", what());
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
}

/// The whole of a file that a child writes; empty while it is not there.
pub(super) fn read(path: &std::path::Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(path) {
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dropped_child_is_gone() {
        let process = Process::start(Command::new("sleep").arg("600"));
        let pid = Pid::from_raw(process.child.id().cast_signed());
        assert!(kill(pid, None).is_ok());
        drop(process);
        assert!(kill(pid, None).is_err());
    }

    #[tokio::test]
    async fn a_child_whose_test_process_was_killed_is_gone() {
        let mut process = Process::start(Command::new("sleep").arg("600"));
        // All that is left of a killed test process: its end of the pipe closes.
        drop(process.guard.stdin.take());
        assert!(process.wait(Duration::from_secs(30)).await.is_some());
    }

    #[test]
    #[should_panic(expected = "./test --tools")]
    fn a_missing_program_is_reported_in_one_line() {
        Process::start(&mut Command::new("no-such-program-of-ours"));
    }
}
