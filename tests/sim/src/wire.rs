//! The network between one node and one master: connections, and what becomes of what is sent over them.
//!
//! What was written to a connection arrives in its order, also after the node has closed it; between
//! connections there is no order. A cut holds everything back, and TCP delivers it some time after the end of the cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::draw::Dice;
use crate::server::{Refusal, Seat, Sent, Server};

/// Longest way to a master and back, each, in virtual time.
const WAY_MS_MAX: u64 = 3;
/// Longest time that bytes of one connection are kept back by a proxy or a router.
const HELD_MS_MAX: u64 = 14_000;
/// Longest time after a cut until TCP sends again what was not acknowledged.
const RETRANSMITTED_MS_MAX: u64 = 9_000;
/// Longest time until a replica has what an answer waits for.
const LAG_MS_MAX: u64 = 20;

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

/// What an answer waits for, and what it is about.
#[derive(Clone, Debug)]
pub enum Kept {
    /// Nothing: a look, or a change that a failover may undo.
    No,
    /// The shard, as it is when the call was carried out, is on the replica.
    Shard(Seat),
    /// The records of the topics are.
    Topics,
}

/// One connection.
#[derive(Debug)]
pub struct Wire {
    node: usize,
    master: usize,
    server: Arc<Server>,
    weather: Arc<Weather>,
    dice: Arc<Dice>,
    pub client: u64,
    pub generation: u64,
    /// When the last of what was sent arrives.
    arrives: Mutex<Instant>,
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Wire {
    /// Connects; none: nothing passes at present.
    pub async fn open(
        node: usize,
        master: usize,
        server: &Arc<Server>,
        weather: &Arc<Weather>,
        dice: &Arc<Dice>,
    ) -> Option<Arc<Self>> {
        dice.pause(WAY_MS_MAX).await;
        if weather.cut_until(node, master).is_some() {
            return None;
        }
        let (client, generation) = server.connect();
        Some(Arc::new(Self {
            node,
            master,
            server: server.clone(),
            weather: weather.clone(),
            dice: dice.clone(),
            client,
            generation,
            arrives: Mutex::new(Instant::now()),
        }))
    }

    fn is_lost(&self) -> bool {
        self.dice.permille(*self.weather.lost_permille.lock() + *self.weather.burst_permille.lock())
    }

    /// When what is sent now arrives.
    fn arrival(&self) -> Instant {
        let mut at = Instant::now() + millis(self.dice.below(WAY_MS_MAX + 1));
        if let Some(until) = self.weather.cut_until(self.node, self.master) {
            at = until + millis(self.dice.below(RETRANSMITTED_MS_MAX));
            self.weather.kept_back(at);
        } else if self.dice.permille(*self.weather.held_permille.lock()) {
            at += millis(self.dice.below(HELD_MS_MAX));
            self.weather.kept_back(at);
        }
        let mut arrives = self.arrives.lock();
        *arrives = at.max(*arrives);
        *arrives
    }

    /// Sends a call. The answer, or nothing at once: the connection broke, or nothing for ever.
    pub fn send<T: Send + 'static>(
        self: &Arc<Self>,
        sent: Sent,
        kept: Kept,
        script: impl FnOnce(&Server, &Sent) -> Result<T, Refusal> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, Refusal>> {
        let (answer, answered) = oneshot::channel();
        if self.is_lost() {
            return answered;
        }
        let (wire, at) = (self.clone(), self.arrival());
        tokio::spawn(async move {
            sleep_until(at).await;
            let server = &wire.server;
            if !server.listens_to(wire.client, wire.generation) {
                return;
            }
            let reply = script(server, &sent);
            if !matches!(kept, Kept::No) {
                wire.dice.pause(LAG_MS_MAX).await;
                if server.generation() != wire.generation {
                    return;
                }
                match &kept {
                    Kept::Shard(seat) => server.mirror(seat),
                    _ => server.mirror_catalogue(),
                }
            }
            wire.dice.pause(WAY_MS_MAX).await;
            if let Some(until) = wire.weather.cut_until(wire.node, wire.master) {
                sleep_until(until + millis(wire.dice.below(RETRANSMITTED_MS_MAX))).await;
            }
            if !wire.is_lost() {
                let _ = answer.send(reply);
            }
        });
        answered
    }
}
