//! What the listener is made of: bounds that fit the system's, TLS, and whom it lets in.
//!
//! Tokens, host names and certificates are read anew on SIGHUP and when their files change; the
//! audit log's file is opened anew. The rest of the configuration applies at the next start.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use duetime_http::{Audit, Auth, ConnectionBounds, Hosts, HttpOptions, RequestMemory, Tls};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::{self, Config, Overlay};
use crate::manager;

/// File descriptors that are not for clients: the store, sinks, other nodes, logs.
const DESCRIPTORS_KEPT: u64 = 512;

/// How often files are looked at for changes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Lets the process open as many files as it may, and answers how many connections that leaves.
fn bounds(config: &Config) -> ConnectionBounds {
    let wanted = config.node.connections;
    let soft = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < hard => match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            Ok(()) => hard,
            Err(_) => soft,
        },
        Ok((soft, _)) => soft,
        Err(_) => u64::MAX,
    };
    let most = usize::try_from(soft.saturating_sub(DESCRIPTORS_KEPT).max(soft / 2)).unwrap_or(usize::MAX);
    if most < wanted {
        warn!(
            connections = most,
            wanted,
            "the system lets this process open few files; raise LimitNOFILE (ulimit -n) to node.connections + 512"
        );
    }
    let all = wanted.min(most);
    ConnectionBounds { all, per_address: config.node.connections_per_address.min(all) }
}

/// What the section `[node]` says of the listener.
pub fn options(config: &Config) -> anyhow::Result<HttpOptions> {
    let node = &config.node;
    let of = |key: &'static str| move |error: String| anyhow!("node.{key}: {error}");
    Ok(HttpOptions {
        hosts: Hosts::new(&node.hosts).map_err(of("hosts"))?,
        connections: bounds(config),
        memory: RequestMemory::new(node.request_memory),
        audit: Audit::open(node.audit.as_ref()).map_err(of("audit"))?,
        tls: node.tls.as_ref().map(Tls::load).transpose().map_err(of("tls"))?,
        ..HttpOptions::default()
    })
}

/// Reads tokens, host names and certificates anew while the node serves.
#[derive(Debug)]
pub struct Reloader {
    file: Option<PathBuf>,
    overlays: Vec<Overlay>,
    config: Config,
    auth: Auth,
    options: HttpOptions,
    hangup: Signal,
}

/// What a file looked like.
type Print = Option<(SystemTime, u64, u64)>;

fn print(path: &Path) -> Print {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

impl Reloader {
    /// For a node that was started with this.
    pub fn new(
        file: Option<&Path>,
        overlays: Vec<Overlay>,
        config: Config,
        auth: Auth,
        options: HttpOptions,
        hangup: Signal,
    ) -> Self {
        Self { file: file.map(Path::to_owned), overlays, config, auth, options, hangup }
    }

    fn prints(&self) -> Vec<Print> {
        let of_tls = self.config.node.tls.iter().flat_map(duetime_http::TlsFiles::paths);
        self.file.as_deref().into_iter().chain(self.config.auth.paths()).chain(of_tls).map(print).collect()
    }

    /// Runs until the end of the node.
    pub async fn run(&mut self, shutdown: CancellationToken) {
        let mut seen = self.prints();
        loop {
            let told = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                told = self.hangup.recv() => told.is_some(),
                () = tokio::time::sleep(LOOK_EVERY) => false,
            };
            let now = self.prints();
            if told && let Err(error) = self.options.audit.reopen() {
                error!(error, "the file of the audit log could not be opened anew, going on with the old one");
            }
            if !told && now == seen {
                continue;
            }
            if told {
                manager::reloading();
            }
            self.reload(if told { "SIGHUP" } else { "a file changed" });
            if told {
                manager::ready();
            }
            // What changes while it is read is read again.
            seen = now;
        }
    }

    fn reload(&mut self, why: &'static str) {
        let read = config::load(self.file.as_deref(), &self.overlays)
            .map_err(|complaints| complaints.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        match read.and_then(|config| self.apply(config)) {
            Ok(()) => {
                info!(why, "tokens, host names and certificates are read anew; other keys apply at the next start")
            }
            Err(error) => error!(why, error, "the configuration could not be read anew, going on with the old one"),
        }
    }

    fn apply(&mut self, config: Config) -> Result<(), String> {
        // Nothing is taken unless everything can be.
        match (&self.options.tls, &config.node.tls) {
            (Some(tls), Some(files)) => tls.reload(files).map_err(|error| format!("node.tls: {error}"))?,
            (None, None) => {}
            _ => return Err("node.tls: TLS is switched on or off by a restart only".to_owned()),
        }
        self.options.hosts.replace(&config.node.hosts).map_err(|error| format!("node.hosts: {error}"))?;
        self.auth.reload(&config.auth)?;
        self.config = config;
        Ok(())
    }
}

/// Listens for SIGHUP from now on: it never ends the program.
///
/// # Errors
///
/// The system's.
pub fn hangup() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}
