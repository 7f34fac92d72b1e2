//! A real etcd of one or three members, to be killed, stalled and started again.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::process::{ServerProcess, free_port, read, until};

/// Longest wait for a member to serve.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two beats of a leader; a silent leader is followed by another after ten.
const HEARTBEAT_MS: u32 = 50;

/// Most that a small member keeps: what a test can fill.
const SMALL_BYTES: u32 = 8 << 20;
/// What one argument of a command can be.
const FILL_BYTES: usize = 100 << 10;

#[derive(Debug)]
struct EtcdMember {
    client: u16,
    peer: u16,
    process: ServerProcess,
}

/// A real etcd of one or three members, to be killed, stalled and started again. Ends when dropped.
#[derive(Debug)]
pub struct EtcdServers {
    folder: TempDir,
    members: Vec<EtcdMember>,
    scheme: &'static str,
    /// It keeps [`SMALL_BYTES`].
    is_small: bool,
    /// PEM of the authority that vouches for it, if it speaks TLS.
    pub authority: Option<std::path::PathBuf>,
}

impl EtcdServers {
    /// A cluster of so many members.
    pub async fn start(members: usize) -> Self {
        Self::make(members, false, false).await
    }

    /// One member that can be filled.
    pub async fn start_small() -> Self {
        Self::make(1, false, true).await
    }

    /// Fills a small one, until it takes no more writes.
    pub fn fill(&self) {
        let text = "x".repeat(FILL_BYTES);
        while self.run_etcdctl(&["put", "/filled", &text]).status.success() {}
    }

    /// Makes room again, by the steps of the runbook.
    pub fn make_room(&self) {
        let status = self.etcdctl(&["endpoint", "status", "-w", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("etcdctl prints JSON");
        let revision = status[0]["Status"]["header"]["revision"].to_string();
        for step in [&["compact", revision.as_str()][..], &["defrag"], &["alarm", "disarm"]] {
            let _ = self.etcdctl(step);
        }
    }

    /// One member whose clients speak TLS to `localhost`.
    pub async fn start_tls() -> Self {
        Self::make(1, true, false).await
    }

    async fn make(members: usize, tls: bool, is_small: bool) -> Self {
        let folder = tempfile::tempdir().expect("a private folder");
        let one = |_| EtcdMember { client: free_port(), peer: free_port(), process: ServerProcess::default() };
        let scheme = if tls { "https" } else { "http" };
        let authority = tls.then(|| {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate is made");
            let path = |name: &str| folder.path().join(name);
            std::fs::write(path("cert.pem"), made.cert.pem()).expect("our own folder");
            std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).expect("our own folder");
            path("cert.pem")
        });
        let members = (0..members).map(one).collect();
        let mut servers = Self { folder, members, scheme, is_small, authority };
        servers.start_again().await;
        servers
    }

    fn log(&self, n: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("log-{n}"))
    }

    fn spawn(&mut self, n: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> =
            self.members.iter().enumerate().map(|(n, member)| format!("e{n}={}", url(member.peer))).collect();
        let member = &self.members[n];
        let log = std::fs::File::options().create(true).append(true).open(self.log(n)).expect("our own folder");
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.client);
        let mut command = Command::new("etcd");
        if self.authority.is_some() {
            let path = |name: &str| self.folder.path().join(name);
            command.arg("--cert-file").arg(path("cert.pem")).arg("--key-file").arg(path("key.pem"));
        }
        command
            .arg("--name")
            .arg(format!("e{n}"))
            .arg("--data-dir")
            .arg(self.folder.path().join(format!("data-{n}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &url(member.peer), "--initial-advertise-peer-urls", &url(member.peer)])
            .args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", "new"])
            .args(["--initial-cluster-token", "tests", "--logger", "zap"])
            .args(["--heartbeat-interval", &HEARTBEAT_MS.to_string()])
            .args(["--election-timeout", &(HEARTBEAT_MS * 10).to_string()])
            .stdout(Stdio::null())
            .stderr(log);
        if self.is_small {
            command.args(["--quota-backend-bytes", &SMALL_BYTES.to_string()]);
        }
        self.members[n].process = ServerProcess::start(&mut command);
    }

    /// Starts every member that does not run, and waits until the cluster takes writes.
    pub async fn start_again(&mut self) {
        for n in 0..self.members.len() {
            if !self.members[n].process.runs() {
                self.spawn(n);
            }
        }
        let ports: Vec<u16> = self.members.iter().map(|member| member.client).collect();
        let told = self.log(0);
        let (tls, folder) = (self.authority.clone(), self.folder.path().to_owned());
        let healthy = || match &tls {
            None => {
                ports.iter().all(|port| super::node::answers(([127, 0, 0, 1], *port).into(), "/health", "\"true\""))
            }
            Some(_) => read(&folder.join("log-0")).contains("serving client traffic securely"),
        };
        until(PATIENCE, || format!("etcd does not serve:\n{}", read(&told)), healthy).await;
    }

    /// Kills all members at once; what they hold stays on disk.
    pub fn stop_hard(&mut self) {
        for member in &mut self.members {
            member.process.stop_hard();
        }
    }

    /// Takes away all that the members, which do not run, had on their disks.
    ///
    /// # Panics
    ///
    /// When a member runs.
    pub fn wipe(&mut self) {
        for (n, member) in self.members.iter().enumerate() {
            assert!(!member.process.runs(), "member {n} runs");
            let _ = std::fs::remove_dir_all(self.folder.path().join(format!("data-{n}")));
        }
    }

    /// Kills one member.
    pub fn stop_member(&mut self, n: usize) {
        self.members[n].process.stop_hard();
    }

    /// Stalls all members: connections stay, nothing is answered.
    pub async fn stall(&self) {
        for member in &self.members {
            member.process.stall().await;
        }
    }

    /// Ends the stall.
    pub fn resume(&self) {
        for member in &self.members {
            member.process.resume();
        }
    }

    /// The port of a member.
    #[must_use]
    pub fn port(&self, n: usize) -> u16 {
        self.members[n].client
    }

    /// The addresses of all members.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("{}://localhost:{}", self.scheme, member.client)).collect()
    }

    /// Runs `etcdctl` on the cluster and answers what it printed.
    #[must_use]
    pub fn etcdctl(&self, args: &[&str]) -> String {
        let out = self.run_etcdctl(args);
        assert!(out.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn run_etcdctl(&self, args: &[&str]) -> Output {
        Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.urls().join(",")))
            .args(args)
            .output()
            .expect("etcdctl starts; `./test --tools` installs what the tests need")
    }

    /// Ends every lease there is at once.
    pub fn revoke_all_leases(&self) {
        for lease in self.etcdctl(&["lease", "list"]).lines().skip(1) {
            // One that has ended meanwhile is as good.
            let _ = Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .arg(format!("--endpoints={}", self.urls().join(",")))
                .args(["lease", "revoke", lease.trim()])
                .output();
        }
    }
}
