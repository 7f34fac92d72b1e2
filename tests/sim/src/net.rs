//! The network between nodes and masters: what becomes of the bytes of each connection.
//!
//! What was written to a connection arrives in its order, also after the node has closed it; between connections there
//! is no order. A cut holds everything back, and TCP delivers it some time after the end of the cut.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duetime_redis::{ByteStream, Dial};
use duetime_small_redis::{Fate, Server, Way, connect};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::draw::Dice;
use crate::trace::{About, Trace};

/// Longest way to a master and back, each, in virtual time.
const WAY_MS_MAX: u64 = 3;
/// Longest time that bytes of one connection are kept back by a proxy or a router.
const HELD_MS_MAX: u64 = 14_000;
/// Longest time after a cut until TCP sends again what was not acknowledged.
const RETRANSMITTED_MS_MAX: u64 = 9_000;
/// Bytes of one sending that a trace shows.
const BYTES_SHOWN: usize = 400;
/// Port of the first master.
const PORT: u16 = 7_000;

/// What is wrong with the network at present, for all nodes or between two machines.
#[derive(Debug, Default)]
pub struct Weather {
    /// Questions and answers whose connection breaks, each, in a thousand.
    pub lost_permille: Mutex<u64>,
    /// The same for a moment, while one large request is under way.
    pub burst_permille: Mutex<u64>,
    /// Sendings whose connection is kept back from then on, in a thousand.
    pub held_permille: Mutex<u64>,
    /// Until when nothing passes between a node and a master.
    cuts: Mutex<BTreeMap<(usize, usize), Instant>>,
    /// When the last of what was kept back arrives.
    last: Mutex<Option<Instant>>,
}

impl Weather {
    pub fn cut(&self, node: usize, master: usize, until: Instant) {
        self.cuts.lock().insert((node, master), until);
        self.kept_back(until);
    }

    fn kept_back(&self, until: Instant) {
        let mut last = self.last.lock();
        *last = Some(last.map_or(until, |last| last.max(until)));
    }

    /// Waits until everything that was kept back has arrived.
    pub async fn cleared(&self) {
        loop {
            let last = *self.last.lock();
            match last {
                Some(last) if last > Instant::now() => sleep_until(last).await,
                _ => return,
            }
        }
    }

    fn cut_until(&self, node: usize, master: usize) -> Option<Instant> {
        self.cuts.lock().get(&(node, master)).copied().filter(|until| *until > Instant::now())
    }
}

/// Who listens at which address.
#[derive(Debug, Default)]
pub struct Addresses(Mutex<BTreeMap<String, (usize, Arc<Server>)>>);

impl Addresses {
    /// A master's address, of so many that it has had.
    pub fn of(master: usize, nth: usize) -> String {
        format!("m{master}:{}", usize::from(PORT) + nth)
    }

    pub fn add(&self, master: usize, server: &Arc<Server>) {
        self.0.lock().insert(server.addr().to_owned(), (master, server.clone()));
    }

    fn at(&self, addr: &str) -> Option<(usize, Arc<Server>)> {
        self.0.lock().get(addr).cloned()
    }
}

/// One node's part of the network.
#[derive(Debug)]
pub struct NodeNet {
    pub number: usize,
    addresses: Arc<Addresses>,
    weather: Arc<Weather>,
    dice: Arc<Dice>,
    trace: Arc<Trace>,
    ports: AtomicU64,
    /// Bytes that were lost or late: calls that were sent more than once.
    pub disturbed: AtomicU64,
    /// The node is stopped until then: it sends nothing, and hears of nothing.
    stopped: Mutex<Option<Instant>>,
}

impl NodeNet {
    pub fn new(
        number: usize,
        addresses: &Arc<Addresses>,
        weather: &Arc<Weather>,
        dice: &Arc<Dice>,
        trace: &Arc<Trace>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            addresses: addresses.clone(),
            weather: weather.clone(),
            dice: dice.clone(),
            trace: trace.clone(),
            ports: AtomicU64::new(1_024),
            disturbed: AtomicU64::new(0),
            stopped: Mutex::default(),
        })
    }

    /// The node stands still until then.
    pub fn stop_until(&self, until: Instant) {
        *self.stopped.lock() = Some(until);
    }

    fn stopped_until(&self) -> Option<Instant> {
        self.stopped.lock().filter(|until| *until > Instant::now())
    }

    /// Waits while the node is stopped.
    pub async fn awake(&self) {
        while let Some(until) = self.stopped_until() {
            sleep_until(until).await;
        }
    }

    fn disturbs(&self) {
        self.disturbed.fetch_add(1, Ordering::Relaxed);
    }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The way of one connection between a node and a master.
#[derive(Debug)]
struct Path {
    node: Arc<NodeNet>,
    master: usize,
    /// The node's address.
    from: String,
}

impl Path {
    fn fate(&self, held: bool) -> Fate {
        let Self { node, master, .. } = self;
        let (dice, weather) = (&node.dice, &node.weather);
        if dice.permille(*weather.lost_permille.lock() + *weather.burst_permille.lock()) {
            node.disturbs();
            return Fate::Breaks;
        }
        let mut at = Instant::now() + millis(dice.below(WAY_MS_MAX + 1));
        if let Some(until) = weather.cut_until(node.number, *master) {
            at = until + millis(dice.below(RETRANSMITTED_MS_MAX));
            weather.kept_back(at);
            node.disturbs();
        } else if held && dice.permille(*weather.held_permille.lock()) {
            at += millis(dice.below(HELD_MS_MAX));
            weather.kept_back(at);
            node.disturbs();
        }
        if let Some(until) = node.stopped_until() {
            at = at.max(until);
            node.disturbs();
        }
        Fate::Arrives(at)
    }

    fn noted(&self, way: &str, bytes: &[u8], fate: Fate) -> Fate {
        let Self { node, master, from } = self;
        node.trace.note(About::Bytes, bytes, || {
            format!("{from} {way} m{master} {} bytes: {}", bytes.len(), printable(bytes, BYTES_SHOWN))
        });
        let after = match fate {
            Fate::Arrives(at) => at.duration_since(Instant::now()),
            Fate::Breaks => Duration::MAX,
        };
        if after > millis(WAY_MS_MAX) {
            node.trace.note(About::Network, way.as_bytes(), || match fate {
                Fate::Breaks => format!("{from} {way} m{master}: the connection breaks"),
                Fate::Arrives(_) => format!("{from} {way} m{master}: kept back for {} ms", after.as_millis()),
            });
        }
        fate
    }
}

/// Bytes as text, shortened to so many.
pub fn printable(bytes: &[u8], most: usize) -> String {
    let shown = bytes[..bytes.len().min(most)].escape_ascii();
    if bytes.len() > most { format!("{shown}…") } else { shown.to_string() }
}

impl Way for Path {
    fn there(&self, bytes: &[u8]) -> Fate {
        self.noted("->", bytes, self.fate(true))
    }

    fn back(&self, bytes: &[u8]) -> Fate {
        self.noted("<-", bytes, self.fate(false))
    }
}

/// How a node connects.
#[derive(Clone, Debug)]
pub struct NodeDial(pub Arc<NodeNet>);

impl Dial for NodeDial {
    fn dial(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> {
        let (node, addr) = (self.0.clone(), format!("{host}:{port}"));
        Box::pin(async move {
            node.awake().await;
            node.dice.pause(WAY_MS_MAX).await;
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let (master, server) = node.addresses.at(&addr).ok_or_else(refused)?;
            while let Some(until) = node.weather.cut_until(node.number, master) {
                sleep_until(until).await;
            }
            let from = format!("n{}:{}", node.number, node.ports.fetch_add(1, Ordering::Relaxed));
            let socket = connect(&server, &from, Arc::new(Path { node: node.clone(), master, from: from.clone() }));
            let is = if socket.is_ok() { "connected to" } else { "refused by" };
            node.trace.note(About::Network, from.as_bytes(), || format!("{from} {is} {addr}"));
            let socket = socket?;
            Ok(Box::new(socket) as Box<dyn ByteStream>)
        })
    }
}
