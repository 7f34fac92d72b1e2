//! A real RabbitMQ broker, to be killed, stalled, alarmed and started again.
//!
//! It and its port mapper are processes of the test's own: nothing is shared with a broker that the
//! machine may run, and nothing is left behind.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::process::{Process, ServerProcess, free_port, is_its_process, read, until};

/// Longest wait for the broker to serve: it starts an Erlang machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// What the broker's log says when it serves.
const SERVES: &str = "Server startup complete";
/// Where Debian keeps the scripts that do not change to another user.
const SCRIPTS: &str = "/usr/lib/rabbitmq/bin";

/// A real RabbitMQ broker, to be killed, stalled, alarmed and started again. Ends when dropped.
#[derive(Debug)]
pub struct RabbitMqServer {
    port: u16,
    dist_port: u16,
    epmd_port: u16,
    folder: TempDir,
    process: ServerProcess,
    // After the broker: fields are dropped in this order.
    _epmd: Process,
    starts: usize,
}

is_its_process!(RabbitMqServer);

impl RabbitMqServer {
    /// A broker whose `rabbitmq.conf` has these lines too.
    pub async fn start_with(lines: &str) -> Self {
        let folder = tempfile::tempdir().expect("a private folder");
        let (port, dist_port, epmd_port) = (free_port(), free_port(), free_port());
        let text =
            format!("listeners.tcp.1 = 127.0.0.1:{port}\nlog.file = broker.log\nloopback_users = none\n{lines}\n");
        std::fs::write(folder.path().join("rabbitmq.conf"), text).expect("our own folder");
        std::fs::write(folder.path().join("enabled_plugins"), "[].\n").expect("our own folder");
        std::fs::create_dir(folder.path().join("home")).expect("our own folder");
        let mut epmd = Command::new("epmd");
        epmd.args(["-port", &epmd_port.to_string(), "-address", "127.0.0.1"]);
        epmd.stdout(Stdio::null()).stderr(Stdio::null());
        let epmd = Process::start(&mut epmd);
        let mut server =
            Self { port, dist_port, epmd_port, folder, process: ServerProcess::default(), _epmd: epmd, starts: 0 };
        server.start_again().await;
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(format!("{SCRIPTS}/{script}"));
        command
            .env("HOME", self.path("home"))
            .env("RABBITMQ_NODENAME", format!("duetime{}@localhost", self.port))
            .env("RABBITMQ_MNESIA_BASE", self.path("mnesia"))
            .env("RABBITMQ_LOG_BASE", self.path("log"))
            .env("RABBITMQ_CONFIG_FILE", self.path("rabbitmq"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", self.path("enabled_plugins"))
            .env("RABBITMQ_DIST_PORT", self.dist_port.to_string())
            .env("RABBITMQ_PID_FILE", self.path("pid"))
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            // A test that ends while the server starts would leave it in the folder it was started from.
            .env("ERL_CRASH_DUMP_SECONDS", "0")
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}")
            // The script becomes the broker instead of waiting for it, so that a kill meets the broker.
            .env("RUNNING_UNDER_SYSTEMD", "1");
        command
    }

    /// Starts it after its end, on the same port and queues.
    pub async fn start_again(&mut self) {
        assert!(!self.runs(), "it runs");
        let mut command = self.command("rabbitmq-server");
        let output = std::fs::File::options().create(true).append(true).open(self.path("output"));
        let output = output.expect("our own folder");
        command.stdout(output.try_clone().expect("a file can be shared")).stderr(output);
        let mut process = Process::start(&mut command);
        self.starts += 1;
        let (log, output, starts) = (self.path("log/broker.log"), self.path("output"), self.starts);
        let serves = || process.exited().is_some() || read(&log).matches(SERVES).count() >= starts;
        let what = || format!("rabbitmq-server does not serve:\n{}\n{}", read(&output), read(&log));
        until(PATIENCE, what, serves).await;
        assert!(process.exited().is_none(), "{}", what());
        self.process = ServerProcess::of(process);
    }

    /// Asks it with `rabbitmqctl`, which takes a second or two.
    pub fn control(&self, args: &[&str]) -> String {
        let output = self.command("rabbitmqctl").args(args).stdin(Stdio::null()).output().expect("it is installed");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "rabbitmqctl {args:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// The port it serves on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address, with this user and password.
    #[must_use]
    pub fn url(&self, user: &str, password: &str) -> String {
        format!("amqp://{user}:{password}@127.0.0.1:{}", self.port)
    }
}
