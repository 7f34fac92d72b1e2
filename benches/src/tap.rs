//! A tap on the line to Redis: passes bytes on and keeps what the client sends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

type Streams = Arc<Mutex<Vec<Arc<Mutex<Vec<u8>>>>>>;

/// A tap on the line to Redis: passes bytes on and keeps what the client sends. Ends with the process.
pub struct Tap {
    /// Where to connect instead of the server.
    pub port: u16,
    streams: Streams,
}

impl Tap {
    /// Listens on a free port and connects through to `server`.
    ///
    /// # Errors
    ///
    /// No port was to be had.
    pub fn on(server: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let tap = Self { port: listener.local_addr()?.port(), streams: Streams::default() };
        let streams = tap.streams.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { return };
                let kept = Arc::new(Mutex::new(Vec::new()));
                streams.lock().push(kept.clone());
                let (Ok(back_from), Ok(back_to)) = (to.try_clone(), client.try_clone()) else { return };
                thread::spawn(move || pass(client, to, |bytes| kept.lock().extend_from_slice(bytes)));
                thread::spawn(move || pass(back_from, back_to, |_| ()));
            }
        });
        Ok(tap)
    }

    /// What was sent since the last call, one stream for each connection.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<u8>> {
        self.streams.lock().iter().map(|kept| std::mem::take(&mut *kept.lock())).collect()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, seen: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        seen(&buffer[..n]);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
