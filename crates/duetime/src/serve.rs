//! `duetime serve`: reads the configuration, listens, has the node started, and waits for its end.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use duetime_http::Auth;
use duetime_resize::Steps;
use duetime_supervisor::Policy;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use toml::Value;

use crate::commands::output;
use crate::config::{self, Overlay, OwnershipMode, ReadConfig};
use crate::drain;
use crate::listener::{self, Reloader};
use crate::logs::{self, LogFormat};
use crate::node::{self, Listeners};
use crate::{manager, panics};

/// Flags of `duetime serve`; each has a variable and a key in the file.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// The configuration file; see duetime.example.toml.
    #[arg(long, value_name = "FILE", env = "DUETIME_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where messages are kept: embedded:PATH, redis://HOST:PORT/DB, redis-cluster://HOST:PORT,… or
    /// redis-sentinel://HOST:PORT,…/MASTER; over TLS rediss for redis [default: embedded:./duetime-data]
    #[arg(long, value_name = "URL", env = "DUETIME_STORE", hide_env_values = true)]
    pub store: Option<String>,
    /// What all keys in Redis begin with. [default: duetime]
    #[arg(long, value_name = "NAME", env = "DUETIME_NAMESPACE")]
    pub namespace: Option<String>,
    /// Where to listen. [default: 127.0.0.1:3830]
    #[arg(long, value_name = "ADDR", env = "DUETIME_LISTEN")]
    pub listen: Option<String>,
    /// Who shares the shards. [default: solo]
    #[arg(long, value_enum, value_name = "MODE", env = "DUETIME_OWNERSHIP")]
    pub ownership: Option<OwnershipMode>,
    /// Addresses of etcd.
    #[arg(long, value_name = "URL", env = "DUETIME_ETCD", hide_env_values = true, value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// This node's name. [default: the machine's]
    #[arg(long, value_name = "NAME", env = "DUETIME_NODE_ID")]
    pub node_id: Option<String>,
    /// How long a stop may take. [default: 10s]
    #[arg(long, value_name = "DURATION", env = "DUETIME_SHUTDOWN_GRACE")]
    pub shutdown_grace: Option<String>,
    /// How log lines look. [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", env = "DUETIME_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

impl ServeArgs {
    fn overlays(&self) -> Vec<Overlay> {
        fn word<T: clap::ValueEnum>(value: T) -> String {
            value.to_possible_value().expect("no value is hidden").get_name().to_owned()
        }
        let given = [
            ("--store", ("store", "url"), self.store.clone()),
            ("--namespace", ("store", "namespace"), self.namespace.clone()),
            ("--listen", ("node", "listen"), self.listen.clone()),
            ("--ownership", ("ownership", "mode"), self.ownership.map(word)),
            ("--node-id", ("node", "id"), self.node_id.clone()),
            ("--shutdown-grace", ("node", "shutdown_grace"), self.shutdown_grace.clone()),
            ("--log-format", ("node", "log_format"), self.log_format.map(word)),
        ];
        let mut overlays: Vec<Overlay> = given
            .into_iter()
            .filter_map(|(flag, key, value)| Some(Overlay { flag, key, value: Value::from(value?) }))
            .collect();
        if !self.etcd.is_empty() {
            let value = Value::Array(self.etcd.iter().cloned().map(Value::from).collect());
            overlays.push(Overlay { flag: "--etcd", key: ("ownership", "etcd"), value });
        }
        overlays
    }
}

/// `duetime serve`.
///
/// # Errors
///
/// Whatever keeps the node from starting, with what to do about it.
pub async fn run(args: &ServeArgs, steps: Arc<dyn Steps>) -> anyhow::Result<bool> {
    let ReadConfig { config, lines } = match config::load(args.config.as_deref(), &args.overlays()) {
        Ok(loaded) => loaded,
        Err(complaints) => {
            for complaint in &complaints {
                output::complain(&complaint.to_string());
            }
            return Ok(false);
        }
    };
    panics::hide(config.secrets());
    logs::start(config.node.log_format);
    let signals = drain::Signals::listen().context("listening for signals")?;
    let hangup = listener::hangup().context("listening for signals")?;
    let listener = listen(&config.node.address()).await?;
    let console = match config.console.address() {
        Some(address) => Some(listen(&address).await?),
        None => None,
    };
    let auth = Auth::load(&config.auth).map_err(anyhow::Error::msg)?;
    let options = listener::options(&config, &lines)?;
    // It has the whole text of the configuration.
    drop(lines);
    let running = node::start(&config, Listeners { listener, console }, steps, &auth, &options).await?;
    let reloader = Reloader::new(args.config.as_deref(), args.overlays(), config.clone(), auth, options, hangup);
    let (reloader, stop) = (Arc::new(Mutex::new(reloader)), running.shutdown.clone());
    running.supervisor.start("reload", Policy::RestartOrEnd, &running.shutdown, move || {
        let (reloader, stop) = (reloader.clone(), stop.clone());
        async move { reloader.lock().await.run(stop).await }
    });
    manager::watch(running.supervisor.clone());
    manager::ready();
    Ok(drain::run_until_signal(running, signals, config.node.shutdown_grace).await)
}

async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    listener::listen(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow!(
            "{address} is in use already: is another node running? stop it, or choose another address with --listen"
        ),
        std::io::ErrorKind::PermissionDenied => {
            anyhow!("the system does not let us listen on {address}; choose a port above 1023 with --listen")
        }
        _ => anyhow!("cannot listen on {address}: {error}; choose another address with --listen"),
    })
}
