//! Wires a node and runs it: store, topics, sinks, engine, front door; then waits for the end.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use duetime_core::{Clock as _, Fleet, Member, Store, StoreError, TopicName};
use duetime_dispatch::{DispatchConfig, Engine, EngineParts};
use duetime_http::{Auth, HttpOptions, HttpParts, NodeInfo};
use duetime_metrics::Meters;
use duetime_resize::{ResizeParts, Resizer, Steps, Tools};
use duetime_router::{Catalog, CatalogError, Metering, RoutedStore, Router};
use duetime_sinks::SinkRegistry;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use toml::Value;
use tracing::{info, warn};

use crate::clock::SystemClock;
use crate::config::{self, Config, Overlay, OwnershipMode};
use crate::drain::{self, Running};
use crate::listener::{self, Reloader};
use crate::logs::{self, LogFormat};
use crate::sharing::{self, Parts};
use crate::stores::{self, Opened};
use crate::{commands, greeting};

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
    #[arg(long, value_name = "URL", env = "DUETIME_ETCD", value_delimiter = ',')]
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
    let config = match config::load(args.config.as_deref(), &args.overlays()) {
        Ok(config) => config,
        Err(complaints) => {
            for complaint in &complaints {
                commands::complain(&complaint.to_string());
            }
            return Ok(false);
        }
    };
    logs::start(config.node.log_format);
    let signals = drain::Signals::listen().context("listening for signals")?;
    let hangup = listener::hangup().context("listening for signals")?;
    let listener = listen(&config.node.listen).await?;
    let auth = Auth::load(&config.auth).map_err(anyhow::Error::msg)?;
    let options = listener::options(&config)?;
    let running = start(&config, listener, steps, &auth, &options).await?;
    let reloader = Reloader::new(args.config.as_deref(), args.overlays(), config.clone(), auth, options);
    tokio::spawn(reloader.run(hangup, running.shutdown.clone()));
    drain::until_told(running, signals, config.node.shutdown_grace).await;
    Ok(true)
}

async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow!(
            "{address} is in use already: is another node running? stop it, or choose another address with --listen"
        ),
        std::io::ErrorKind::PermissionDenied => {
            anyhow!("the system does not let us listen on {address}; choose a port above 1023 with --listen")
        }
        _ => anyhow!("cannot listen on {address}: {error}; choose another address with --listen"),
    })
}

async fn start(
    config: &Config,
    listener: TcpListener,
    steps: Arc<dyn Steps>,
    auth: &Auth,
    options: &HttpOptions,
) -> anyhow::Result<Running> {
    let clock = Arc::new(SystemClock);
    let meters = Arc::new(Meters::new().with_process());
    let Opened { store, shown, shared, has_clock, move_grace, link } =
        stores::open(&config.store, meters.clone()).await?;
    let store: Arc<dyn Store> = Metering::of(store, meters.clone());
    let sinks = SinkRegistry::new(config.sinks.clone(), clock.clone()).map_err(anyhow::Error::msg)?;
    let catalog = Catalog::open(store.clone(), clock.clone()).await.context("reading the topics")?;
    catalog.check_sinks_with(sinks.clone(), store.has_streams());
    create_topics(config, &catalog).await?;
    let tools = Tools { grace: move_grace, steps, ..Tools::new(store.clone()) };
    let router = Router::new(store.clone(), Arc::new(tools.clone()), catalog.clone(), clock.clone(), meters.clone());
    let address = listener.local_addr().context("asking where we listen")?;
    let me = Member {
        id: config.node_id(),
        address: address.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since_ms: clock.now().as_millis(),
        ..Member::default()
    };
    let parts = Parts { me, store: store.clone(), link, clock: clock.clone(), meters: meters.clone() };
    let ownership = sharing::ownership(config, parts)?;
    let engine = Engine::start(EngineParts {
        store: RoutedStore::new(router.clone()),
        schedule: store.clone(),
        topics: catalog.watch(),
        owned: ownership.owned(),
        ownership: ownership.clone(),
        sinks,
        clock: clock.clone(),
        meters: meters.clone(),
        config: DispatchConfig::default(),
    });
    let shutdown = CancellationToken::new();
    let resizer = Resizer::new(ResizeParts {
        tools,
        authority: store.clone(),
        topics: catalog.watch(),
        owned: ownership.owned(),
        nodes: catalog.nodes(),
        clock: clock.clone(),
        meters: meters.clone(),
        config: config.resize.clone(),
    });
    follow_topics(shared, &catalog, [engine.stale_topics(), resizer.changed()], &shutdown);
    tokio::spawn(resizer.clone().run(shutdown.clone()));
    if shared {
        tokio::spawn(router.clone().review(shutdown.clone()));
    }
    tokio::spawn(count_nodes(ownership.fleet(), catalog.clone()));
    tokio::spawn(sharing::watch_clock(
        store.clone(),
        clock.clone(),
        ownership.clone(),
        meters.clone(),
        has_clock,
        shutdown.clone(),
    ));
    let node = NodeInfo { id: config.node_id(), address: address.to_string(), mode: ownership.mode() };
    info!(%address, node = %node.id, store = %shown, "node is serving");
    let parts = HttpParts {
        router,
        catalog,
        store,
        consumers: engine.consumers(),
        resizing: Arc::new(resizer),
        clock,
        meters,
        auth: auth.clone(),
        options: options.clone(),
        node,
        fleet: ownership.fleet(),
        draining: CancellationToken::new(),
    };
    let door = tokio::spawn(duetime_http::serve(listener, parts, shutdown.clone()));
    if options.tls.is_none() && !address.ip().is_loopback() {
        warn!("tokens and messages travel in clear; set node.tls, or put a proxy with TLS before the node");
    }
    greeting::print(address, &shown, !auth.is_open(), options.tls.is_some());
    Ok(Running { engine, ownership, door, shutdown })
}

/// Tells how many nodes there are, which `"auto"` follows; ends with the ownership.
async fn count_nodes(mut fleet: watch::Receiver<Arc<Fleet>>, catalog: Arc<Catalog>) {
    loop {
        let nodes = u32::try_from(fleet.borrow_and_update().members.len()).unwrap_or(u32::MAX);
        catalog.set_nodes(nodes.max(1));
        if fleet.changed().await.is_err() {
            return;
        }
    }
}

async fn create_topics(config: &Config, catalog: &Catalog) -> anyhow::Result<()> {
    for (name, topic) in &config.topics {
        let topic_name = TopicName::new(name)?;
        let created = match catalog.create_if_absent(&topic_name, topic).await {
            // The node is not ready and says why; other topics are served.
            Err(CatalogError::Store(error @ (StoreError::Vanished { .. } | StoreError::Damaged(_)))) => {
                tracing::error!(topic = %topic_name, %error, "topic of the configuration is not created");
                continue;
            }
            created => created.with_context(|| format!("creating the topic of [topics.{name}]"))?,
        };
        if created {
            info!(topic = %topic_name, "topic is created as configured");
        }
    }
    Ok(())
}

/// Keeps this node's picture of the topics fresh: when one of `told` says that it is old, and where
/// other nodes may change topics too.
fn follow_topics(shared: bool, catalog: &Arc<Catalog>, told: [Arc<Notify>; 2], shutdown: &CancellationToken) {
    if shared {
        tokio::spawn(catalog.clone().run(shutdown.clone()));
    }
    let ([stale, changed], catalog, shutdown) = (told, catalog.clone(), shutdown.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = stale.notified() => {}
                () = changed.notified() => {}
            }
            if let Err(error) = catalog.refresh().await {
                warn!(%error, "topics could not be read again");
            }
        }
    });
}
