//! One call: records from messages, on their way by one producer or another, and their verdicts.

use std::sync::Arc;

use duetime_core::{Delivery, Verdict};
use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureRecord};
use tokio::time::Instant;

use super::client::{Batching, Checked, KafkaTarget};
use super::producer::Producer;
use super::verdict::{self, ErrorScope};
use crate::own_headers;
use crate::template::Template;

/// So often a message is sent in a call: by a producer that its brokers no longer know, by the
/// successor, and alone.
const ROUNDS_MAX: usize = 3;
/// The library looks for messages whose time is over once a second, and is waited for that much longer:
/// this share of the time-out. After that a call is not its matter any more, for claims end too.
const LATE_SHARE: u32 = 4;
/// Longest name of a topic that Kafka takes.
const TOPIC_BYTES_MAX: usize = 249;

/// What became of a message with one producer.
enum ProduceAnswer {
    /// The verdict.
    Final(Verdict),
    /// It was not taken, but may be this way; the verdict if there is no time for that.
    Again(Batching, Verdict),
}

/// A message on its way to a topic, or what became of it already.
type Sent = Result<(String, DeliveryFuture), ProduceAnswer>;

/// Delivers a batch. Returns one verdict for each message, in order.
pub(super) async fn deliver(target: &Arc<KafkaTarget>, settings: &Checked, batch: &[Delivery]) -> Vec<Verdict> {
    let until = Instant::now() + target.timeout() + target.timeout() / LATE_SHARE;
    let unsent = || Verdict::Unavailable { reason: "there was no time to send it".to_owned() };
    let mut answers: Vec<ProduceAnswer> =
        batch.iter().map(|_| ProduceAnswer::Again(Batching::Together, unsent())).collect();
    let mut sent = false;
    for _ in 0..ROUNDS_MAX {
        for batching in [Batching::Together, Batching::Alone] {
            let goes = |answer: &ProduceAnswer| matches!(answer, ProduceAnswer::Again(this, _) if *this == batching);
            let open: Vec<usize> = (0..batch.len()).filter(|n| goes(&answers[*n])).collect();
            if open.is_empty() || Instant::now() >= until {
                continue;
            }
            let messages = open.iter().map(|n| &batch[*n]).collect();
            let again = round(target, settings, messages, batching, until, sent).await;
            sent = true;
            open.into_iter().zip(again).for_each(|(n, answer)| answers[n] = answer);
        }
    }
    let verdict = |answer| match answer {
        ProduceAnswer::Final(verdict) | ProduceAnswer::Again(_, verdict) => verdict,
    };
    answers.into_iter().map(verdict).collect()
}

async fn round(
    target: &Arc<KafkaTarget>,
    settings: &Checked,
    messages: Vec<&Delivery>,
    batching: Batching,
    until: Instant,
    sent: bool,
) -> Vec<ProduceAnswer> {
    let producer = match target.producer(batching).await {
        Ok(producer) => producer,
        Err(reason) => {
            let away = if sent { Verdict::NoAnswer { reason } } else { Verdict::Unavailable { reason } };
            return messages.iter().map(|_| ProduceAnswer::Final(away.clone())).collect();
        }
    };
    let call = ProduceCall { target, settings, producer: &producer, batching, given: Instant::now() };
    // All are given to the library before the first answer is awaited: it batches them itself.
    let sent: Vec<Sent> = messages.into_iter().map(|message| call.send(message)).collect();
    let answers: FuturesOrdered<_> = sent.into_iter().map(|sent| call.answer(sent, until)).collect();
    let answers: Vec<ProduceAnswer> = answers.collect().await;
    if producer.is_spent() {
        // Its successor finds the brokers while the engine waits before it tries again.
        let target = target.clone();
        tokio::spawn(async move { target.producer(batching).await.map(drop) });
    }
    answers
}

/// Messages that are sent at once.
struct ProduceCall<'a> {
    target: &'a KafkaTarget,
    settings: &'a Checked,
    producer: &'a Producer,
    batching: Batching,
    given: Instant,
}

impl ProduceCall<'_> {
    fn send(&self, message: &Delivery) -> Sent {
        let refused = |reason| ProduceAnswer::Final(Verdict::Rejected { reason });
        let topic = topic_of(&self.settings.topic, message).map_err(refused)?;
        let key = self.settings.key.fill(message, |c| c).map_err(refused)?;
        let mut record = FutureRecord::<str, [u8]>::to(&topic).payload(&message.payload).headers(headers(message));
        if !key.is_empty() {
            record = record.key(&key);
        }
        match self.producer.inner().send_result(record) {
            Ok(sent) => Ok((topic, sent)),
            Err((error, _)) => Err(self.of_error(&error, &topic, true)),
        }
    }

    async fn answer(&self, sent: Sent, until: Instant) -> ProduceAnswer {
        let (topic, answer) = match sent {
            Ok(sent) => sent,
            Err(answer) => return answer,
        };
        let timed_out = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        let error = match tokio::time::timeout_at(until, answer).await {
            Ok(Ok(Ok(_))) => {
                self.producer.took();
                return ProduceAnswer::Final(Verdict::Accepted);
            }
            Ok(Ok(Err((error, _)))) => error,
            Ok(Err(_)) => KafkaError::Canceled,
            Err(_) => timed_out.clone(),
        };
        if error == timed_out {
            self.producer.timed_out(self.given);
            let reason = self.target.explain(self.producer, RDKafkaErrorCode::MessageTimedOut);
            return ProduceAnswer::Final(Verdict::NoAnswer { reason });
        }
        self.of_error(&error, &topic, self.batching == Batching::Alone)
    }

    /// `alone`: the error is of this message and of no other.
    fn of_error(&self, error: &KafkaError, topic: &str, alone: bool) -> ProduceAnswer {
        if *error == KafkaError::Canceled {
            let reason = "the Kafka client ended before it was answered".to_owned();
            return ProduceAnswer::Final(Verdict::NoAnswer { reason });
        }
        let Some(code) = error.rdkafka_error_code() else {
            let reason = format!("it cannot be made a record: {}", self.target.redact(error));
            return ProduceAnswer::Final(Verdict::Rejected { reason });
        };
        let said = self.target.explain(self.producer, code);
        let verdict = verdict::of_code(code, &said, topic);
        if verdict::ends_producer(code) {
            tracing::debug!(?code, "another Kafka producer takes over");
            self.producer.give_up();
            return ProduceAnswer::Again(self.batching, verdict);
        }
        if verdict::met(code) == ErrorScope::ThisMessage && !alone {
            let reason =
                format!("Kafka refuses it together with others, and there was no time to try it alone: {said}");
            return ProduceAnswer::Again(Batching::Alone, Verdict::Retry { reason, after: None });
        }
        ProduceAnswer::Final(verdict)
    }
}

fn topic_of(template: &Template, message: &Delivery) -> Result<String, String> {
    let topic = template.fill(message, plain)?;
    if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX || topic == "." || topic == ".." {
        return Err(format!("Kafka takes no topic called {topic:?}"));
    }
    Ok(topic)
}

/// What a topic's name may contain.
pub(super) fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' }
}

fn headers(message: &Delivery) -> OwnedHeaders {
    let own = own_headers::of(message);
    let own = own.iter().map(|(name, value)| (*name, value.as_str()));
    let given = message.headers.iter().filter(|(name, _)| !own_headers::hides(message, name));
    let mut headers = OwnedHeaders::new_with_capacity(own.len() + message.headers.iter().count());
    for (key, value) in own.chain(given) {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    headers
}
