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
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::confirm_wait::ConfirmWait;

/// A peer that is silent for about twice this is given up. Seconds.
const HEARTBEAT_S: u16 = 10;

/// Most channels with a batch each, over all topics of a sink: half of what RabbitMQ allows a connection by default.
pub(super) const CHANNELS_MAX: usize = 1_024;

/// Channels of a connection that are left for checks, and for those that are still being closed.
const CHANNELS_SPARE: usize = 32;

/// The shared connection to a broker, and its channels.
pub(super) struct Connection {
    inner: lapin::Connection,
    /// As many batches as the broker allows channels.
    places: Semaphore,
    idle: Mutex<Vec<Channel>>,
    /// When the broker confirmed anything last.
    pub(super) confirms: ConfirmWait,
    news: Mutex<News>,
}

/// What the broker said of the connection as a whole, and was not asked.
struct News {
    events: BoxStream<'static, Event>,
    blocked: Option<String>,
}

impl Connection {
    /// Connects and logs in; a confirm is waited for as `confirms` says.
    pub(super) async fn open(uri: &AMQPUri, tls: &OwnedTLSConfig, confirms: ConfirmWait) -> lapin::Result<Self> {
        let mut uri = uri.clone();
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        let properties = ConnectionProperties::default().with_connection_name("duetime".into());
        let builder = DefaultConnectionBuilder::new()?.with_uri(uri).with_properties(properties);
        let inner = builder.with_tls_config(tls.clone()).connect().await?;
        let news = News { events: inner.events_listener().boxed(), blocked: None };
        let places = Semaphore::new(channels_of(inner.configuration().channel_max()));
        Ok(Self { inner, places, idle: Mutex::default(), confirms, news: Mutex::new(news) })
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

    /// A place for a channel with a batch, of as many as the broker allows.
    pub(super) async fn place(&self) -> SemaphorePermit<'_> {
        self.places.acquire().await.expect("the places are never closed")
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

/// How many batches may have a channel each, where the broker allows a connection `channel_max` (0: any number).
fn channels_of(channel_max: u16) -> usize {
    match usize::from(channel_max) {
        0 => CHANNELS_MAX,
        most => most.saturating_sub(CHANNELS_SPARE).clamp(1, CHANNELS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_never_take_all_channels_that_a_broker_allows() {
        for (channel_max, channels) in [(0, 1_024), (2_047, 1_024), (128, 96), (32, 1), (1, 1)] {
            assert_eq!(channels_of(channel_max), channels, "{channel_max}");
        }
    }
}
