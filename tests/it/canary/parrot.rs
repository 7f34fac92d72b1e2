//! Targets that never answer, or that repeat all that they are given.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const INFO: &str = "INFO {\"server_id\":\"X\",\"version\":\"2.10.0\",\"proto\":1,\"host\":\"127.0.0.1\",\
    \"port\":4222,\"headers\":true,\"max_payload\":1048576,\"auth_required\":true,\"nonce\":\"PXoWU7zWAMt75FY\"}\r\n";

/// What a parrot does with what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manner {
    Silent,
    Raw,
    Redis,
    Nats,
}

/// A target that speaks just enough of a protocol to repeat what it was given.
pub struct Parrot {
    pub address: String,
    given: Arc<Mutex<Vec<u8>>>,
}

impl Parrot {
    pub async fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let given = Arc::new(Mutex::new(Vec::new()));
        let heard = given.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(repeat(socket, manner, heard.clone()));
            }
        });
        Self { address, given }
    }

    pub fn given(&self) -> String {
        String::from_utf8_lossy(&self.given.lock()).into_owned()
    }
}

/// Until the other side has enough.
async fn repeat(mut socket: TcpStream, manner: Manner, heard: Arc<Mutex<Vec<u8>>>) -> Option<()> {
    if manner == Manner::Nats {
        socket.write_all(INFO.as_bytes()).await.ok()?;
    }
    let mut chunk = vec![0; 64 << 10];
    loop {
        let length = socket.read(&mut chunk).await.ok().filter(|length| *length > 0)?;
        heard.lock().extend_from_slice(&chunk[..length]);
        let text = String::from_utf8_lossy(&chunk[..length]).replace(['\r', '\n'], " ");
        let answer = match manner {
            Manner::Silent => continue,
            Manner::Raw => chunk[..length].to_vec(),
            Manner::Redis => format!("-WRONGPASS I was given {text}\r\n").into_bytes(),
            Manner::Nats => format!("-ERR 'I was given {text}'\r\n").into_bytes(),
        };
        socket.write_all(&answer).await.ok()?;
    }
}
