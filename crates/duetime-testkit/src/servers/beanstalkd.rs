//! A real beanstalkd.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::{Process, free_port, until};

/// Longest wait for the server to serve.
const PATIENCE: Duration = Duration::from_secs(20);

/// A real beanstalkd, which keeps its jobs in memory. Ends when dropped.
#[derive(Debug)]
pub struct BeanstalkdServer {
    port: u16,
    _process: Process,
}

impl BeanstalkdServer {
    /// One without jobs.
    pub async fn start() -> Self {
        let port = free_port();
        let mut command = Command::new("beanstalkd");
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::start(&mut command);
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        let serves = || process.exited().is_some() || answers();
        until(PATIENCE, || "beanstalkd does not serve".to_owned(), serves).await;
        assert!(process.exited().is_none(), "beanstalkd ended");
        Self { port, _process: process }
    }

    /// The port it serves on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("beanstalkd://127.0.0.1:{}", self.port)
    }
}
