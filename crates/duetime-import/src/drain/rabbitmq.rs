//! A queue of RabbitMQ whose messages wait for the end of their time to live, to be dead-lettered then.
//!
//! Each message is got and stays unacknowledged until it is elsewhere: the broker neither gives it to others nor
//! dead-letters it meanwhile. Where the connection ends before, it is in the queue again, with what is left of its time.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use duetime_client::NewMessage;
use duetime_core::{Clock, Timestamp};
use duetime_settings::{Redactor, TargetUrl};
use futures::future::try_join_all;
use lapin::message::{BasicGetMessage, Delivery};
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicNackOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::AMQPUri;
use lapin::{Acker, Channel, Connection, ConnectionProperties, ErrorKind};
use sha2::{Digest as _, Sha256};

use super::taken::{BATCH_BYTES, HOLD, Place, PlaceIn, Removal, Sameness, Taken, Waiting};
use crate::id::hashed;
use crate::item::{Item, header, message, refused};
use crate::options::{SourceError, SourceOptions, needed};

/// Longest wait to connect and log in, and for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A peer that is silent for about twice this is given up. Seconds.
const HEARTBEAT_S: u16 = 10;
/// A get waits for its answer, so several wait at once, one on each channel.
const CHANNELS: usize = 8;
/// Longest text of what the broker or the network said.
const REASON_BYTES_MAX: usize = 300;
/// Contents that are counted to tell messages without an id apart. With more, counting begins anew.
const CONTENTS_MAX: usize = 1_000_000;
/// Beyond it a timestamp counts no seconds.
const TIMESTAMP_MAX: u64 = 100_000_000_000;

pub(super) struct RabbitMq {
    connection: Connection,
    channels: Vec<Channel>,
    queue: ShortString,
    /// `x-message-ttl` of the queue, which no consumer is told.
    ttl: Option<Duration>,
    /// How many this pass takes yet. `None`: it has not begun.
    budget: Option<u64>,
    /// How many messages of this pass had the content with this hash.
    contents: HashMap<u64, u64>,
    /// What names the holds of this pass, and how many there were.
    hold: (RandomState, u64),
    redactor: Redactor,
    clock: Arc<dyn Clock>,
}

/// What an answer was, within the time for it.
async fn answer<T>(redactor: &Redactor, asked: impl Future<Output = lapin::Result<T>>) -> Result<T, SourceError> {
    match tokio::time::timeout(ANSWER_MAX, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(SourceError::Peer(redactor.redact(&error.to_string(), REASON_BYTES_MAX))),
        Err(_) => Err(SourceError::Peer(format!("RabbitMQ did not answer within {} s", ANSWER_MAX.as_secs()))),
    }
}

impl RabbitMq {
    pub async fn open(url: &str, options: &SourceOptions, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let queue = needed(&options.queue, "--queue", "the name of the queue in which messages wait")?;
        let queue = ShortString::try_new(queue)
            .map_err(|_| SourceError::Option("--queue is longer than the 255 bytes that AMQP allows".to_owned()))?;
        let target = TargetUrl::new(url);
        let redactor = Redactor::new(target.secrets());
        let mut uri: AMQPUri = url.parse().map_err(|_| {
            SourceError::Option(format!("{target} is refused; write it as amqp://user:password@host:5672/vhost"))
        })?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        let properties = ConnectionProperties::default().with_connection_name("duetime import".into());
        let connected = answer(&redactor, Connection::connect_uri(uri, properties)).await;
        let connection = connected.map_err(|error| match error {
            SourceError::Peer(why) => SourceError::Peer(format!("{target}: {why}")),
            other => other,
        })?;
        let mut channels = Vec::with_capacity(CHANNELS);
        for _ in 0..CHANNELS {
            channels.push(answer(&redactor, connection.create_channel()).await?);
        }
        let (contents, hold) = (HashMap::new(), (RandomState::new(), 0));
        Ok(Self { connection, channels, queue, ttl: options.ttl, budget: None, contents, hold, redactor, clock })
    }

    pub async fn waiting(&mut self) -> Result<Waiting, SourceError> {
        // One of its own: the broker closes the channel of a queue that is not there.
        let channel = answer(&self.redactor, self.connection.create_channel()).await?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let asked = channel.queue_declare(self.queue.clone(), passive, FieldTable::default());
        let asked = async {
            asked.await.map_err(|error| match error.kind() {
                ErrorKind::ProtocolError(of) if *of.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => None,
                _ => Some(error),
            })
        };
        let queue = match tokio::time::timeout(ANSWER_MAX, asked).await {
            Ok(Ok(queue)) => queue,
            Ok(Err(None)) => {
                let what = format!("there is no queue {}; see --queue, and the vhost in the URL", self.queue);
                return Err(SourceError::Peer(what));
            }
            Ok(Err(Some(error))) => return answer(&self.redactor, async { Err(error) }).await,
            Err(_) => return Err(SourceError::Peer("RabbitMQ did not answer in time".to_owned())),
        };
        // Later the broker may count this command: a quorum queue counts who holds a message that was got.
        if self.budget.is_none() && queue.consumer_count() > 0 {
            let what = format!(
                "the queue {} has consumers, so messages do not wait in it for the end of their time to live, or another \
                 command drains it; name the queue before it, or run one at a time",
                self.queue
            );
            return Err(SourceError::Peer(what));
        }
        answer(&self.redactor, channel.close(200, "done".into())).await?;
        let count = u64::from(queue.message_count());
        self.budget.get_or_insert(count);
        Ok(Waiting { count, left: Vec::new() })
    }

    pub async fn batch(&mut self, most: usize) -> Result<Vec<Taken>, SourceError> {
        let budget = match self.budget {
            Some(budget) => budget,
            None => self.waiting().await?.count,
        };
        let wanted = usize::try_from(budget).unwrap_or(usize::MAX).min(most);
        let shares = (0..CHANNELS).map(|at| wanted / CHANNELS + usize::from(at < wanted % CHANNELS));
        let got = self.channels.iter().zip(shares).map(|(channel, share)| self.get(channel, share));
        let got: Vec<BasicGetMessage> = try_join_all(got).await?.into_iter().flatten().collect();
        self.budget = Some(budget - (got.len() as u64).min(budget));
        let now = self.clock.now();
        Ok(got.into_iter().map(|got| self.taken(got.delivery, now)).collect())
    }

    /// What one channel brings.
    async fn get(&self, channel: &Channel, most: usize) -> Result<Vec<BasicGetMessage>, SourceError> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        while all.len() < most && bytes < BATCH_BYTES / CHANNELS {
            let asked = channel.basic_get(self.queue.clone(), BasicGetOptions::default());
            let Some(got) = answer(&self.redactor, asked).await? else { break };
            bytes += got.data.len();
            all.push(got);
        }
        Ok(all)
    }

    fn taken(&mut self, delivery: Delivery, now: Timestamp) -> Taken {
        let Delivery { routing_key, properties, data, acker, .. } = delivery;
        let place = Place(PlaceIn::RabbitMq(Box::new(acker)));
        let given = properties.message_id().as_ref().map(|id| id.as_str()).filter(|id| !id.is_empty());
        let table = properties.headers().clone().unwrap_or_default();
        let expiration = properties.expiration().as_ref().map(|text| text.as_str().parse::<u64>());
        let published = published(*properties.timestamp(), &table);
        let due = due_ms(published, expiration.and_then(Result::ok), self.ttl, now);
        let (id, sameness) = match given {
            Some(id) => (id.as_bytes().to_vec(), Sameness::Given { with_due: published.is_some() }),
            None => {
                let content = content(&data, &table, *properties.timestamp(), properties.expiration().as_ref());
                let nth = self.next_of(&content);
                (numbered(&content, nth).into_bytes(), Sameness::Content)
            }
        };
        let due = match due {
            Ok(due) => due,
            Err(why) => return Taken { item: refused(&id, why), sameness, headers_dropped: 0, place },
        };
        let mut message = message(&id, due, data);
        if given.is_none() {
            message.id = String::from_utf8(id).ok();
            self.hold.1 += 1;
            let hold = format!("{:016x}-{}", self.hold.0.hash_one(0), self.hold.1);
            header(&mut message, HOLD, hold.as_bytes());
        }
        let mut headers_dropped = 0;
        for (name, value) in table.inner() {
            match value {
                AMQPValue::LongString(text) if !is_of_the_broker(name.as_str(), value) => {
                    header(&mut message, name.as_str(), text.as_bytes());
                }
                AMQPValue::ShortString(text) if !is_of_the_broker(name.as_str(), value) => {
                    header(&mut message, name.as_str(), text.as_str().as_bytes());
                }
                _ => headers_dropped += u64::from(!is_of_the_broker(name.as_str(), value)),
            }
        }
        let text = |property: &Option<ShortString>| property.as_ref().map(ToString::to_string).unwrap_or_default();
        header(&mut message, "content-type", text(properties.content_type()).as_bytes());
        header(&mut message, "content-encoding", text(properties.content_encoding()).as_bytes());
        header(&mut message, "rabbitmq-type", text(properties.kind()).as_bytes());
        header(&mut message, "rabbitmq-correlation-id", text(properties.correlation_id()).as_bytes());
        header(&mut message, "rabbitmq-routing-key", routing_key.as_str().as_bytes());
        Taken { item: Item::Message(message), sameness, headers_dropped, place }
    }

    /// The how-manieth message of this pass has this content.
    fn next_of(&mut self, content: &str) -> u64 {
        if self.contents.len() == CONTENTS_MAX {
            self.contents.clear();
        }
        let nth = self.contents.entry(key(content)).or_default();
        *nth += 1;
        *nth
    }

    pub fn number_on(&mut self, message: &mut NewMessage) {
        let id = message.id.take().unwrap_or_default();
        let content = id.split('-').next().unwrap_or_default();
        message.id = Some(numbered(content, self.next_of(content)));
    }

    pub async fn remove(&self, ackers: Vec<Acker>) -> Result<Vec<Removal>, SourceError> {
        let acks = ackers.iter().map(|acker| answer(&self.redactor, acker.ack(BasicAckOptions::default())));
        if try_join_all(acks).await?.contains(&false) {
            return Err(SourceError::Peer("the connection to RabbitMQ has ended".to_owned()));
        }
        Ok(vec![Removal::Done; ackers.len()])
    }

    pub async fn put_back(&self, acker: &Acker) -> Result<(), SourceError> {
        answer(&self.redactor, acker.nack(BasicNackOptions { requeue: true, multiple: false })).await.map(drop)
    }

    /// Ends the channels, so that the broker has read every acknowledgement.
    pub async fn settle(&self) -> Result<(), SourceError> {
        for channel in &self.channels {
            answer(&self.redactor, channel.close(200, "done".into())).await?;
        }
        Ok(())
    }

    pub async fn close(self) -> Result<(), SourceError> {
        answer(&self.redactor, self.connection.close(200, "done".into())).await
    }
}

fn key(content: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(content).into();
    digest.first_chunk::<8>().map_or(0, |half| u64::from_be_bytes(*half))
}

fn numbered(content: &str, nth: u64) -> String {
    if nth == 1 { content.to_owned() } else { format!("{content}-{nth}") }
}

/// The second in which a message came into the queue, where that is known: no earlier than the broker dead-lettered it.
fn published(timestamp: Option<u64>, table: &FieldTable) -> Option<u64> {
    let deaths = match table.inner().get("x-death") {
        None => return timestamp,
        Some(AMQPValue::FieldArray(deaths)) => deaths.as_slice(),
        Some(_) => return None,
    };
    deaths.iter().try_fold(timestamp?, |newest, death| {
        let AMQPValue::FieldTable(death) = death else { return None };
        // Of what went the same way twice, the time is that of the first time.
        match (death.inner().get("time"), death.inner().get("count")) {
            (Some(AMQPValue::Timestamp(time)), Some(AMQPValue::LongLongInt(1))) => Some(newest.max(*time)),
            _ => None,
        }
    })
}

/// When a message falls due: the end of its time to live, never before it.
fn due_ms(
    published: Option<u64>,
    expiration_ms: Option<u64>,
    ttl: Option<Duration>,
    now: Timestamp,
) -> Result<i64, String> {
    let of_queue = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    // The broker takes the shorter one.
    let ttl = [expiration_ms, of_queue].into_iter().flatten().min();
    let ttl = ttl.ok_or("it has no expiration; give the queue's x-message-ttl as --ttl")?;
    let from = match published {
        Some(seconds) if seconds > TIMESTAMP_MAX => {
            return Err(format!("its timestamp {seconds} is no number of seconds since 1970"));
        }
        Some(seconds) => (seconds as i64 + 1) * 1000,
        None => now.as_millis(),
    };
    Ok(from.saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX)))
}

/// Whether the broker wrote a header: it may be another one after each delivery.
fn is_of_the_broker(name: &str, value: &AMQPValue) -> bool {
    let is_text = matches!(value, AMQPValue::LongString(_) | AMQPValue::ShortString(_));
    name.starts_with("x-first-death-") || name.starts_with("x-last-death-") || (name.starts_with("x-") && !is_text)
}

/// An id of what the sender gave: payload, headers, and what its due time follows from.
fn content(data: &[u8], table: &FieldTable, timestamp: Option<u64>, expiration: Option<&ShortString>) -> String {
    let given: Vec<_> = table.inner().iter().filter(|(name, value)| !is_of_the_broker(name.as_str(), value)).collect();
    let rest = serde_json::to_vec(&(timestamp, expiration.map(ShortString::as_str), given)).unwrap_or_default();
    let mut bytes = (rest.len() as u64).to_be_bytes().to_vec();
    bytes.extend_from_slice(&rest);
    bytes.extend_from_slice(data);
    hashed(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_falls_due_at_the_end_of_the_shorter_time_and_never_before() {
        let due = |timestamp, expiration, ttl: Option<u64>| {
            due_ms(timestamp, expiration, ttl.map(Duration::from_millis), Timestamp::from_millis(1_763_700_000_500))
        };
        // It was published within that second.
        assert_eq!(due(Some(1_763_700_000), Some(60_000), None), Ok(1_763_700_061_000));
        assert_eq!(due(Some(1_763_700_000), Some(60_000), Some(5_000)), Ok(1_763_700_006_000));
        assert_eq!(due(None, Some(60_000), None), Ok(1_763_700_060_500));
        assert_eq!(due(None, None, Some(0)), Ok(1_763_700_000_500));
        assert!(due(None, None, None).unwrap_err().contains("--ttl"));
        assert!(due(Some(1_763_700_000_000), Some(1), None).unwrap_err().contains("seconds"));
    }

    #[test]
    fn what_the_broker_dead_lettered_into_the_queue_is_no_older_than_that() {
        let table = |name: &str, value: AMQPValue| {
            let mut table = FieldTable::default();
            table.insert(name.into(), value);
            table
        };
        let death = |time: u64, count: i64| {
            let mut death = table("time", AMQPValue::Timestamp(time));
            death.insert("count".into(), AMQPValue::LongLongInt(count));
            AMQPValue::FieldTable(death)
        };
        let of = |deaths: Vec<AMQPValue>| table("x-death", AMQPValue::FieldArray(deaths.into()));
        assert_eq!(published(Some(5), &FieldTable::default()), Some(5));
        assert_eq!(published(Some(5), &of(vec![death(9, 1), death(7, 1)])), Some(9));
        assert_eq!(published(Some(5), &of(vec![death(3, 1)])), Some(5));
        assert_eq!(published(None, &of(vec![death(9, 1)])), None);
        // Again on the same way: its time is that of the first time.
        assert_eq!(published(Some(5), &of(vec![death(9, 2), death(7, 1)])), None);
        assert_eq!(
            published(Some(5), &of(vec![AMQPValue::FieldTable(table("count", AMQPValue::LongLongInt(1)))])),
            None
        );
        assert_eq!(published(Some(5), &table("x-death", AMQPValue::LongString("odd".into()))), None);
    }

    #[test]
    fn an_id_of_the_content_is_the_same_after_the_broker_has_counted_a_delivery() {
        let text = |text: &str| AMQPValue::LongString(text.into());
        let mut table = FieldTable::default();
        table.insert("a".into(), text("1"));
        let first = content(b"payload", &table, Some(5), None);
        table.insert("x-delivery-count".into(), AMQPValue::LongLongInt(1));
        table.insert("x-first-death-queue".into(), text("before"));
        assert_eq!(first, content(b"payload", &table, Some(5), None));
        table.insert("x-shop".into(), text("given by the sender"));
        assert_ne!(first, content(b"payload", &table, Some(5), None));
        for other in [content(b"payloaD", &table, Some(5), None), content(b"payload", &table, None, None)] {
            assert_ne!(first, other);
        }
        assert!(first.starts_with("sha256:") && !first.contains('-'), "{first}");
    }
}
