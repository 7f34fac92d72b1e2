//! Publishes a batch on one channel and says for each message what the broker said.

use std::collections::HashMap;

use duetime_core::{Delivery, Timestamp, TopicName};
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::time::Instant;

use super::config::RabbitMqSettings;
use crate::confirm_wait::ConfirmWait;
use crate::template::Template;
use crate::{content_type, own_headers};

/// Headers that the broker itself acts upon, or writes.
const RESERVED: &[&str] = &["cc", "bcc", "x-death", "x-first-death-queue", "x-first-death-reason"];
/// A priority and a mode of AMQP: kept by the broker over its restart.
const PERSISTENT: u8 = 2;

/// What a topic publishes with, checked.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) exchange: ShortString,
    key: Template,
    mandatory: bool,
    persistent: bool,
    /// None: by the payload.
    content_type: Option<ShortString>,
}

/// What became of one message.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The broker has it.
    Confirmed,
    /// The broker could not take it.
    Refused,
    /// The broker did not say in time whether it has it.
    Unconfirmed,
    /// Nor did it answer anything else at the end of that time, or it takes nothing for now.
    Silent(String),
    /// No queue takes it.
    Returned(String),
    /// It cannot be published as it is.
    Invalid(String),
    /// The channel or the connection ended first.
    Failed(lapin::Error),
}

/// A message ready to be published, made before the first is sent.
pub(super) struct Prepared {
    key: ShortString,
    properties: BasicProperties,
}

impl Route {
    /// Checks what a topic sets.
    pub(super) fn new(settings: &RabbitMqSettings) -> Result<Self, String> {
        let short = |name: &str, text: &str| {
            ShortString::try_new(text).map_err(|_| format!("{name} is longer than 255 bytes; shorten it"))
        };
        Ok(Self {
            exchange: short("exchange", &settings.exchange)?,
            key: Template::parse(&settings.routing_key).map_err(|error| format!("routing_key {error}"))?,
            mandatory: settings.mandatory,
            persistent: settings.persistent,
            content_type: settings.content_type.as_deref().map(|text| short("content_type", text)).transpose()?,
        })
    }

    /// The one queue of `topic` that has to be there, if its messages go to the nameless exchange under one key.
    pub(super) fn queue(&self, topic: &TopicName) -> Option<String> {
        let one = self.exchange.as_str().is_empty() && self.mandatory && !self.key.varies();
        one.then(|| self.key.of_topic(topic, |c| c, ""))
    }

    /// Builds what is published for `message`, or says why it cannot be.
    pub(super) fn prepare(&self, message: &Delivery, now: Timestamp) -> Result<Prepared, String> {
        let key = self.key.fill(message, |c| c)?;
        let key = ShortString::try_new(key)
            .map_err(|_| "its routing key is longer than the 255 bytes that AMQP allows".to_owned())?;
        let text = |text: &str| AMQPValue::LongString(LongString::from(text.as_bytes()));
        let mut headers = FieldTable::default();
        let mut content_type = self.content_type.clone();
        for (name, value) in message.headers.iter() {
            let lower = name.to_ascii_lowercase();
            if RESERVED.contains(&lower.as_str()) || own_headers::hides(message, name) {
                continue;
            }
            if lower == "content-type" {
                content_type = ShortString::try_new(value).ok().or(content_type);
            } else if let Ok(name) = ShortString::try_new(name) {
                headers.insert(name, text(value));
            }
        }
        for (name, value) in own_headers::of(message) {
            headers.insert(name.into(), text(&value));
        }
        let content_type = content_type.unwrap_or_else(|| content_type::of(&message.payload).into());
        let properties = BasicProperties::default()
            .with_message_id(message.delivery_id().into())
            .with_timestamp(u64::try_from(now.as_millis() / 1000).unwrap_or(0))
            .with_delivery_mode(if self.persistent { PERSISTENT } else { 1 })
            .with_content_type(content_type)
            .with_headers(headers);
        Ok(Prepared { key, properties })
    }
}

/// Publishes `messages` in order and waits for their confirms as `confirms` says, each for itself: a queue that does
/// not confirm leaves the others theirs.
pub(super) async fn publish(
    channel: &Channel,
    route: &Route,
    messages: &[&Delivery],
    prepared: Vec<Result<Prepared, String>>,
    confirms: &ConfirmWait,
) -> Vec<Outcome> {
    let began = Instant::now();
    let options = BasicPublishOptions { mandatory: route.mandatory, immediate: false };
    let mut sent = Vec::with_capacity(messages.len());
    for (message, prepared) in messages.iter().zip(prepared) {
        sent.push(match prepared {
            Err(why) => Err(Outcome::Invalid(why)),
            Ok(Prepared { key, properties }) => {
                let sending = channel.basic_publish(route.exchange.clone(), key, options, &message.payload, properties);
                match confirms.within(began, sending).await {
                    Some(sent) => sent.map_err(Outcome::Failed),
                    None => Err(Outcome::Unconfirmed),
                }
            }
        });
    }
    let mut outcomes = Vec::with_capacity(messages.len());
    let mut returned = HashMap::new();
    for confirm in sent {
        outcomes.push(match confirm {
            Err(outcome) => outcome,
            Ok(confirm) => match confirms.within(began, confirm).await {
                None => Outcome::Unconfirmed,
                Some(Ok(Confirmation::Ack(back))) => {
                    confirms.confirmed();
                    remember(&mut returned, back);
                    Outcome::Confirmed
                }
                Some(Ok(Confirmation::Nack(back))) => {
                    confirms.confirmed();
                    remember(&mut returned, back);
                    Outcome::Refused
                }
                Some(Ok(Confirmation::NotRequested)) => Outcome::Refused,
                Some(Err(error)) => Outcome::Failed(error),
            },
        });
    }
    // A returned message is handed to us with any confirm, not with its own.
    for (message, outcome) in messages.iter().zip(&mut outcomes) {
        if let Some(why) = returned.remove(&message.delivery_id()) {
            *outcome = Outcome::Returned(why);
        }
    }
    outcomes
}

fn remember(returned: &mut HashMap<String, String>, back: Option<lapin::message::BasicReturnMessage>) {
    if let Some(back) = back
        && let Some(id) = back.delivery.properties.message_id()
    {
        let key = &back.delivery.routing_key;
        let why = format!("no queue takes the routing key {:?}: {} {}", key.as_str(), back.reply_code, back.reply_text);
        returned.insert(id.to_string(), why);
    }
}
