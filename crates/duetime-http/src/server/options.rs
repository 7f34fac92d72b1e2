//! What an operator may set about the listener, beside the tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use duetime_core::TopicConfig;
use duetime_core::tracer::Tracer;

use crate::audit::Audit;
use crate::auth::origin::Hosts;
use crate::auth::shares::Shares;
use crate::server::connections::ConnectionBounds;
use crate::server::consumers::NamedConsumers;
use crate::server::first_message::FirstMessages;
use crate::server::peers::Peers;
use crate::server::tls::Tls;

/// What an operator may set about the listener, beside the tokens. The default suits a node on a loopback address.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// The names this node goes by.
    pub hosts: Hosts,
    /// How many connections may be open.
    pub connections: ConnectionBounds,
    /// What tenants share: the memory that all requests together may take, and more.
    pub shares: Shares,
    /// The lock for making a topic where there is a limit of topics, so that two requests do not make two.
    pub making_topics: Arc<tokio::sync::Mutex<()>>,
    /// Where changes are recorded.
    pub audit: Audit,
    /// Keys of the listener; `None`: no TLS.
    pub tls: Option<Tls>,
    /// The topics of this node's configuration: where settings come from.
    pub topics: Arc<BTreeMap<String, TopicConfig>>,
    /// Which topics are made by their first message.
    pub first_messages: Arc<FirstMessages>,
    /// The consumers that name themselves, as the node sees them.
    pub named_consumers: Arc<NamedConsumers>,
    /// The other nodes, which are asked for figures of their own.
    pub peers: Peers,
    /// Records what consumers claim; `None`: nobody does.
    pub tracer: Option<Arc<dyn Tracer>>,
}
