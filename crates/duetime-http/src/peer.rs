//! Where a request came from.

use std::net::SocketAddr;

/// The other end of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub SocketAddr);
