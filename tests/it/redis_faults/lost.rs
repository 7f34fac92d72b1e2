//! A way to Redis on which answers get lost: what was asked is done, and nobody hears of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What every call of the store's is sent as; what its connections ask besides is not the answer to lose.
const SCRIPT: &[u8] = b"EVALSHA";

/// What becomes of the answers.
#[derive(Default)]
struct Fate {
    /// The next answer to a script is lost.
    lose: AtomicBool,
    /// That loss is a cut.
    then_cut: AtomicBool,
    cut: AtomicBool,
}

/// A proxy before a server on `port`. Ends with its test's runtime.
pub struct LossyWay {
    pub url: String,
    fate: Arc<Fate>,
}

impl LossyWay {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let fate = Arc::<Fate>::default();
        let of_all = fate.clone();
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                if of_all.cut.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let ((from_caller, to_caller), (from_server, to_server)) = (caller.into_split(), server.into_split());
                let asked = Arc::<AtomicBool>::default();
                tokio::spawn(carry_calls(from_caller, to_server, of_all.clone(), asked.clone()));
                tokio::spawn(carry_answers(from_server, to_caller, of_all.clone(), asked));
            }
        });
        Self { url, fate }
    }

    /// The next answer to a script is lost, and its connection with it.
    pub fn lose_next(&self) {
        self.fate.lose.store(true, Ordering::SeqCst);
    }

    /// The same, and nothing comes through from that answer on.
    pub fn lose_next_and_cut(&self) {
        self.fate.then_cut.store(true, Ordering::SeqCst);
        self.lose_next();
    }

    /// Nothing comes through, on the connections there are and on new ones, until it is fixed.
    pub fn cut(&self, cut: bool) {
        self.fate.cut.store(cut, Ordering::SeqCst);
    }

    pub fn has_lost(&self) -> bool {
        !self.fate.lose.load(Ordering::SeqCst)
    }
}

/// `asked`: whether a script was sent on this connection while an answer was to be lost.
async fn carry_calls(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, fate: Arc<Fate>, asked: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if fate.cut.load(Ordering::SeqCst) {
            return;
        }
        // Before it is sent: its answer may be there at once.
        if fate.lose.load(Ordering::SeqCst) && buffer[..read].windows(SCRIPT.len()).any(|part| part == SCRIPT) {
            asked.store(true, Ordering::SeqCst);
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn carry_answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, fate: Arc<Fate>, asked: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if fate.cut.load(Ordering::SeqCst) {
            return;
        }
        if asked.load(Ordering::SeqCst) && fate.lose.load(Ordering::SeqCst) {
            // Before anybody sees that it is lost, and the caller that its connection has ended.
            if fate.then_cut.swap(false, Ordering::SeqCst) {
                fate.cut.store(true, Ordering::SeqCst);
            }
            if fate.lose.swap(false, Ordering::SeqCst) {
                return;
            }
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
