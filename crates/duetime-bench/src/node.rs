//! A target that is a topic of a running node, over HTTP; deliveries are claims of consumers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use duetime_client::{Answer, Claim, ClaimedMessage, Client, NewMessage, Outcome};
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::ShardCounts;
use duetime_core::{Due, MessageId, Timestamp};
use hdrhistogram::Histogram;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::Common;
use crate::target::{CancelOutcome, Consuming, Item, LoadTarget, Recorder};

/// How long a consumer waits for something due before it looks whether the bench is over.
const CLAIM_WAIT: Duration = Duration::from_millis(500);

/// A target that is a topic of a running node, over HTTP; deliveries are claims of consumers.
pub struct BenchNode {
    client: Client,
    topic: String,
    consumers: usize,
}

impl BenchNode {
    /// Makes the topic.
    pub async fn create(common: &Common) -> anyhow::Result<Self> {
        let client = Client::new(&common.node, common.token.clone())?;
        let topic = format!("bench-{:08x}", rand::random::<u32>());
        let settings = Map::from_iter([
            ("shards".to_owned(), Value::from(common.shards)),
            ("delivery".to_owned(), serde_json::to_value(common.delivery()).context("naming the delivery")?),
        ]);
        client.put_topic(&topic, &settings).await.context("making the bench's topic")?;
        Ok(Self { client, topic, consumers: common.concurrency })
    }
}

#[async_trait]
impl LoadTarget for BenchNode {
    fn groups(&self) -> usize {
        1
    }

    fn group_of(&self, _id: &MessageId) -> usize {
        0
    }

    async fn enqueue(&self, batch: Vec<Item>) -> anyhow::Result<u64> {
        let message = |item: Item| NewMessage::new(item.payload).id(item.id.as_str()).due(Due::At(item.due_at));
        let messages: Vec<NewMessage> = batch.into_iter().map(message).collect();
        if let [only] = messages.as_slice() {
            let placed = self.client.enqueue(&self.topic, only).await?;
            return Ok(u64::from(placed.outcome == "scheduled"));
        }
        let answers = self.client.enqueue_many(&self.topic, &messages).await?;
        let new = |placed: &duetime_client::Placed| placed.outcome == "scheduled";
        Ok(answers.iter().filter_map(duetime_client::Answer::done).filter(|placed| new(placed)).count() as u64)
    }

    async fn cancel(&self, batch: Vec<MessageId>) -> anyhow::Result<Vec<CancelOutcome>> {
        let ids: Vec<String> = batch.iter().map(|id| id.as_str().to_owned()).collect();
        let answers = self.client.cancel_many(&self.topic, &ids).await?;
        let outcome = |answer: &duetime_client::Answer<duetime_client::Outcome>| {
            let done = answer.done().context("the node failed to cancel")?;
            match done.outcome.as_str() {
                "cancelled" => Ok(CancelOutcome::Cancelled),
                "in_flight" => Ok(CancelOutcome::InFlight),
                "unknown" => Ok(CancelOutcome::Unknown),
                other => anyhow::bail!("the node answered {other:?} to a cancel"),
            }
        };
        answers.iter().map(outcome).collect()
    }

    async fn consume(&self, recorder: Arc<dyn Recorder>) -> anyhow::Result<Box<dyn Consuming>> {
        let stop = watch::Sender::new(false);
        let mut consumers = JoinSet::new();
        for _ in 0..self.consumers {
            let (client, topic) = (self.client.clone(), self.topic.clone());
            consumers.spawn(consume(client, topic, recorder.clone(), stop.subscribe()));
        }
        Ok(Box::new(RunningConsumers { consumers, stop }))
    }

    async fn survey(&self) -> anyhow::Result<ShardCounts> {
        let topic = self.client.topic(&self.topic).await?;
        let (scheduled, due, in_flight, dead) = (topic.scheduled, topic.due, topic.in_flight, topic.dead);
        Ok(ShardCounts { scheduled, due, in_flight, dead, ..ShardCounts::default() })
    }

    async fn memory(&self) -> Option<u64> {
        let metrics = self.client.metrics().await.ok()?;
        let line = metrics.lines().find(|line| line.starts_with("process_resident_memory_bytes "))?;
        line.split(' ').nth(1)?.parse::<f64>().ok().map(|bytes| bytes as u64)
    }

    async fn notes(&self) -> BTreeMap<String, Value> {
        let nodes = self.client.nodes().await.unwrap_or_default();
        let shown = |node: &duetime_client::NodeView| Value::from(format!("{} ({})", node.version, node.mode));
        BTreeMap::from([("nodes".to_owned(), nodes.iter().map(shown).collect())])
    }

    fn store_calls(&self) -> Vec<(&'static str, Histogram<u64>)> {
        Vec::new()
    }

    async fn delete(&self) -> anyhow::Result<()> {
        self.client.delete_topic(&self.topic, true).await?;
        Ok(())
    }
}

struct RunningConsumers {
    consumers: JoinSet<anyhow::Result<()>>,
    stop: watch::Sender<bool>,
}

#[async_trait]
impl Consuming for RunningConsumers {
    async fn stop(mut self: Box<Self>) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        while let Some(consumer) = self.consumers.join_next().await {
            consumer??;
        }
        Ok(())
    }
}

/// One consumer: claims, notifies the recorder, acks with its next claim, until it is stopped.
async fn consume(
    client: Client,
    topic: String,
    recorder: Arc<dyn Recorder>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut ask = Claim { max: BATCH_ITEMS_MAX, wait: CLAIM_WAIT, ..Claim::default() };
    while !*stop.borrow() {
        let claimed = client.claim(&topic, &ask).await?;
        acked(&ask.ack, &claimed.results)?;
        let messages = claimed.messages;
        let seen = |message: &ClaimedMessage| {
            anyhow::Ok((MessageId::new(&message.id)?, Timestamp::from_millis(message.due_at)))
        };
        recorder.delivered(&messages.iter().map(seen).collect::<anyhow::Result<Vec<_>>>()?);
        ask.ack = messages.into_iter().map(|message| message.receipt).collect();
    }
    if !ask.ack.is_empty() {
        acked(&ask.ack, &client.ack(&topic, &ask.ack).await?)?;
    }
    Ok(())
}

/// What was cancelled while we had it is not tried again.
fn acked(receipts: &[String], answers: &[Answer<Outcome>]) -> anyhow::Result<()> {
    const DONE: [&str; 4] = ["ok", "already", "cancelled", "gone"];
    let done = answers.iter().filter(|answer| answer.done().is_some_and(|it| DONE.contains(&&*it.outcome))).count();
    anyhow::ensure!(done == receipts.len(), "{} of {} acks came too late", receipts.len() - done, receipts.len());
    Ok(())
}
