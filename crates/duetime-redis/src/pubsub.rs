//! Subscriptions that are made again when their connection breaks or falls silent, at several masters.
//!
//! A master of a cluster forwards to all others what is published, so one subscription has every message; the
//! further ones are there so that none is lost when a master falls silent. What several forward is passed
//! on once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::Draw;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info};

use crate::node::Node;
use crate::topology::Topology;

/// Hints that wait to be read; further ones are dropped.
const WAITING_MAX: usize = 1024;
/// Pause before a lost subscription is made again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Masters that are subscribed to at most. In a larger cluster each node draws its own.
const MASTERS_MAX: usize = 4;
/// How often the masters are looked up, for those that came and went.
const MASTERS_EVERY: Duration = Duration::from_secs(1);
/// How often a subscription is pinged.
const PING_EVERY: Duration = Duration::from_secs(1);
/// A ping, a connection and a subscription are waited for no longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Messages that are remembered, to distinguish one that several masters forward from one that was published again.
const REMEMBERED_MAX: usize = 1024;
/// Masters forward the same message within this.
const SAME_WITHIN: Duration = Duration::from_secs(2);

/// Passes on what several masters forward, each message once.
#[derive(Debug, Default)]
struct Once {
    /// Who has forwarded a message, and when the first did.
    heard: HashMap<Vec<u8>, (Instant, Vec<u64>)>,
    order: VecDeque<(Instant, Vec<u8>)>,
}

impl Once {
    /// Whether `message` as `master` forwards it is to be passed on. One that the same master forwards again was
    /// published again.
    fn is_new(&mut self, message: &[u8], master: u64, now: Instant) -> bool {
        while let Some((at, oldest)) = self.order.front()
            && (self.order.len() > REMEMBERED_MAX || now.duration_since(*at) > SAME_WITHIN)
        {
            // It may have been published again since; then a later entry is for that.
            if self.heard.get(oldest).is_some_and(|(heard_at, _)| heard_at == at) {
                self.heard.remove(oldest);
            }
            self.order.pop_front();
        }
        if let Some((_, masters)) = self.heard.get_mut(message)
            && !masters.contains(&master)
        {
            masters.push(master);
            return false;
        }
        self.heard.insert(message.to_owned(), (now, vec![master]));
        self.order.push_back((now, message.to_owned()));
        true
    }
}

/// What the subscriptions to one channel share.
#[derive(Clone)]
struct Channel {
    name: Arc<str>,
    to: mpsc::Sender<Vec<u8>>,
    once: Arc<Mutex<Once>>,
}

impl Channel {
    /// Listens at one master until the connection breaks or is silent.
    async fn listen(&self, node: &Node, number: u64) -> Result<(), String> {
        let made = async {
            let mut pubsub = node.endpoint.pubsub().await?;
            pubsub.subscribe(&*self.name).await?;
            redis::RedisResult::Ok(pubsub)
        };
        let (mut pings, mut messages) = match tokio::time::timeout(ANSWER_WITHIN, made).await {
            Ok(Ok(pubsub)) => pubsub.split(),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("{} does not answer in time", node.name)),
        };
        let pinging = async {
            loop {
                tokio::time::sleep(PING_EVERY).await;
                match tokio::time::timeout(ANSWER_WITHIN, pings.ping::<redis::Value>()).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return error.to_string(),
                    Err(_) => return format!("{} does not answer a ping", node.name),
                }
            }
        };
        let reading = async {
            while let Some(message) = messages.next().await {
                let payload = message.get_payload_bytes();
                if self.once.lock().is_new(payload, number, Instant::now()) {
                    // A full queue means hints nobody needs any more.
                    let _ = self.to.try_send(payload.to_vec());
                }
            }
        };
        tokio::select! {
            biased;
            error = pinging => Err(error),
            () = reading => Ok(()),
        }
    }

    /// The same again and again.
    async fn stay(self, node: Arc<Node>, number: u64) {
        let mut is_reported = false;
        loop {
            match self.listen(&node, number).await {
                Ok(()) => debug!(channel = %self.name, "subscription lost, making it again"),
                Err(error) if !is_reported => {
                    is_reported = true;
                    let (channel, node) = (&self.name, &node.name);
                    info!(%channel, %node, %error, "no hints from this redis; without any, looks find the messages");
                }
                Err(error) => debug!(channel = %self.name, %error, "cannot subscribe yet"),
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}

/// See [`Link::subscribe`](crate::Link::subscribe).
pub(crate) async fn subscribe(
    topology: &Topology,
    channel: String,
    draw: &Draw,
    mut pass_on: impl FnMut(Vec<u8>) + Send,
) {
    let (to, mut messages) = mpsc::channel(WAITING_MAX);
    let channel = Channel { name: channel.into(), to, once: Arc::default() };
    let following = follow_masters(topology, channel, draw);
    tokio::pin!(following);
    loop {
        tokio::select! {
            biased;
            () = &mut following => return,
            Some(message) = messages.recv() => pass_on(message),
        }
    }
}

/// Keeps a subscription at each of the masters there are.
async fn follow_masters(topology: &Topology, channel: Channel, draw: &Draw) {
    let mut number = 0;
    let mut listening = JoinSet::new();
    let mut at: Vec<(Arc<Node>, tokio::task::AbortHandle)> = Vec::new();
    loop {
        if let Ok(masters) = topology.masters().await {
            at.retain(|(node, listener)| {
                let stays = masters.iter().any(|master| Arc::ptr_eq(master, node)) && !listener.is_finished();
                if !stays {
                    listener.abort();
                }
                stays
            });
            let mut new: Vec<Arc<Node>> = masters;
            new.retain(|master| !at.iter().any(|(node, _)| Arc::ptr_eq(master, node)));
            while at.len() < MASTERS_MAX && !new.is_empty() {
                let node = new.swap_remove(usize::try_from(draw.below(new.len() as u64)).expect("below a usize"));
                number += 1;
                let listener = listening.spawn(channel.clone().stay(node.clone(), number));
                at.push((node, listener));
            }
        }
        while listening.try_join_next().is_some() {}
        tokio::time::sleep(MASTERS_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_several_masters_forward_is_passed_on_once_and_what_is_published_again_again() {
        let mut once = Once::default();
        let now = Instant::now();
        assert!(once.is_new(b"a 1 5", 1, now));
        assert!(!once.is_new(b"a 1 5", 2, now) && !once.is_new(b"a 1 5", 3, now));
        assert!(once.is_new(b"a 1 5", 2, now), "the second master forwards another publication");
        assert!(!once.is_new(b"a 1 5", 1, now));
        assert!(once.is_new(b"a 2 5", 3, now), "the first to forward may be any");
        assert!(once.is_new(b"a 2 5", 1, now + SAME_WITHIN * 2), "a message of long ago is another one");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_messages_are_remembered_than_allowed() {
        let mut once = Once::default();
        for n in 0..REMEMBERED_MAX * 3 {
            assert!(once.is_new(n.to_string().as_bytes(), 1, Instant::now()));
        }
        assert!(once.heard.len() <= REMEMBERED_MAX + 2 && once.order.len() <= REMEMBERED_MAX + 2);
    }
}
