//! Connects to servers of this process, at once and without a fault.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use duetime_redis::{ByteStream, Dial};
use futures::future::{BoxFuture, ready};

use crate::pipe::{Direct, connect};
use crate::server::Server;

/// Connects to servers of this process, at once and without a fault.
#[derive(Debug, Default)]
pub struct SmallRedis {
    servers: BTreeMap<String, Arc<Server>>,
    port: AtomicU16,
}

impl SmallRedis {
    /// To these servers, each at its address.
    #[must_use]
    pub fn of(servers: &[Arc<Server>]) -> Arc<Self> {
        let servers = servers.iter().map(|server| (server.addr().to_owned(), server.clone())).collect();
        Arc::new(Self { servers, port: AtomicU16::new(1024) })
    }
}

impl Dial for SmallRedis {
    fn dial(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> {
        let from = format!("10.1.0.1:{}", self.port.fetch_add(1, Ordering::Relaxed));
        let made = match self.servers.get(&format!("{host}:{port}")) {
            Some(server) => {
                connect(server, &from, Arc::new(Direct)).map(|socket| Box::new(socket) as Box<dyn ByteStream>)
            }
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        };
        Box::pin(ready(made))
    }
}
