//! A network that fails: a TCP proxy that delays, cuts, loses or holds the answers, and heals.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wait::{Because, let_pass};

/// Bytes taken at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// What the network does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Each chunk, in each direction, is late by this much.
    Passing(Duration),
    /// Connections are closed, new ones too.
    Cut,
    /// Requests arrive, answers do not, and nobody is notified.
    AnswersLost,
    /// Requests arrive, answers wait until all is well again.
    AnswersHeld,
}

/// Which request is kept back, and whether its caller is cut off.
#[derive(Debug)]
struct Wanted {
    pattern: Vec<u8>,
    cut: bool,
}

/// What is kept back: requests from the first on that contains this, of one connection.
#[derive(Clone, Debug, Default)]
struct Keep {
    /// What to keep back; the connection that meets it takes it.
    wanted: Arc<Mutex<Option<Wanted>>>,
    kept: Arc<AtomicUsize>,
    delivering: watch::Sender<bool>,
}

impl Keep {
    /// Whether this connection is the one, and whether its caller is cut off.
    fn takes(&self, chunk: &[u8]) -> Option<bool> {
        let mut wanted = self.wanted.lock().expect("nobody panics with it");
        let pattern = &wanted.as_ref()?.pattern;
        chunk.windows(pattern.len()).any(|part| part == pattern).then(|| wanted.take())?.map(|taken| taken.cut)
    }
}

/// A network that fails: a TCP proxy that delays, cuts, loses or holds the answers, and heals. Ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    weather: watch::Sender<Weather>,
    accepting: JoinHandle<()>,
    asked: Arc<AtomicUsize>,
    keep: Keep,
}

impl Proxy {
    /// A healthy network before the server on `port`.
    pub async fn before(port: u16) -> Self {
        Self::on(Ipv4Addr::LOCALHOST, port).await
    }

    /// The same, listening on this address of the machine.
    pub async fn on(host: Ipv4Addr, port: u16) -> Self {
        let listener = TcpListener::bind((host, 0)).await.expect("a free port");
        let own = listener.local_addr().expect("it is bound").port();
        let (weather, seen) = watch::channel(Weather::Passing(Duration::ZERO));
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let keep = Keep::default();
        let keeping = keep.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                counted.fetch_add(1, Ordering::Relaxed);
                if *seen.borrow() == Weather::Cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(target).await else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (lost, is_lost) = watch::channel(false);
                tokio::spawn(carry(from_client, to_server, seen.clone(), Some((keeping.clone(), lost))));
                let answers = carry(from_server, to_client, seen.clone(), None);
                tokio::spawn(until_lost(answers, is_lost));
            }
        });
        Self { port: own, weather, accepting, asked, keep }
    }

    /// How many connections were asked for so far, also those that were closed at once.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Each chunk is late by this much, in each direction.
    pub fn delay(&self, by: Duration) {
        self.weather.send_replace(Weather::Passing(by));
    }

    /// Closes all connections and takes no new ones.
    pub fn cut(&self) {
        self.weather.send_replace(Weather::Cut);
    }

    /// Requests arrive, answers are lost; connections stay open.
    pub fn lose_answers(&self) {
        self.weather.send_replace(Weather::AnswersLost);
    }

    /// Requests arrive, answers wait until [`Proxy::heal`]; connections stay open.
    pub fn hold_answers(&self) {
        self.weather.send_replace(Weather::AnswersHeld);
    }

    /// From the next request on that contains `pattern`, what comes on its connection is kept back until
    /// [`Proxy::deliver`], as a network that sends again what was lost does: also when the caller has gone. `cut`:
    /// the caller learns at once that the connection is closed.
    pub fn keep_back(&self, pattern: &[u8], cut: bool) {
        self.keep.delivering.send_replace(false);
        *self.keep.wanted.lock().expect("nobody panics with it") = Some(Wanted { pattern: pattern.to_vec(), cut });
    }

    /// How many requests were kept back so far.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.keep.kept.load(Ordering::SeqCst)
    }

    /// What was kept back reaches the server now.
    pub fn deliver(&self) {
        self.keep.delivering.send_replace(true);
    }

    /// All is well again. A connection that lost an answer is closed: TCP loses no part of a stream.
    pub fn heal(&self) {
        self.weather.send_replace(Weather::Passing(Duration::ZERO));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.weather.send_replace(Weather::Cut);
    }
}

/// Carries answers until the caller is cut off.
async fn until_lost(answers: impl Future<Output = ()>, mut lost: watch::Receiver<bool>) {
    tokio::select! {
        () = answers => {}
        Ok(_) = lost.wait_for(|lost| *lost) => {}
    }
}

/// Carries one direction; `keep`: it is that of requests.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    keep: Option<(Keep, watch::Sender<bool>)>,
) {
    let answers = keep.is_none();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut lost = false;
    loop {
        let now = *weather.borrow_and_update();
        if now == Weather::Cut || (lost && now != Weather::AnswersLost) {
            return;
        }
        let length = tokio::select! {
            biased;
            changed = weather.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            read = from.read(&mut chunk) => match read {
                Ok(length) if length > 0 => length,
                _ => return,
            },
        };
        let held = |now: &Weather| answers && *now == Weather::AnswersHeld;
        let Ok(now) = weather.wait_for(|now| !held(now)).await.map(|now| *now) else { return };
        match now {
            Weather::Cut => return,
            Weather::AnswersLost if answers => {
                lost = true;
                continue;
            }
            Weather::AnswersLost | Weather::AnswersHeld => {}
            Weather::Passing(_) if lost => return,
            Weather::Passing(by) => {
                if !by.is_zero() {
                    let_pass(by, Because::Fault).await;
                }
            }
        }
        if let Some((keep, lost)) = &keep
            && let Some(cut) = keep.takes(&chunk[..length])
        {
            let mut delivering = keep.delivering.subscribe();
            keep.kept.fetch_add(1, Ordering::SeqCst);
            if cut {
                lost.send_replace(true);
                // The caller's socket is closed when both halves of it are gone; ours goes on without it.
                drop(from);
                let _ = delivering.wait_for(|now| *now).await;
                let _ = to.write_all(&chunk[..length]).await;
                let _ = to.shutdown().await;
                return;
            }
            let _ = delivering.wait_for(|now| *now).await;
        }
        if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    async fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = socket.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        port
    }

    /// For an answer that must come.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// For one that must not come.
    const QUIET: Duration = Duration::from_millis(200);

    async fn ask(socket: &mut TcpStream, within: Duration) -> Option<[u8; 2]> {
        socket.write_all(b"hi").await.ok()?;
        let mut answer = [0; 2];
        timeout(within, socket.read_exact(&mut answer)).await.ok()?.ok()?;
        Some(answer)
    }

    #[tokio::test]
    async fn what_is_cut_lost_or_held_is_healed() {
        let proxy = Proxy::before(echo().await).await;
        let connect = async || TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        let mut socket = connect().await;
        assert_eq!(ask(&mut socket, PATIENCE).await, Some(*b"hi"));
        proxy.lose_answers();
        assert_eq!(ask(&mut socket, QUIET).await, None);
        proxy.heal();
        assert_eq!(ask(&mut connect().await, PATIENCE).await, Some(*b"hi"));
        let mut socket = connect().await;
        proxy.hold_answers();
        assert_eq!(ask(&mut socket, QUIET).await, None);
        proxy.heal();
        let mut answer = [0; 2];
        assert!(timeout(PATIENCE, socket.read_exact(&mut answer)).await.is_ok(), "it comes late");
        let before = proxy.connections();
        let mut socket = connect().await;
        // The proxy has it by then.
        assert_eq!(ask(&mut socket, PATIENCE).await, Some(*b"hi"));
        proxy.cut();
        assert_eq!(ask(&mut socket, QUIET).await, None);
        proxy.delay(Duration::from_millis(20));
        assert_eq!(ask(&mut connect().await, PATIENCE).await, Some(*b"hi"));
        assert_eq!(proxy.connections(), before + 2);
    }
}
