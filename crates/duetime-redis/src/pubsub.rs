//! A subscription that is made again when its connection breaks.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{debug, info};

use crate::link::Link;

/// Hints that wait to be read; further ones are dropped.
const WAITING_MAX: usize = 1024;
/// Pause before a lost subscription is made again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The messages of one channel, as far as they can be had: what is published while the connection
/// is down, or while nobody reads, is lost. Ends when dropped.
#[derive(Debug)]
pub struct Subscription {
    messages: mpsc::Receiver<Vec<u8>>,
    task: JoinHandle<()>,
}

impl Subscription {
    /// The next message.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.messages.recv().await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// Subscribes to `channel` on a connection of its own; any master has every message.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, channel: String) -> Subscription {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let link = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut told = false;
            loop {
                let listening = async {
                    let node = link.topology().node(None).await.map_err(|failure| failure.into_redis())?;
                    let mut pubsub = node.client.get_async_pubsub().await?;
                    pubsub.subscribe(&channel).await?;
                    let mut stream = pubsub.on_message();
                    while let Some(message) = stream.next().await {
                        // A full queue means hints nobody needs any more.
                        let _ = sender.try_send(message.get_payload_bytes().to_vec());
                    }
                    redis::RedisResult::Ok(())
                };
                match listening.await {
                    Ok(()) => debug!(%channel, "subscription lost, making it again"),
                    Err(error) if !told => {
                        told = true;
                        info!(%channel, %error, "no hints from redis; messages are found by the regular look");
                    }
                    Err(error) => debug!(%channel, %error, "cannot subscribe yet"),
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        });
        Subscription { messages, task }
    }
}
