//! How one node calls the masters: as `duetime-redis` does, over the simulated network.
//!
//! A call is sent again while that can help, and only when the sending before cannot be carried out any more: the
//! abandoned connection was ended at the server, or the server's own clock is past the call's end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::{Clock as _, StoreError, Timestamp};
use duetime_request::RequestDeadline;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clocks::SimClock;
use crate::draw::Dice;
use crate::mutation::Mutation;
use crate::server::{Refusal, Sent, Server};
use crate::wire::{Kept, Weather, Wire};

/// Longest wait for one answer.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call is sent again.
const RETRY_FOR: Duration = Duration::from_secs(15);
/// Longest pause before it is.
const BACKOFF_MS_MAX: u64 = 200;
/// Connections to one master.
const CONNECTIONS: u64 = 2;

/// A node's own part of the world.
#[derive(Debug)]
pub struct Link {
    pub node: usize,
    pub clock: Arc<SimClock>,
    pub servers: Vec<Arc<Server>>,
    pub weather: Arc<Weather>,
    pub dice: Arc<Dice>,
    /// Whether this node's user may end connections.
    pub may_end: bool,
    /// Calls that were given a name without a draw.
    named: AtomicU64,
    /// Calls that were sent more than once.
    pub repeated: AtomicU64,
    /// The node is stopped until then.
    stopped: Mutex<Option<Instant>>,
    /// By how much each master's clock is ahead, as last measured.
    apart_ms: Mutex<Vec<i64>>,
    wires: Mutex<Vec<Vec<Option<Arc<Wire>>>>>,
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { doing: "ask over a bad network", source: "no answer".into() }
}

impl Link {
    pub fn new(
        node: usize,
        clock: Arc<SimClock>,
        servers: &[Arc<Server>],
        weather: &Arc<Weather>,
        dice: &Arc<Dice>,
        may_end: bool,
    ) -> Self {
        let wires = servers.iter().map(|_| (0..CONNECTIONS).map(|_| None).collect()).collect();
        Self {
            node,
            clock,
            servers: servers.to_vec(),
            weather: weather.clone(),
            dice: dice.clone(),
            may_end,
            named: AtomicU64::new((node as u64) << 48),
            repeated: AtomicU64::new(0),
            stopped: Mutex::default(),
            apart_ms: Mutex::new(vec![0; servers.len()]),
            wires: Mutex::new(wires),
        }
    }

    /// A name for a call that no other call of any node has.
    pub fn name(&self) -> u64 {
        self.named.fetch_add(1, Ordering::Relaxed)
    }

    /// The node stands still until then: it sends nothing, and hears of nothing.
    pub fn stop_until(&self, until: Instant) {
        *self.stopped.lock() = Some(until);
    }

    async fn awake(&self) {
        loop {
            let until = *self.stopped.lock();
            match until {
                Some(until) if until > Instant::now() => sleep_until(until).await,
                _ => return,
            }
        }
    }

    async fn wire(&self, master: usize) -> Option<(usize, Arc<Wire>)> {
        let nth = usize::try_from(self.dice.below(CONNECTIONS)).expect("few");
        let open = self.wires.lock()[master][nth].clone();
        if let Some(open) = open {
            return Some((nth, open));
        }
        let made = Wire::open(self.node, master, &self.servers[master], &self.weather, &self.dice).await?;
        self.wires.lock()[master][nth] = Some(made.clone());
        Some((nth, made))
    }

    fn close(&self, master: usize, nth: usize, wire: &Arc<Wire>) {
        let mut wires = self.wires.lock();
        let slot = &mut wires[master][nth];
        if slot.as_ref().is_some_and(|open| Arc::ptr_eq(open, wire)) {
            *slot = None;
        }
    }

    /// By how much the master's clock is ahead of this node's, as last measured.
    pub fn apart_ms(&self, master: usize) -> i64 {
        self.apart_ms.lock()[master]
    }

    /// Asks the master's time over a connection of its own.
    async fn measure(&self, master: usize, ends: Option<u64>) -> Option<(Timestamp, u64)> {
        self.awake().await;
        let wire = Wire::open(self.node, master, &self.servers[master], &self.weather, &self.dice).await?;
        let sent = Sent { not_after: Timestamp::from_millis(i64::MAX), caller: self.clock.now(), repeated: false };
        let ask = move |server: &Server, _: &Sent| {
            if let Some(client) = ends {
                server.end(client);
            }
            Ok::<_, Refusal>(server.clock.now())
        };
        let answer = timeout(RESPONSE_TIMEOUT, wire.send(sent, Kept::No, ask)).await;
        self.awake().await;
        let time = answer.ok()?.ok()?.ok()?;
        self.apart_ms.lock()[master] = time.as_millis() - self.clock.now().as_millis();
        Some((time, wire.generation))
    }

    /// Returns once what was sent over `wire` is not carried out any more.
    async fn put_past(&self, master: usize, wire: &Wire, sent: &Sent) {
        if self.servers[master].leaves_out(Mutation::LateCalls) {
            return;
        }
        loop {
            let ends = self.may_end.then_some(wire.client);
            if let Some((time, generation)) = self.measure(master, ends).await
                && (self.may_end || generation != wire.generation || time > sent.not_after)
            {
                return;
            }
            self.dice.pause(BACKOFF_MS_MAX).await;
        }
    }

    /// Calls one master. `writes`: what was sent must be put past before it is sent again.
    pub async fn call<T: Send + 'static>(
        &self,
        master: usize,
        writes: bool,
        kept: Kept,
        script: impl Fn(&Server, &Sent) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let mut repeated = false;
        let end = RequestDeadline::of_task();
        loop {
            self.awake().await;
            if end.is_some_and(RequestDeadline::has_passed) {
                return Err(unavailable());
            }
            if let Some((nth, wire)) = self.wire(master).await {
                let now = self.clock.now();
                let end = Timestamp::from_millis(now.as_millis() + self.apart_ms(master)).plus(RESPONSE_TIMEOUT);
                let sent = Sent { not_after: end, caller: now, repeated };
                // A node may be stopped between the two.
                self.awake().await;
                let script = script.clone();
                let act = move |server: &Server, sent: &Sent| {
                    if writes && server.is_late(sent) {
                        Err(Refusal::Late)
                    } else {
                        script(server, sent).map_err(Refusal::Store)
                    }
                };
                let answer = timeout(RESPONSE_TIMEOUT, wire.send(sent, kept.clone(), act)).await;
                self.awake().await;
                match answer {
                    Ok(Ok(Ok(answer))) => return Ok(answer),
                    Ok(Ok(Err(Refusal::Store(error)))) => return Err(error),
                    Ok(Ok(Err(Refusal::Late))) => {
                        self.measure(master, None).await;
                    }
                    Ok(Err(_)) | Err(_) => {
                        self.close(master, nth, &wire);
                        if writes {
                            repeated = true;
                            self.repeated.fetch_add(1, Ordering::Relaxed);
                            self.put_past(master, &wire, &sent).await;
                        }
                    }
                }
            }
            if began.elapsed() >= RETRY_FOR {
                return Err(unavailable());
            }
            self.dice.pause(BACKOFF_MS_MAX).await;
        }
    }
}
