//! What ends a call that was given up, against a server whose answers the test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::LinkConfig;
use crate::connection::{Server, ServerConnection};
use crate::dial::Endpoint;
use crate::url::RedisUrl;

/// Until the call is over by its own end.
const LIFE: Duration = Duration::from_secs(5);
/// What takes longer does not happen any more, on a slow machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// What waits for the end of a call waits longer than [`PATIENCE`].
const LONG: Duration = Duration::from_secs(600);

#[derive(Default)]
struct Orders {
    /// Whether connections may be ended.
    refuses: AtomicBool,
    /// Connections that were to be ended, not counting those that cannot be there.
    killed: AtomicUsize,
    clients: AtomicUsize,
}

/// Answers a greeting, and counts what it is asked to end.
async fn serve(listener: TcpListener, orders: Arc<Orders>) {
    while let Ok((mut socket, _)) = listener.accept().await {
        let (orders, id) = (orders.clone(), orders.clients.fetch_add(1, Ordering::SeqCst) + 1);
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            while let Ok(read @ 1..) = socket.read(&mut buffer).await {
                let asked = String::from_utf8_lossy(&buffer[..read]).into_owned();
                let mut answers = String::new();
                for command in asked.split('*').skip(1) {
                    let has = |word: &str| command.contains(&format!("\r\n{word}\r\n"));
                    answers += &if has("KILL") {
                        let real = has("ADDR");
                        orders.killed.fetch_add(usize::from(real), Ordering::SeqCst);
                        if orders.refuses.load(Ordering::SeqCst) {
                            "-NOPERM no permissions\r\n".to_owned()
                        } else {
                            format!(":{}\r\n", u8::from(real))
                        }
                    } else if has("INFO") {
                        let info = format!("id={id} addr=127.0.0.1:{id} name=");
                        format!("${}\r\n{info}\r\n", info.len())
                    } else if has("TIME") {
                        "*2\r\n$10\r\n1763700000\r\n$1\r\n0\r\n".to_owned()
                    } else {
                        "+OK\r\n".to_owned()
                    };
                }
                if socket.write_all(answers.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

struct World {
    orders: Arc<Orders>,
    port: u16,
    server: Arc<Server>,
    config: LinkConfig,
    serving: JoinHandle<()>,
}

impl World {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let orders = Arc::new(Orders::default());
        let config = LinkConfig::new(RedisUrl::parse(&format!("redis://127.0.0.1:{port}")).unwrap());
        let serving = tokio::spawn(serve(listener, orders.clone()));
        Self { orders, port, server: Server::new(&config), config, serving }
    }

    fn slot(&self) -> Arc<ServerConnection> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        ServerConnection::new(&Endpoint::new(client, None, None), &self.config, &self.server)
    }

    fn killed(&self) -> usize {
        self.orders.killed.load(Ordering::SeqCst)
    }
}

/// Waits until a connection that was refused is tried again, which is after a pause.
async fn tried_again(slot: &Arc<ServerConnection>) {
    let connected = async {
        while slot.get().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), connected).await.expect("a refusal is not for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_for_one_connection_share_the_word_that_ends_it() {
    let world = World::new().await;
    let slot = world.slot();
    let lost = slot.get().await.unwrap();
    let waiting = (0..8).map(|_| {
        let (slot, lost) = (slot.clone(), lost.clone());
        tokio::spawn(async move { slot.fence(&lost, Instant::now() + LONG).await })
    });
    let all = futures::future::join_all(waiting);
    tokio::time::timeout(PATIENCE, all).await.expect("nobody waits for the end of the call");
    assert_eq!(world.killed(), 1);
    assert_ne!(slot.get().await.unwrap().generation, lost.generation);
}

/// On one thread, so that what a caller begins cannot be done before the caller was polled.
#[tokio::test]
async fn a_caller_that_is_polled_no_more_keeps_no_other_from_the_connection() {
    let world = World::new().await;
    let slot = world.slot();
    let polled_once = async |caller: std::pin::Pin<&mut (dyn Future<Output = ()> + Send)>| {
        assert!(futures::poll!(caller).is_pending(), "it waits for the server");
    };
    let mut connects = Box::pin(async { drop(slot.get().await) });
    polled_once(connects.as_mut()).await;
    let lost = tokio::time::timeout(PATIENCE, slot.get()).await.expect("another one connects all the same").unwrap();
    let mut ends = Box::pin(slot.fence(&lost, Instant::now() + LONG));
    polled_once(ends.as_mut()).await;
    let other = slot.fence(&lost, Instant::now() + LONG);
    tokio::time::timeout(PATIENCE, other).await.expect("another one is told that it is over");
    assert_eq!(world.killed(), 1);
    drop((connects, ends));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_end_no_connection_waits_for_the_end_of_the_call_and_no_longer() {
    let world = World::new().await;
    world.orders.refuses.store(true, Ordering::SeqCst);
    let slot = world.slot();
    let lost = slot.get().await.unwrap();
    let began = Instant::now();
    let over = tokio::time::timeout(LIFE * 3, slot.fence(&lost, began + LIFE));
    over.await.expect("no longer");
    assert!(began.elapsed() >= LIFE, "{:?}", began.elapsed());
    tokio::time::timeout(PATIENCE, slot.fence(&lost, began)).await.expect("it was over before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_was_taken_away_since_makes_a_call_wait_for_its_end() {
    let world = World::new().await;
    let slot = world.slot();
    let lost = slot.get().await.unwrap();
    world.orders.refuses.store(true, Ordering::SeqCst);
    let began = Instant::now();
    slot.fence(&lost, began + LIFE).await;
    assert!(began.elapsed() >= LIFE, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_that_is_gone_had_is_ended_before_its_address_is_used_again() {
    let mut world = World::new().await;
    let (slot, other) = (world.slot(), world.slot());
    let lost = slot.get().await.unwrap();
    let unharmed = other.get().await.unwrap();
    world.serving.abort();
    let _ = (&mut world.serving).await;
    let over = tokio::time::timeout(PATIENCE, slot.fence(&lost, Instant::now() + LONG));
    over.await.expect("nobody listens there");
    assert_eq!(world.killed(), 0);
    let listener = TcpListener::bind(("127.0.0.1", world.port)).await.unwrap();
    world.serving = tokio::spawn(serve(listener, world.orders.clone()));
    // Also by connections that did not break.
    let fresh = other.get().await.unwrap();
    assert_ne!(fresh.generation, unharmed.generation);
    assert_eq!(world.killed(), 1);
    tried_again(&slot).await;
    assert_eq!(world.killed(), 1, "it was ended already");
}
