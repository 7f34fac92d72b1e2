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
    cut: Arc<AtomicBool>,
}

impl LossyWay {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let lose = Arc::new(AtomicBool::new(false));
        let (losing, cut) = (lose.clone(), Arc::new(AtomicBool::new(false)));
        let is_cut = cut.clone();
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let ((from_caller, to_caller), (from_server, to_server)) = (caller.into_split(), server.into_split());
                tokio::spawn(carry(from_caller, to_server, is_cut.clone(), None));
                tokio::spawn(carry(from_server, to_caller, is_cut.clone(), Some(losing.clone())));
            }
        });
        Self { url, lose, cut }
    }

    /// The next answer is lost, and its connection with it.
    pub fn lose_next(&self) {
        self.lose.store(true, Ordering::SeqCst);
    }

    /// Nothing comes through, on the connections there are and on new ones, until it is fixed.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    pub fn has_lost(&self) -> bool {
        !self.lose.load(Ordering::SeqCst)
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, cut: Arc<AtomicBool>, lose: Option<Arc<AtomicBool>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if cut.load(Ordering::SeqCst) {
            return;
        }
        if lose.as_ref().is_some_and(|lose| lose.swap(false, Ordering::SeqCst)) {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
