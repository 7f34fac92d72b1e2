//! The shared connection to a broker, and its channels.
//!
//! A channel serves one batch at a time: a returned message names no confirm, so only a batch that
//! has its channel for itself knows which of its messages came back.

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use lapin::options::ConfirmSelectOptions;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::AMQPUri;
use lapin::{Channel, ConnectionProperties, DefaultConnectionBuilder, Event};
use parking_lot::Mutex;

/// A peer that is silent for about twice this is given up. Seconds.
const HEARTBEAT_S: u16 = 10;

/// The shared connection to a broker, and its channels.
pub(super) struct Connection {
    inner: lapin::Connection,
    idle: Mutex<Vec<Channel>>,
    news: Mutex<News>,
}

/// What the broker said of the connection as a whole, and was not asked.
struct News {
    events: BoxStream<'static, Event>,
    blocked: Option<String>,
}

impl Connection {
    /// Connects and logs in.
    pub(super) async fn open(uri: &AMQPUri, tls: &OwnedTLSConfig) -> lapin::Result<Self> {
        let mut uri = uri.clone();
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        let properties = ConnectionProperties::default().with_connection_name("duetime".into());
        let builder = DefaultConnectionBuilder::new()?.with_uri(uri).with_properties(properties);
        let inner = builder.with_tls_config(tls.clone()).connect().await?;
        let news = News { events: inner.events_listener().boxed(), blocked: None };
        Ok(Self { inner, idle: Mutex::default(), news: Mutex::new(news) })
    }

    /// Why the broker takes nothing at the moment, if so.
    pub(super) fn blocked(&self) -> Option<String> {
        let mut news = self.news.lock();
        // Read when somebody wants to know: each batch does, so few wait here, and no task is needed.
        while let Some(Some(event)) = news.events.next().now_or_never() {
            match event {
                Event::ConnectionBlocked(reason) => news.blocked = Some(reason),
                Event::ConnectionUnblocked => news.blocked = None,
                _ => {}
            }
        }
        news.blocked.clone()
    }

    /// Whether it can still be used.
    pub(super) fn is_open(&self) -> bool {
        self.inner.status().connected()
    }

    /// A channel with confirms that nobody else uses.
    pub(super) async fn channel(&self) -> lapin::Result<Channel> {
        loop {
            let kept = self.idle.lock().pop();
            match kept {
                Some(channel) if channel.status().connected() => return Ok(channel),
                Some(_) => {}
                None => break,
            }
        }
        self.fresh_channel().await
    }

    /// A channel with confirms that the broker has just opened.
    pub(super) async fn fresh_channel(&self) -> lapin::Result<Channel> {
        let channel = self.inner.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Keeps a channel whose messages all have their confirms. Any other one is dropped instead.
    pub(super) fn keep(&self, channel: Channel) {
        self.idle.lock().push(channel);
    }
}
