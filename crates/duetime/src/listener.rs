//! What the listener is made of: bounds that fit the system's, TLS, and whom it lets in.
//!
//! Tokens, host names and certificates, those of the listener and those of this node as a client, are reloaded on SIGHUP
//! and when their files change; the audit log's file is reopened. The rest of the configuration applies at the next start.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use duetime_core::Clock as _;
use duetime_http::{
    Audit, Auth, ConnectionBounds, Hosts, HttpOptions, Peers, Shares, Tls, TlsFiles, certificate_ends, check_client,
};
use duetime_metrics::Meters;
use duetime_settings::ClientTls;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::close;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::clock::SystemClock;
use crate::config::{self, Config, ConfigLines, Overlay, OwnershipMode, ReadConfig, StoreConfig};
use crate::{manager, panics};

/// File descriptors that are not for clients: the store, sinks, other nodes, logs.
const DESCRIPTORS_KEPT: u64 = 512;

/// Connections that wait to be accepted. The system bounds it by `net.core.somaxconn`, 4,096 by default.
///
/// What finds the queue full is tried again by its client, a second later at the earliest: clients that open connections as
/// fast as they can need some hundredths of a second to fill this one. A longer one would have everybody wait behind
/// more of them where the node gets too little processor time.
const ACCEPT_QUEUE: u32 = 1024;

/// How often files are checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Pause before what could not be used is read again though no file changed: a certificate may not be valid yet.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Files on a disk or in a network that take longer are reported.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

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
    if let Err(error) = reserve_descriptors(all, soft) {
        debug!(%error, "the table of open files grows when it is needed");
    }
    ConnectionBounds { all, per_address: config.node.connections_per_address.min(all) }
}

/// Lets the system make room for the descriptors of so many connections at once, and for our own.
///
/// The table of a process's open files doubles whenever it is full, and for a process of several threads Linux waits then
/// until every processor has let go of the old one: `accept` stalled for up to 100 ms, ten times until all connections
/// were open, and meanwhile the queue of those to be accepted ran over. It never shrinks, so a high number that is taken
/// and given back does it.
fn reserve_descriptors(connections: usize, limit: u64) -> nix::Result<()> {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(DESCRIPTORS_KEPT);
    let highest = i32::try_from(wanted.min(limit).saturating_sub(1)).unwrap_or(i32::MAX);
    // The lowest that is free from there on: none that is in use is closed by it.
    let taken = fcntl(std::io::stderr(), FcntlArg::F_DUPFD_CLOEXEC(highest))?;
    close(taken)
}

/// Listens on `address`, with a queue of [`ACCEPT_QUEUE`].
///
/// # Errors
///
/// The system's, of the last address that the name has.
pub async fn listen(address: &str) -> std::io::Result<TcpListener> {
    let mut last = None;
    for address in tokio::net::lookup_host(address).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidInput, "the name has no address")))
}

fn listen_on(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of the process before us may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE)
}

/// What is said of a configuration by which a token that is for some topics hides nothing.
pub const STRANGERS_SEE_MORE: &str = "who shows no token reads the series of every topic at /metrics, more than a token \
                                      that is for some topics; leave it out, and give Prometheus a token with the scope view";

/// What the section `[node]` says of the listener.
pub fn options(config: &Config, lines: &ConfigLines) -> anyhow::Result<HttpOptions> {
    let node = &config.node;
    let of = |key: &'static str| move |error: String| anyhow!(lines.complaint(&["node", key], error));
    // It starts all the same: what is due is delivered without clients.
    if let Some((_, fault)) = node.tls.as_ref().and_then(TlsFiles::expired) {
        warn!(fault, "clients will refuse this node");
    }
    if config.auth.shows_strangers_more() {
        warn!(key = "auth.metrics", "{STRANGERS_SEE_MORE}");
    }
    Ok(HttpOptions {
        hosts: Hosts::new(&node.hosts).map_err(of("hosts"))?,
        connections: bounds(config),
        shares: Shares::new(node.request_memory),
        audit: Audit::open(node.audit.as_ref()).map_err(of("audit"))?,
        tls: node
            .tls
            .as_ref()
            .map(Tls::load)
            .transpose()
            .map_err(|(key, fault)| anyhow!(lines.complaint_at(&["node", "tls"], Some(key), fault)))?,
        peers: Peers::new(&node.peer_tls).map_err(of("peer_tls"))?,
        topics: Arc::new(config.topics.clone()),
        first_messages: Arc::new(config.first_messages()),
        ..HttpOptions::default()
    })
}

/// What this node trusts and shows as a client of the store, of etcd and of other nodes, by the keys.
fn client_tls(config: &Config) -> impl Iterator<Item = ([&'static str; 2], &ClientTls)> {
    let store = match &config.store {
        StoreConfig::Redis(redis) => Some((["store", "tls"], &redis.tls)),
        StoreConfig::Embedded(_) => None,
    };
    let etcd = (config.ownership.mode == OwnershipMode::Etcd)
        .then_some((["ownership", "etcd_tls"], &config.ownership.etcd.tls));
    store.into_iter().chain(etcd).chain([(["node", "peer_tls"], &config.node.peer_tls)])
}

/// The certificates that this node shows to others as a client, by their keys.
pub fn client_certificates(config: &Config) -> Vec<([&'static str; 3], &Path)> {
    let files = client_tls(config).filter_map(|(path, tls)| Some((path, tls.cert_file.as_ref()?.path())));
    files.map(|([section, key], file)| ([section, key, "cert_file"], file)).collect()
}

/// Reloads tokens, host names and certificates while the node serves.
#[derive(Debug)]
pub struct Reloader {
    files: Arc<Mutex<Files>>,
    hangup: Signal,
}

/// What is reloaded, and where it is.
#[derive(Debug)]
struct Files {
    file: Option<PathBuf>,
    overlays: Vec<Overlay>,
    config: Config,
    /// What this node uses as a client, by key. The paths are those of the start; what the files hold is read again.
    clients: Vec<(String, ClientTls)>,
    auth: Auth,
    options: HttpOptions,
    meters: Arc<Meters>,
    /// What they looked like when they were read last.
    seen: Vec<Print>,
    /// What was read last could not be used: it is read again then, for a certificate may be valid later.
    again_at: Option<Instant>,
}

/// What a file looked like.
type Print = Option<(SystemTime, u64, u64, (i64, i64))>;

fn print(path: &Path) -> Print {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    // Who may read it is no part of when it was written.
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino(), changed))
}

/// Does `work` on a thread that nobody has to wait for: not the runtime, and not the end of the program.
fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (to, done) = oneshot::channel();
    let started = std::thread::Builder::new().name("duetime-reload".to_owned()).spawn(move || {
        let _ = to.send(work());
    });
    if let Err(error) = started {
        error!(%error, "no thread could be started to look at the files of the configuration");
    }
    done
}

impl Reloader {
    /// For a node that was started with this.
    pub fn new(
        file: Option<&Path>,
        overlays: Vec<Overlay>,
        config: Config,
        auth: Auth,
        options: HttpOptions,
        meters: Arc<Meters>,
        hangup: Signal,
    ) -> Self {
        let file = file.map(Path::to_owned);
        let with_files = client_tls(&config).filter(|(_, tls)| tls.paths().next().is_some());
        let clients = with_files.map(|(path, tls)| (path.join("."), tls.clone())).collect();
        let mut files =
            Files { file, overlays, config, clients, auth, options, meters, seen: Vec::new(), again_at: None };
        files.show_certificate();
        files.clients.iter().for_each(|(key, tls)| files.show_certificate_of(key, tls));
        files.seen = files.prints();
        Self { files: Arc::new(Mutex::new(files)), hangup }
    }

    /// Runs until the end of the node.
    pub async fn run(&mut self, shutdown: CancellationToken) {
        loop {
            let is_asked = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                is_asked = self.hangup.recv() => is_asked.is_some(),
                () = tokio::time::sleep(LOOK_EVERY) => false,
            };
            if is_asked {
                manager::reloading();
            }
            let files = self.files.clone();
            let mut done = on_a_thread(move || files.lock().look(is_asked));
            let mut reloads = is_asked;
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    _ = &mut done => break,
                    () = tokio::time::sleep(ANSWERS_WITHIN) => {
                        error!("the files of the configuration do not answer, going on with what was read before");
                        if std::mem::take(&mut reloads) {
                            manager::ready();
                        }
                    }
                }
            }
            if reloads {
                manager::ready();
            }
        }
    }
}

impl Files {
    fn prints(&self) -> Vec<Print> {
        let of_tls = self.config.node.tls.iter().flat_map(TlsFiles::paths);
        let of_clients = self.clients.iter().flat_map(|(_, tls)| tls.paths());
        let of_config = self.file.as_deref().into_iter().chain(self.config.auth.paths());
        of_config.chain(of_tls).chain(of_clients).map(print).collect()
    }

    /// Reads them if one has changed, or if it `is_asked` to.
    fn look(&mut self, is_asked: bool) {
        let now = self.prints();
        if is_asked && let Err(error) = self.options.audit.reopen() {
            error!(error, "the file of the audit log could not be opened anew, going on with the old one");
        }
        let is_time = self.again_at.is_some_and(|at| Instant::now() >= at);
        if is_asked || is_time || now != self.seen {
            let is_taken = self.reload(match (is_asked, is_time) {
                (true, _) => "SIGHUP",
                (false, true) => "what was refused is tried again",
                (false, false) => "a file changed",
            });
            self.again_at = (!is_taken).then(|| Instant::now() + AGAIN_AFTER);
            // What changes while it is read is read again.
            self.seen = now;
        }
    }

    /// False if something of it could not be used.
    fn reload(&mut self, why: &'static str) -> bool {
        let read = config::load(self.file.as_deref(), &self.overlays)
            .map_err(|complaints| complaints.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        let taken = read.and_then(|loaded| self.apply(loaded, why));
        match &taken {
            Ok(()) => {
                info!(why, "tokens, host names and own certificates are read anew; other keys apply at the next start")
            }
            Err(error) => error!(why, error, "the configuration could not be read anew, going on with the old one"),
        }
        // Wrong certificates for one target do not stop the others from being renewed.
        let refused = self.clients.iter().filter(|(key, tls)| !self.renew(key, tls, why)).count();
        let is_taken = taken.is_ok() && refused == 0;
        self.meters.config_reloaded(is_taken);
        is_taken
    }

    /// Has connections to this target made with what its files hold now. False if they cannot be used.
    fn renew(&self, key: &str, tls: &ClientTls, why: &str) -> bool {
        let renewed = tls.renew(check_client);
        match &renewed {
            Ok(()) => self.show_certificate_of(key, tls),
            Err(error) => error!(why, key, error, "certificates could not be read anew, going on with the old ones"),
        }
        renewed.is_ok()
    }

    fn apply(&mut self, ReadConfig { config, lines }: ReadConfig, why: &str) -> Result<(), String> {
        let of = |key: &'static str, error: &str| lines.complaint(&["node", key], error).to_string();
        // Nothing is taken unless everything can be.
        if !self.auth.is_open() && config.auth.tokens.is_empty() {
            // A file that is being written is empty for a moment.
            return Err(
                "auth.tokens: there is none any more; a node that asks for tokens is opened to everybody by a \
                        restart only"
                    .to_owned(),
            );
        }
        match (&self.options.tls, &config.node.tls) {
            (Some(tls), Some(files)) => tls
                .reload(files)
                .map_err(|(key, fault)| lines.complaint_at(&["node", "tls"], Some(key), fault).to_string())?,
            (None, None) => {}
            _ => return Err(of("tls", "TLS is switched on or off by a restart only")),
        }
        self.options.hosts.replace(&config.node.hosts).map_err(|error| of("hosts", &error))?;
        panics::hide(config.secrets());
        let changes = self.auth.reload(&config.auth)?;
        if let Some(changes) = changes {
            self.options.audit.tokens_changed(SystemClock.now(), why, changes);
        }
        self.config = config;
        self.show_certificate();
        Ok(())
    }

    /// Shows when the certificate ends that is in use from now on.
    fn show_certificate(&self) {
        if let Some(ends) = self.config.node.tls.as_ref().and_then(TlsFiles::ends) {
            self.meters.certificate_ends("node.tls.cert", ends);
        }
    }

    fn show_certificate_of(&self, key: &str, tls: &ClientTls) {
        if let Some(ends) = tls.cert_file.as_ref().and_then(|file| certificate_ends(file.path())) {
            self.meters.certificate_ends(&format!("{key}.cert_file"), ends);
        }
    }
}

/// Listens for SIGHUP from now on: it never ends the program.
pub fn hangup() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}
