//! Starts a node in steps, each with what the steps before it made: store, routing, engine, HTTP API.
//!
//! Upstream: `serve`, which has read the configuration and listens. Downstream: the crates of the node; `drain` ends
//! what is started here.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use duetime_core::tracer::Tracer;
use duetime_core::{Clock, Draw, Member, Ownership, StoreError, TestClock, TopicName};
use duetime_dispatch::{DispatchConfig, Engine, EngineParts};
use duetime_http::{Audit, Auth, Feed, HttpOptions, HttpParts, Listening, MovedClock, NodeInfo, PlanAudit};
use duetime_metrics::Meters;
use duetime_ownership::GoneNodes;
use duetime_resize::{MoveDeps, ResizeDeps, Resizer, Steps};
use duetime_router::{
    Catalog, CatalogError, ConsistencyChecker, Metering, PlanDeps, Plans, PutSinks, Retention, RoutedStore, Router,
    TopicChange,
};
use duetime_sinks::NodeSinks;
use duetime_supervisor::{Policy, Supervisor};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::SystemClock;
use crate::config::{Config, OwnershipMode};
use crate::drain::{Farewell, Running};
use crate::logs::LogFormat;
use crate::ownership::{self, OwnershipDeps};
use crate::stores::{self, Opened};
use crate::{banner, disk, log_rate, rates, traces, version};

/// Connections at the console's own address: people with browsers, and no producers.
const CONSOLE_CONNECTIONS_MAX: usize = 256;

/// Where a node listens.
pub struct Listeners {
    /// The API.
    pub listener: TcpListener,
    /// The console has an address of its own.
    pub console: Option<TcpListener>,
}

impl Listeners {
    /// The addresses.
    pub fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let all = [Some(&self.listener), self.console.as_ref()].into_iter().flatten();
        all.map(|one| one.local_addr().context("asking where we listen")).collect()
    }
}

/// Starts a node; with a clock that users move where `has_test_clock` says so.
pub async fn start(
    config: &Config,
    listeners: Listeners,
    steps: Arc<dyn Steps>,
    auth: &Auth,
    options: &HttpOptions,
    has_test_clock: bool,
) -> anyhow::Result<Running> {
    let base = NodeBase::new(config, &listeners, has_test_clock)?;
    let store = open_store(&base).await?;
    let routing = open_routing(&base, &store, steps, &options.audit).await?;
    let started = start_engine(&base, &store, &routing)?;
    start_loops(&base, &store, &routing, &started);
    let http = serve_http(&base, &store, &routing, &started, HttpStep { listeners, auth, options })?;
    let NodeEngine { engine, ownership, flush, gone, .. } = started;
    let NodeBase { meters, shutdown, supervisor, address, .. } = base;
    let farewell = gone.map(|gone| Farewell { gone, id: config.node_id(), address: address.to_string() });
    Ok(Running { engine, ownership, http, shutdown, flush, meters, supervisor, farewell })
}

/// What all steps share.
struct NodeBase<'a> {
    config: &'a Config,
    clock: Arc<dyn Clock>,
    /// The same, where users move it.
    test_clock: Option<Arc<TestClock>>,
    meters: Arc<Meters>,
    /// Watches over every loop of the node, those of its store too.
    supervisor: Supervisor,
    /// Ends the listener and the loops that run beside the engine.
    shutdown: CancellationToken,
    /// Where the API is.
    address: SocketAddr,
}

impl<'a> NodeBase<'a> {
    fn new(config: &'a Config, listeners: &Listeners, has_test_clock: bool) -> anyhow::Result<Self> {
        let address = listeners.listener.local_addr().context("asking where we listen")?;
        let meters = Arc::new(Meters::new().with_process());
        let supervisor = Supervisor::new(meters.clone());
        let test_clock = has_test_clock.then(|| TestClock::new(Arc::new(SystemClock)));
        let clock: Arc<dyn Clock> = match &test_clock {
            Some(clock) => clock.clone(),
            None => Arc::new(SystemClock),
        };
        Ok(Self { config, clock, test_clock, meters, supervisor, shutdown: CancellationToken::new(), address })
    }

    /// Starts a loop that runs beside the engine and ends with the listener.
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

/// The store, whose calls are metered.
async fn open_store(base: &NodeBase<'_>) -> anyhow::Result<Opened> {
    let opened = stores::open_patiently(&base.config.store, base.meters.clone(), &base.supervisor).await?;
    if let (Some(_), Some(folder)) = (&base.test_clock, &opened.folder) {
        crate::test_clock::mark(folder)?;
        warn!("this node has a TEST CLOCK, which is moved by hand: it is for tests alone, never for production");
    }
    let store = Metering::of(opened.store.clone(), base.meters.clone());
    Ok(Opened { store, ..opened })
}

/// The topics, and what finds the shards of their messages.
struct NodeRouting {
    sinks: Arc<NodeSinks>,
    put_sinks: Arc<PutSinks>,
    catalog: Arc<Catalog>,
    router: Arc<Router>,
    /// What moves messages when a shard count changes.
    moves: MoveDeps,
}

async fn open_routing(
    base: &NodeBase<'_>,
    opened: &Opened,
    steps: Arc<dyn Steps>,
    audit: &Audit,
) -> anyhow::Result<NodeRouting> {
    let (store, clock) = (&opened.store, &base.clock);
    // Targets of sinks go by the machine's clock: signatures and the dates in their answers are compared with it.
    let (file, rules, machine) = (base.config.sinks.clone(), base.config.sinks_by_api.clone(), Arc::new(SystemClock));
    let sinks = NodeSinks::new(file, rules, machine, &base.config.store.namespace()).map_err(anyhow::Error::msg)?;
    let put_sinks = PutSinks::new(store.clone(), sinks.clone(), clock.clone());
    let draw = Draw::new(rand::random::<u64>);
    let catalog = Catalog::open(store.clone(), clock.clone(), draw).await.context("reading the topics")?;
    catalog.check_sinks_with(sinks.clone(), store.has_streams());
    catalog.read_sinks_too(put_sinks.clone());
    catalog.refresh().await.context("reading the sinks that were put by the API")?;
    catalog.set_auto(base.config.resize.auto());
    create_topics(base.config, &catalog, audit).await?;
    let moves = MoveDeps { grace: opened.move_grace, steps, ..MoveDeps::new(store.clone()) };
    let (mover, meters) = (Arc::new(moves.clone()), base.meters.clone());
    let router = Router::new(store.clone(), mover, catalog.clone(), clock.clone(), meters);
    Ok(NodeRouting { sinks, put_sinks, catalog, router, moves })
}

/// What claims and delivers, and who has which shards.
struct NodeEngine {
    engine: Engine,
    ownership: Arc<dyn Ownership>,
    /// Remembers nodes that went, where several share the store.
    gone: Option<Arc<GoneNodes>>,
    resizer: Resizer,
    tracer: Option<Arc<dyn Tracer>>,
    /// Ends the loop that sends spans.
    flush: CancellationToken,
}

fn start_engine(base: &NodeBase<'_>, opened: &Opened, routing: &NodeRouting) -> anyhow::Result<NodeEngine> {
    let NodeBase { clock, meters, supervisor, .. } = base;
    let (store, catalog) = (&opened.store, &routing.catalog);
    let node = &base.config.node;
    let me = Member {
        id: base.config.node_id(),
        address: base.address.to_string(),
        advertise: duetime_http::advertised(node.advertise.as_deref(), base.address, node.tls.is_some()),
        version: version::VERSION.to_owned(),
        since_ms: clock.now().as_millis(),
        ..Member::default()
    };
    duetime_request::stall::watch()?;
    let me_id = me.id.clone();
    let parts = OwnershipDeps {
        me,
        store: store.clone(),
        link: opened.link.clone(),
        clock: clock.clone(),
        meters: meters.clone(),
        supervisor: supervisor.clone(),
    };
    let ownership = ownership::open(base.config, parts)?;
    let shared = opened.link.clone().filter(|_| base.config.ownership.mode != OwnershipMode::Solo);
    let gone = shared.map(|link| GoneNodes::new(link, &base.config.store.namespace(), clock.clone()));
    let flush = CancellationToken::new();
    let tracer = traces::start(&me_id, clock.clone(), meters, supervisor, &flush)?;
    let routed = RoutedStore::new(routing.router.clone());
    let engine = Engine::start(EngineParts {
        store: routed,
        schedule: store.clone(),
        topics: catalog.watch(),
        ownership: ownership.clone(),
        sinks: routing.sinks.clone(),
        clock: clock.clone(),
        meters: meters.clone(),
        config: DispatchConfig { precise_timer: true, ..DispatchConfig::default() },
        supervisor: supervisor.clone(),
        tracer: tracer.clone(),
    });
    let resizer = Resizer::new(ResizeDeps {
        deps: routing.moves.clone(),
        authority: store.clone(),
        records: store.clone(),
        counts: store.clone(),
        topics: catalog.watch(),
        owned: ownership.owned(),
        nodes: catalog.nodes(),
        clock: clock.clone(),
        meters: meters.clone(),
        config: base.config.resize.clone(),
    });
    Ok(NodeEngine { engine, ownership, gone, resizer, tracer, flush })
}

/// Starts the loops that run beside the engine.
fn start_loops(base: &NodeBase<'_>, opened: &Opened, routing: &NodeRouting, started: &NodeEngine) {
    let meters = &base.meters;
    let NodeRouting { catalog, router, .. } = routing;
    let NodeEngine { engine, ownership, gone, resizer, .. } = started;
    let signs = [engine.stale_topics(), resizer.changed()];
    base.start("topics read again", (catalog.clone(), signs), |(catalog, signs), stop| {
        follow_topics(catalog, signs, stop)
    });
    base.start("resize", resizer.clone(), |resizer, stop| resizer.run(stop));
    // Nobody else changes what is in a store of this node's own, but what a sink needs may come later.
    if opened.shared || routing.put_sinks.is_on() {
        base.start("catalog", catalog.clone(), |catalog, stop| catalog.run(stop));
    }
    if opened.shared {
        base.start("consistency", router.consistency.clone(), ConsistencyChecker::run);
    }
    base.start("nodes", (ownership.clone(), catalog.clone()), |(ownership, catalog), stop| {
        count_nodes(ownership, catalog, stop)
    });
    let seen = (ownership.cluster(), catalog.watch(), !ownership.takes_turns(), meters.clone());
    base.start("unowned shards", seen, |(cluster, topics, sees_all, meters), stop| {
        ownership::count_unowned(cluster, topics, sees_all, meters, stop)
    });
    if let Some(gone) = gone.clone() {
        let (cluster, stop) = (ownership.cluster(), base.shutdown.clone());
        let make = move || gone.clone().run(cluster.clone(), stop.clone());
        // It is for people: the node goes on without it.
        base.supervisor.start("gone nodes", Policy::Restart, &base.shutdown, make);
    }
    base.start("forecasts", (router.forecaster.clone(), ownership.reported()), |(forecaster, owned), stop| {
        forecaster.watch(owned, stop)
    });
    let retention = Retention::new(router.clone(), ownership.reported(), Draw::new(rand::random::<u64>));
    base.start("retention", retention, Retention::run);
    if let Some(folder) = opened.folder.clone() {
        let server = opened.kind;
        base.start("disk", (folder, meters.clone()), move |(folder, meters), stop| {
            disk::watch(server, folder, meters, stop)
        });
    }
    base.start("log", log_rate::OURS.clone(), log_rate::LogRate::run);
    let begun = tokio::time::Instant::now();
    base.start("rates", meters.clone(), move |meters, stop| rates::sample(meters, begun, stop));
    let machine: Arc<dyn Clock> = Arc::new(SystemClock);
    let (clocks, has_clock) = ((opened.store.clone(), machine, ownership.clone(), meters.clone()), opened.has_clock);
    base.start("clock", clocks, move |(store, clock, ownership, meters), stop| {
        ownership::watch_clock(store, clock, ownership, meters, has_clock, stop)
    });
}

/// What the listener is given.
struct HttpStep<'a> {
    listeners: Listeners,
    auth: &'a Auth,
    options: &'a HttpOptions,
}

/// Answers requests from now on; the task ends once all that came is answered.
fn serve_http(
    base: &NodeBase<'_>,
    opened: &Opened,
    routing: &NodeRouting,
    started: &NodeEngine,
    step: HttpStep<'_>,
) -> anyhow::Result<JoinHandle<()>> {
    let NodeBase { config, meters, supervisor, shutdown, address, .. } = base;
    let HttpStep { listeners: Listeners { listener, console }, auth, options } = step;
    let has_topics = !routing.catalog.all().is_empty();
    let parts = http_parts(base, opened, routing, started, auth, options);
    meters.build_info([version::VERSION, version::COMMIT, version::features()], opened.kind, parts.ownership.mode());
    info!(%address, node = %parts.node.id, store = %opened.shown, "node is serving");
    let listening = Listening::of(&parts);
    let console_pages = config.console.pages();
    let pages = duetime_console::routes(&console_pages);
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
    let has_page = console_pages.mode != duetime_console::Mode::Off;
    let shown_at = has_page.then(|| console.as_ref().map_or(*address, |(_, address)| *address));
    let none = duetime_console::Pages { mode: duetime_console::Mode::Off, ..Default::default() };
    let pages = if console.is_some() { duetime_console::routes(&none) } else { pages };
    let serving = duetime_http::serve(listener, duetime_http::router(parts, pages), listening, shutdown.clone());
    // Before the first request is answered: who waits for that finds it printed.
    if config.node.log_format == LogFormat::Text {
        let test = if base.test_clock.is_some() { "; TEST CLOCK, never for production" } else { "" };
        let store = format!("{}{test}", opened.shown);
        banner::print((*address, shown_at), &store, !auth.is_open(), options.tls.is_some(), has_topics);
    }
    let http = supervisor.start_once("listener", shutdown, async move {
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
    warn_of_clear_text(options, *address);
    Ok(http)
}

/// What the API speaks for, with the loops that it alone needs.
fn http_parts(
    base: &NodeBase<'_>,
    opened: &Opened,
    routing: &NodeRouting,
    started: &NodeEngine,
    auth: &Auth,
    options: &HttpOptions,
) -> HttpParts {
    let NodeBase { config, clock, test_clock, meters, supervisor, shutdown, address } = base;
    let NodeRouting { catalog, router, put_sinks, .. } = routing;
    let NodeEngine { engine, ownership, gone, resizer, tracer, .. } = started;
    let watcher = PlanAudit::new(options.audit.clone(), clock.clone());
    let audited = (options.audit.clone(), clock.clone());
    base.start("audit", audited, |(audit, clock), stop| audit.run(clock, stop));
    let deps = PlanDeps::new(router.clone(), opened.store.clone(), clock.clone(), watcher, &config.node_id());
    let plans = Plans::new(PlanDeps { late_for: config.store.late_for(), ..deps });
    base.start("bulk plans", plans.clone(), |plans, stop| plans.run(stop));
    let feed = Feed::new(router.clone(), catalog.clone(), meters.clone(), engine.sinks(), clock.clone());
    let (counting, stop) = (feed.clone(), shutdown.clone());
    supervisor.start("events", Policy::Restart, shutdown, move || counting.clone().run(stop.clone()));
    HttpParts {
        router: router.clone(),
        feed,
        catalog: catalog.clone(),
        plans,
        put_sinks: put_sinks.clone(),
        store: opened.store.clone(),
        backups: opened.backups.clone(),
        consumers: engine.consumers(),
        sinks: engine.sinks(),
        resizing: Arc::new(resizer.clone()),
        clock: clock.clone(),
        test_clock: test_clock.clone().map(|clock| MovedClock { clock, moved: engine.polls() }),
        meters: meters.clone(),
        auth: auth.clone(),
        options: HttpOptions { tracer: tracer.clone(), ..options.clone() },
        node: NodeInfo { id: config.node_id(), address: address.to_string() },
        cluster: ownership.cluster(),
        gone: gone.as_ref().map_or_else(|| watch::Sender::default().subscribe(), |gone| gone.watch()),
        ownership: ownership.clone(),
        draining: CancellationToken::new(),
    }
}

fn warn_of_clear_text(options: &HttpOptions, address: SocketAddr) {
    if options.tls.is_none() && !address.ip().is_loopback() {
        warn!("tokens and messages travel in clear; set node.tls, or put a proxy with TLS before the node");
    }
}

/// Says how many nodes take a share, which `"auto"` follows, until `shutdown`.
/// While what shares the shards is out of reach it stays as it was: this node may know of itself alone.
async fn count_nodes(ownership: Arc<dyn Ownership>, catalog: Arc<Catalog>, shutdown: CancellationToken) {
    let mut cluster = ownership.cluster();
    loop {
        let nodes = cluster.borrow_and_update().nodes();
        if ownership.issue().is_none() {
            catalog.set_nodes(nodes);
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Ok(()) = cluster.changed() => {}
            // The ownership has ended: it stays as it was.
            else => return shutdown.cancelled().await,
        }
    }
}

async fn create_topics(config: &Config, catalog: &Catalog, audit: &Audit) -> anyhow::Result<()> {
    for (name, topic) in &config.topics {
        let topic_name = TopicName::new(name)?;
        let created = match catalog.create(&topic_name, &TopicChange::whole(topic)).await {
            // The node is not ready and says why; other topics are served.
            Err(CatalogError::Store(error @ (StoreError::Vanished { .. } | StoreError::Damaged(_)))) => {
                tracing::error!(topic = %topic_name, %error, "topic of the configuration is not created");
                continue;
            }
            created => created.with_context(|| format!("creating the topic of [topics.{name}]"))?,
        };
        if created.created {
            audit.topic_made(SystemClock.now(), topic_name.as_str(), "topic of the configuration");
            info!(topic = %topic_name, "topic is created as configured");
        }
    }
    Ok(())
}

/// Keeps this node's picture of the topics fresh: reads them again when one of `signs` says that it is old.
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
