//! A way to Redis on which answers get lost: what was asked is done, and nobody hears of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A proxy before a server on `port`. Ends with its test's runtime.
pub struct LossyWay {
    pub url: String,
    lose: Arc<AtomicBool>,
    /// The next loss is a cut.
    then_cut: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
}

impl LossyWay {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let lose = Arc::new(AtomicBool::new(false));
        let (losing, cut, then_cut) = (lose.clone(), Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (is_cut, cuts) = (cut.clone(), then_cut.clone());
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let ((from_caller, to_caller), (from_server, to_server)) = (caller.into_split(), server.into_split());
                tokio::spawn(carry(from_caller, to_server, is_cut.clone(), None));
                tokio::spawn(carry(from_server, to_caller, is_cut.clone(), Some((losing.clone(), cuts.clone()))));
            }
        });
        Self { url, lose, then_cut, cut }
    }

    /// The next answer is lost, and its connection with it.
    pub fn lose_next(&self) {
        self.lose.store(true, Ordering::SeqCst);
    }

    /// The same, and nothing comes through from that answer on.
    pub fn lose_next_and_cut(&self) {
        self.then_cut.store(true, Ordering::SeqCst);
        self.lose_next();
    }

    /// Nothing comes through, on the connections there are and on new ones, until it is fixed.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    pub fn has_lost(&self) -> bool {
        !self.lose.load(Ordering::SeqCst)
    }
}

/// `lose`: whether the next answer is lost, and whether the way is cut with it.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    cut: Arc<AtomicBool>,
    lose: Option<(Arc<AtomicBool>, Arc<AtomicBool>)>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if cut.load(Ordering::SeqCst) {
            return;
        }
        if let Some((lose, then_cut)) = &lose
            && lose.load(Ordering::SeqCst)
        {
            // Before anybody sees that it is lost, and the caller that its connection has ended.
            if then_cut.swap(false, Ordering::SeqCst) {
                cut.store(true, Ordering::SeqCst);
            }
            if lose.swap(false, Ordering::SeqCst) {
                return;
            }
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
