//! Wires a node and runs it: store, topics, sinks, engine, HTTP API; then waits for the end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use duetime_core::Draw;
use duetime_core::{Clock as _, ClusterNodes, Member, Store, StoreError, TopicName};
use duetime_dispatch::{DispatchConfig, Engine, EngineParts};
use duetime_http::{Auth, Feed, HttpOptions, HttpParts, Listening, NodeInfo, PlanAudit};
use duetime_metrics::Meters;
use duetime_resize::{MoveDeps, ResizeDeps, Resizer, Steps};
use duetime_router::{Catalog, CatalogError, Metering, Plans, Reviewer, RoutedStore, Router};
use duetime_sinks::SinkRegistry;
use duetime_supervisor::{Policy, Supervisor};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify, watch};
use tokio_util::sync::CancellationToken;
use toml::Value;
use tracing::{info, warn};

use crate::clock::SystemClock;
use crate::commands::output;
use crate::config::{self, Config, Overlay, OwnershipMode, ReadConfig};
use crate::disk;
use crate::drain::{self, Running};
use crate::listener::{self, Reloader};
use crate::log_rate;
use crate::logs::{self, LogFormat};
use crate::ownership::{self, OwnershipDeps};
use crate::rates;
use crate::stores::{self, Opened};
use crate::{banner, manager, panics, traces, version};

/// Connections at the console's own address: people with browsers, and no producers.
const CONSOLE_CONNECTIONS_MAX: usize = 256;

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
    let running = start(&config, Listeners { listener, console }, steps, &auth, &options).await?;
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

/// Where a node listens.
struct Listeners {
    listener: TcpListener,
    /// The console has an address of its own.
    console: Option<TcpListener>,
}

async fn start(
    config: &Config,
    Listeners { listener, console }: Listeners,
    steps: Arc<dyn Steps>,
    auth: &Auth,
    options: &HttpOptions,
) -> anyhow::Result<Running> {
    let clock = Arc::new(SystemClock);
    let meters = Arc::new(Meters::new().with_process());
    let Opened { store, shown, shared, has_clock, move_grace, link, folder } =
        stores::open_patiently(&config.store, meters.clone()).await?;
    let store: Arc<dyn Store> = Metering::of(store, meters.clone());
    let sinks = SinkRegistry::new(config.sinks.clone(), clock.clone()).map_err(anyhow::Error::msg)?;
    let catalog = Catalog::open(store.clone(), clock.clone(), Draw::new(rand::random::<u64>))
        .await
        .context("reading the topics")?;
    catalog.check_sinks_with(sinks.clone(), store.has_streams());
    create_topics(config, &catalog).await?;
    let deps = MoveDeps { grace: move_grace, steps, ..MoveDeps::new(store.clone()) };
    let router = Router::new(store.clone(), Arc::new(deps.clone()), catalog.clone(), clock.clone(), meters.clone());
    let address = listener.local_addr().context("asking where we listen")?;
    let me = Member {
        id: config.node_id(),
        address: address.to_string(),
        version: version::VERSION.to_owned(),
        since_ms: clock.now().as_millis(),
        ..Member::default()
    };
    let supervisor = Supervisor::new(meters.clone());
    duetime_request::standstill::watch()?;
    let me_id = me.id.clone();
    let parts = OwnershipDeps {
        me,
        store: store.clone(),
        link,
        clock: clock.clone(),
        meters: meters.clone(),
        supervisor: supervisor.clone(),
    };
    let ownership = ownership::open(config, parts)?;
    let flush = CancellationToken::new();
    let tracer = traces::start(&me_id, &meters, &supervisor, &flush)?;
    let routed = RoutedStore::new(router.clone());
    let engine = Engine::start(EngineParts {
        store: routed.clone(),
        reinstate: routed,
        schedule: store.clone(),
        topics: catalog.watch(),
        owned: ownership.owned(),
        ownership: ownership.clone(),
        sinks,
        clock: clock.clone(),
        meters: meters.clone(),
        config: DispatchConfig::default(),
        supervisor: supervisor.clone(),
        tracer: tracer.clone(),
    });
    let shutdown = CancellationToken::new();
    let resizer = Resizer::new(ResizeDeps {
        deps,
        authority: store.clone(),
        topics: catalog.watch(),
        owned: ownership.owned(),
        nodes: catalog.nodes(),
        clock: clock.clone(),
        meters: meters.clone(),
        config: config.resize.clone(),
    });
    let loops = Loops { supervisor: supervisor.clone(), shutdown: shutdown.clone() };
    let told = [engine.stale_topics(), resizer.changed()];
    loops.start("topics read again", (catalog.clone(), told), |(catalog, told), stop| {
        follow_topics(catalog, told, stop)
    });
    loops.start("resize", resizer.clone(), |resizer, stop| resizer.run(stop));
    if shared {
        loops.start("catalog", catalog.clone(), |catalog, stop| catalog.run(stop));
        loops.start("review", router.reviewer.clone(), Reviewer::run);
    }
    loops.start("nodes", (ownership.cluster(), catalog.clone()), |(cluster, catalog), stop| {
        count_nodes(cluster, catalog, stop)
    });
    let seen = (ownership.cluster(), catalog.watch(), ownership.mode() != "round-robin", meters.clone());
    loops.start("unowned shards", seen, |(cluster, topics, sees_all, meters), stop| {
        ownership::count_unowned(cluster, topics, sees_all, meters, stop)
    });
    loops.start("forecasts", (router.forecaster.clone(), ownership.owned()), |(forecaster, owned), stop| {
        forecaster.watch(owned, stop)
    });
    if let Some(folder) = folder {
        let server = config.store.kind();
        loops.start("disk", (folder, meters.clone()), move |(folder, meters), stop| {
            disk::watch(server, folder, meters, stop)
        });
    }
    loops.start("log", log_rate::OURS.clone(), log_rate::LogRate::run);
    let begun = tokio::time::Instant::now();
    loops.start("rates", meters.clone(), move |meters, stop| rates::sample(meters, begun, stop));
    let clocks = (store.clone(), clock.clone(), ownership.clone(), meters.clone());
    loops.start("clock", clocks, move |(store, clock, ownership, meters), stop| {
        ownership::watch_clock(store, clock, ownership, meters, has_clock, stop)
    });
    let watcher = PlanAudit::new(options.audit.clone(), clock.clone());
    let plans = Plans::new(router.clone(), store.clone(), clock.clone(), watcher, &config.node_id());
    loops.start("bulk plans", plans.clone(), |plans, stop| plans.run(stop));
    let has_topics = !catalog.all().is_empty();
    let node = NodeInfo { id: config.node_id(), address: address.to_string(), mode: ownership.mode() };
    meters.build_info([version::VERSION, version::COMMIT, version::features()], config.store.kind(), ownership.mode());
    info!(%address, node = %node.id, store = %shown, "node is serving");
    let feed = Feed::new(router.clone(), catalog.clone(), meters.clone(), engine.sinks(), clock.clone());
    let (counting, stop) = (feed.clone(), shutdown.clone());
    supervisor.start("events", Policy::Restart, &shutdown, move || counting.clone().run(stop.clone()));
    let parts = HttpParts {
        router,
        feed,
        catalog,
        plans,
        store,
        consumers: engine.consumers(),
        sinks: engine.sinks(),
        past: engine.past(),
        resizing: Arc::new(resizer),
        clock,
        meters,
        auth: auth.clone(),
        options: HttpOptions { tracer, ..options.clone() },
        node,
        cluster: ownership.cluster(),
        ownership: ownership.clone(),
        draining: CancellationToken::new(),
    };
    let listening = Listening::of(&parts);
    let pages = duetime_console::routes(config.console.mode());
    let console = match console {
        Some(own) => {
            let address = own.local_addr().context("asking where the console listens")?;
            info!(%address, "the console has an address of its own");
            warn_of_clear_text(options, address);
            let bounds = listening.connections.at_most(CONSOLE_CONNECTIONS_MAX);
            let listening = Listening { connections: bounds, ..listening.clone() };
            let router = duetime_http::router(parts.clone(), pages.clone());
            Some((duetime_http::serve(own, router, listening, shutdown.clone()), address))
        }
        None => None,
    };
    let shown_at = console.as_ref().map_or(address, |(_, address)| *address);
    let pages = if console.is_some() { duetime_console::routes(duetime_console::Mode::Off) } else { pages };
    let serving = duetime_http::serve(listener, duetime_http::router(parts, pages), listening, shutdown.clone());
    // Before the first request is answered: who waits for that finds it printed.
    if config.node.log_format == LogFormat::Text {
        banner::print([address, shown_at], &shown, !auth.is_open(), options.tls.is_some(), has_topics);
    }
    let http = supervisor.start_once("listener", &shutdown, async move {
        let console = async {
            match console {
                Some((serving, _)) => serving.await,
                None => Ok(()),
            }
        };
        let (serving, console) = tokio::join!(serving, console);
        for error in [serving, console].into_iter().filter_map(Result::err) {
            tracing::error!(%error, "the listener broke");
        }
    });
    warn_of_clear_text(options, address);
    Ok(Running { engine, ownership, http, shutdown, flush, supervisor })
}

fn warn_of_clear_text(options: &HttpOptions, address: SocketAddr) {
    if options.tls.is_none() && !address.ip().is_loopback() {
        warn!("tokens and messages travel in clear; set node.tls, or put a proxy with TLS before the node");
    }
}

/// Starts the loops that run beside the engine and end with the listener.
struct Loops {
    supervisor: Supervisor,
    shutdown: CancellationToken,
}

impl Loops {
    fn start<P, F>(&self, name: &'static str, parts: P, run: impl Fn(P, CancellationToken) -> F + Send + 'static)
    where
        P: Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.shutdown.clone();
        let make = move || run(parts.clone(), stop.clone());
        self.supervisor.start(name, Policy::RestartOrEnd, &self.shutdown, make);
    }
}

/// Says how many nodes take a share, which `"auto"` follows, until `shutdown`.
async fn count_nodes(
    mut cluster: watch::Receiver<Arc<ClusterNodes>>,
    catalog: Arc<Catalog>,
    shutdown: CancellationToken,
) {
    loop {
        catalog.set_nodes(cluster.borrow_and_update().nodes());
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Ok(()) = cluster.changed() => {}
            // The ownership has ended: it stays as it was.
            else => return shutdown.cancelled().await,
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

/// Keeps this node's picture of the topics fresh: reads them again when one of `told` says that it is old.
async fn follow_topics(catalog: Arc<Catalog>, [stale, changed]: [Arc<Notify>; 2], shutdown: CancellationToken) {
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
}
