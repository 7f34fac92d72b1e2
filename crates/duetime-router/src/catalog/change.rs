//! A partial change of a topic: what is absent stays, `null` goes back to the default. With it goes the note of why
//! the topic is paused.

use std::sync::Arc;

use duetime_core::in_place::{IN_PLACE_IS_NEVER_IN_FLIGHT, IN_PLACE_NEEDS_STREAMS};
use duetime_core::sink::check_delivery;
use duetime_core::{PauseNote, SinkBinder, SinkRef, Timestamp, TopicConfig, TopicName, TopicRecord};
use serde_json::{Map, Value};

use crate::error::CatalogError;

/// What a change made of a topic.
#[derive(Clone, Debug)]
pub struct TopicPut {
    /// The topic as it is.
    pub record: Arc<TopicRecord>,
    /// It was not there before.
    pub created: bool,
    /// It was not as it is before.
    pub changed: bool,
}

/// The same; `None`: there is no such topic.
pub type CatalogPut = Result<Option<TopicPut>, CatalogError>;

/// A partial change of a topic: what is absent stays, `null` goes back to the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicChange {
    fields: Map<String, Value>,
    /// Why the topic is to be paused.
    reason: Option<String>,
    /// Whose change it is.
    by: Option<String>,
    /// The sink through which the topic is paused or resumed: the change is for topics that this concerns, and leaves
    /// all others as they are.
    through: Option<String>,
}

impl TopicChange {
    /// A change written as the JSON object that users send.
    #[must_use]
    pub fn new(fields: Map<String, Value>) -> Self {
        Self { fields, ..Self::default() }
    }

    /// Pauses a topic. Without a `reason`, one that is paused keeps the reason it has.
    #[must_use]
    pub fn pause(reason: Option<String>) -> Self {
        Self { reason, ..Self::set_paused(true) }
    }

    /// Resumes a topic, however it was paused.
    #[must_use]
    pub fn resume() -> Self {
        Self::set_paused(false)
    }

    /// Pauses a topic if it delivers through `sink`, unless it is paused by itself.
    #[must_use]
    pub fn pause_sink(sink: &str, reason: Option<String>) -> Self {
        Self { reason, through: Some(sink.to_owned()), ..Self::set_paused(true) }
    }

    /// Resumes a topic if it was paused through `sink`.
    #[must_use]
    pub fn resume_sink(sink: &str) -> Self {
        Self { through: Some(sink.to_owned()), ..Self::set_paused(false) }
    }

    fn set_paused(paused: bool) -> Self {
        Self::new(Map::from_iter([("paused".to_owned(), Value::Bool(paused))]))
    }

    /// The same, by whoever has a token of this name.
    #[must_use]
    pub fn by(self, name: Option<&str>) -> Self {
        Self { by: name.map(str::to_owned), ..self }
    }

    /// Every field of `config`: the change that makes any topic like it.
    #[must_use]
    pub fn whole(config: &TopicConfig) -> Self {
        let mut fields: Map<_, _> =
            TopicConfig::SETTINGS.iter().map(|setting| (setting.name.to_owned(), Value::Null)).collect();
        fields.extend(to_map(config));
        for setting in TopicConfig::SETTINGS {
            if let Some(Value::Object(object)) = fields.get_mut(setting.name) {
                // What is merged field by field is named whole.
                for inner in setting.kind.inner() {
                    object.entry(inner.name).or_insert(Value::Null);
                }
            }
        }
        Self::new(fields)
    }

    /// Whether the change names `field`.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// The same, with `value` for a `field` that it puts back to the default, or, if `absent` too, does not name.
    #[must_use]
    pub fn with_default(mut self, field: &str, value: Value, absent: bool) -> Self {
        let is_default = self.fields.get(field).map_or(absent, Value::is_null);
        if is_default {
            self.fields.insert(field.to_owned(), value);
        }
        self
    }

    /// The sink that the change gives the topic.
    #[must_use]
    pub fn sink(&self) -> Option<&str> {
        self.fields.get("sink")?.get("name")?.as_str()
    }

    /// The topic to which the change has dead letters forwarded.
    #[must_use]
    pub fn dead_to(&self) -> Option<&str> {
        self.fields.get("dead_to")?.as_str()
    }

    /// Whether the change leaves a topic alone because of how it delivers, or was paused.
    fn passes_over(&self, present: Option<&TopicRecord>) -> bool {
        let Some(through) = &self.through else { return false };
        let Some(present) = present else { return true };
        let held_by = present.pause().and_then(|note| note.sink.as_ref());
        if self.fields.get("paused") == Some(&Value::Bool(false)) {
            return held_by != Some(through);
        }
        let delivers = present.config.sink.as_ref().is_some_and(|sink| sink.name == *through);
        !delivers || (present.config.paused && held_by.is_none())
    }

    /// The settings, and why it is paused, of the topic once the change is made to `present`; `None`: it is so already,
    /// or the change is not for it. The note has no version yet.
    ///
    /// # Errors
    ///
    /// As [`TopicChange::apply`].
    pub fn made(
        &self,
        present: Option<&TopicRecord>,
        now: Timestamp,
    ) -> Result<Option<(TopicConfig, Option<PauseNote>)>, CatalogError> {
        if self.passes_over(present) {
            return Ok(None);
        }
        let config = match present {
            Some(present) => {
                let config = self.apply(&present.config)?;
                check_watermark(&present.config, &config)?;
                present.check_in_flight(&config).map_err(|detail| invalid(Some("max_in_flight"), detail))?;
                config
            }
            None => self.apply(&TopicConfig::default())?,
        };
        let note = self.note(present.filter(|record| record.config.paused), &config, now);
        let is_so = present.is_some_and(|present| present.config == config && present.pause() == note.as_ref());
        Ok((!is_so).then_some((config, note)))
    }

    /// `paused`: the topic, where it is paused already.
    fn note(&self, paused: Option<&TopicRecord>, config: &TopicConfig, now: Timestamp) -> Option<PauseNote> {
        if !config.paused {
            return None;
        }
        let (reason, by, sink) = (self.reason.clone(), self.by.clone(), self.through.clone());
        let Some(paused) = paused else {
            return Some(PauseNote { reason, since_ms: Some(now.as_millis()), by, sink, version: 0 });
        };
        let old = paused.pause().cloned();
        if !self.has("paused") {
            return old;
        }
        match old {
            // Nothing else is said than before: it is a repetition, or whoever asks has nothing to add.
            Some(old) if old.sink == sink && (reason.is_none() || reason == old.reason) => Some(old),
            // Of another sink, or of none, the reason was about something else only where another is given.
            Some(old) => Some(PauseNote { reason: reason.or(old.reason), by, sink, ..old }),
            // It was paused by a node that notes nothing.
            None => reason.map(|reason| PauseNote { reason: Some(reason), by, sink, ..PauseNote::default() }),
        }
    }

    /// `present` with this change made to it.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Invalid`] with the field and the fix.
    pub fn apply(&self, present: &TopicConfig) -> Result<TopicConfig, CatalogError> {
        let mut merged = to_map(present);
        for (name, value) in &self.fields {
            match (merged.get_mut(name), value) {
                (_, Value::Null) => {
                    merged.remove(name);
                }
                (Some(Value::Object(old)), Value::Object(new)) if is_object(name) => {
                    for (key, value) in new {
                        if value.is_null() {
                            old.remove(key);
                        } else {
                            old.insert(key.clone(), value.clone());
                        }
                    }
                }
                _ => {
                    merged.insert(name.clone(), value.clone());
                }
            }
            if let Some(value) = merged.get(name) {
                read_alone(name, value)?;
            }
        }
        let config: TopicConfig =
            serde_json::from_value(Value::Object(merged)).map_err(|e| invalid(None, e.to_string()))?;
        match config.faults().into_iter().next() {
            Some(fault) => Err(invalid(Some(self.blamed(fault.settings)), fault.text)),
            None => Ok(config),
        }
    }

    /// The one of these settings to blame: the first that the change names, else the first.
    fn blamed(&self, settings: &'static [&'static str]) -> &'static str {
        settings.iter().find(|setting| self.has(setting)).unwrap_or(&settings[0])
    }

    /// Refuses a sink that cannot be bound, that delivers in place where the store has no streams, or that does not go
    /// with how the topic is to deliver.
    pub(crate) fn check_sink(
        &self,
        (topic, config): (&TopicName, &TopicConfig),
        sink: &SinkRef,
        sinks: &dyn SinkBinder,
        has_streams: bool,
    ) -> Result<(), CatalogError> {
        let bound = sinks.bind(topic, sink)?;
        let blamed = |settings: &'static [&'static str]| Some(self.blamed(settings));
        check_delivery(config.delivery, &*bound)
            .map_err(|fault| invalid(blamed(&["delivery", "sink"]), fault.to_owned()))?;
        let is_in_place = bound.in_place().is_some();
        if is_in_place && !has_streams {
            return Err(invalid(Some("sink"), format!("sink {:?} {IN_PLACE_NEEDS_STREAMS}", sink.name)));
        }
        if is_in_place && config.max_in_flight.is_some() {
            let fault = format!("max_in_flight: sink {:?} {IN_PLACE_IS_NEVER_IN_FLIGHT}", sink.name);
            return Err(invalid(blamed(&["max_in_flight", "sink"]), fault));
        }
        Ok(())
    }
}

/// Whether a topic has a watermark is decided when it is created: what was claimed before would be missing in it.
fn check_watermark(present: &TopicConfig, config: &TopicConfig) -> Result<(), CatalogError> {
    if present.watermark == config.watermark {
        return Ok(());
    }
    let detail = format!(
        "watermark is {} of this topic from its creation on and cannot be changed; create another topic with watermark = {}",
        present.watermark, config.watermark
    );
    Err(CatalogError::Invalid { field: Some("watermark".to_owned()), detail })
}

/// The settings that a sink is checked with.
pub(crate) const OF_SINK: [&str; 3] = ["sink", "max_in_flight", "delivery"];

/// True if a setting is an object of its own, which is changed field by field. A sink is none: its settings belong to
/// its name and are replaced together.
fn is_object(name: &str) -> bool {
    TopicConfig::SETTINGS.iter().any(|setting| setting.name == name && !setting.kind.inner().is_empty())
}

fn to_map(config: &TopicConfig) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(map)) => map,
        _ => unreachable!("a topic's settings are a JSON object"),
    }
}

/// Reads one field by itself, so that a refusal can name it.
fn read_alone(name: &str, value: &Value) -> Result<(), CatalogError> {
    let alone = Map::from_iter([(name.to_owned(), value.clone())]);
    serde_json::from_value::<TopicConfig>(Value::Object(alone))
        .map(|_| ())
        .map_err(|e| invalid(Some(name), e.to_string()))
}

fn invalid(field: Option<&str>, text: String) -> CatalogError {
    let detail = match field {
        Some(field) if !text.contains(field) => format!("{field}: {text}"),
        _ => text,
    };
    CatalogError::Invalid { field: field.map(str::to_owned), detail }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duetime_core::ChangeId;

    use super::*;

    fn change(text: &str) -> TopicChange {
        TopicChange::new(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_is_absent_stays_and_null_goes_back_to_the_default() {
        let first = change(r#"{"visibility_timeout":"5s","retry":{"max_attempts":3,"initial":"2s"},"max_payload":10}"#)
            .apply(&TopicConfig::default())
            .unwrap();
        let second = change(r#"{"retry":{"initial":null,"factor":3},"max_payload":null}"#).apply(&first).unwrap();
        assert_eq!(second.visibility_timeout, Duration::from_secs(5));
        assert_eq!(second.retry.max_attempts, 3);
        assert_eq!(second.retry.initial, Duration::from_secs(1));
        assert_eq!(second.retry.factor, 3.0);
        assert_eq!(second.max_payload, TopicConfig::default().max_payload);
        assert_eq!(TopicChange::whole(&TopicConfig::default()).apply(&second).unwrap(), TopicConfig::default());
    }

    #[test]
    fn a_list_of_waits_replaces_the_retry_whole_and_its_parts_are_merged_like_others() {
        let given = r#"{"retry":{"jitter":0,"factor":3,"max_attempts":9}}"#;
        let first = change(given).apply(&TopicConfig::default()).unwrap();
        let list = change(r#"{"retry":["2m","10m"]}"#).apply(&first).unwrap();
        assert_eq!((list.retry.max_attempts, list.retry.jitter, list.retry.factor), (3, 0.2, 2.0));
        let fewer = change(r#"{"retry":{"max_attempts":2}}"#).apply(&list).unwrap();
        assert_eq!((fewer.retry.max_attempts, &fewer.retry.waits), (2, &list.retry.waits));
        let none = change(r#"{"retry":{"waits":null}}"#).apply(&list).unwrap();
        assert_eq!((none.retry.waits.len(), none.retry.max_attempts), (0, 3));
        assert_eq!(TopicChange::whole(&first).apply(&list).unwrap(), first);
        assert_eq!(TopicChange::whole(&list).apply(&first).unwrap(), list);
    }

    #[test]
    fn a_sinks_settings_are_replaced_together() {
        let mq = change(r#"{"sink":{"name":"mq","exchange":"a"}}"#).apply(&TopicConfig::default()).unwrap();
        let log = change(r#"{"sink":{"name":"log"}}"#).apply(&mq).unwrap();
        assert!(log.sink.unwrap().settings.is_empty());
        assert!(change(r#"{"sink":null}"#).apply(&mq).unwrap().sink.is_none());
    }

    #[test]
    fn a_refusal_names_its_field() {
        for (present, text, field) in [
            ("{}", r#"{"max_payload":-5}"#, "max_payload"),
            ("{}", r#"{"visibility_timeout":"soon"}"#, "visibility_timeout"),
            ("{}", r#"{"visibility_timeout":"1ms"}"#, "visibility_timeout"),
            ("{}", r#"{"retry":{"factor":0}}"#, "retry"),
            ("{}", r#"{"retry":{"tries":1}}"#, "retry"),
            ("{}", r#"{"retry":["2m","8days"]}"#, "retry"),
            ("{}", r#"{"retry":["2m","soon"]}"#, "retry"),
            ("{}", r#"{"rate_limit":{"per_second":0}}"#, "rate_limit"),
            ("{}", r#"{"delivery":"twice"}"#, "delivery"),
            ("{}", r#"{"max_messages":0}"#, "max_messages"),
            ("{}", r#"{"max_bytes":"much"}"#, "max_bytes"),
            ("{}", r#"{"dead_to":"a b"}"#, "dead_to"),
            // Of two that do not go together, the one that the change names.
            ("{}", r#"{"max_in_flight":6,"delivery":"at-most-once"}"#, "max_in_flight"),
            (r#"{"max_in_flight":6}"#, r#"{"delivery":"at-most-once"}"#, "delivery"),
            (r#"{"max_in_flight":6}"#, r#"{"shards":7}"#, "shards"),
            (r#"{"shards":7}"#, r#"{"max_in_flight":6}"#, "max_in_flight"),
            (r#"{"max_bytes":"1MiB"}"#, r#"{"max_payload":"2MiB"}"#, "max_payload"),
            (r#"{"on_expiry":"dead","delivery":"at-most-once"}"#, r#"{"sink":{"name":"shop"}}"#, "sink"),
        ] {
            let present = change(present).apply(&TopicConfig::default()).unwrap();
            let error = change(text).apply(&present).unwrap_err();
            let CatalogError::Invalid { field: named, detail } = error else { panic!("{text}: {error}") };
            assert_eq!(named.as_deref(), Some(field), "{text}: {detail}");
            assert!(detail.contains(field), "{text}: {detail}");
        }
    }

    /// What `steps` make of a topic that delivers through the sink `shop`, one second after the other.
    fn after(steps: impl IntoIterator<Item = TopicChange>) -> TopicRecord {
        let config = change(r#"{"sink":{"name":"shop"}}"#).apply(&TopicConfig::default()).unwrap();
        let mut record = TopicRecord::new("orders".parse().unwrap(), config, 1, ChangeId(1), Timestamp::ZERO);
        for (at, step) in steps.into_iter().enumerate() {
            let now = Timestamp::from_millis(1000 * (at as i64 + 1));
            if let Some((config, note)) = step.made(Some(&record), now).unwrap() {
                record.version += 1;
                record.pause = note.map(|note| note.at_version(record.version));
                record.config = config;
            }
        }
        record
    }

    fn why(reason: &str) -> Option<String> {
        Some(reason.to_owned())
    }

    /// The reason, since when, by whom and through which sink.
    type Said<'a> = (Option<&'a str>, Option<i64>, Option<&'a str>, Option<&'a str>);

    fn said(record: &TopicRecord) -> Option<Said<'_>> {
        let note = record.pause()?;
        Some((note.reason.as_deref(), note.since_ms, note.by.as_deref(), note.sink.as_deref()))
    }

    #[test]
    fn a_pause_is_noted_and_goes_with_its_resume() {
        let first = || TopicChange::pause(why("stock is counted")).by(Some("ops"));
        assert_eq!(said(&after([first()])), Some((Some("stock is counted"), Some(1000), Some("ops"), None)));
        // Another reason replaces it; since when it is paused stays.
        let second = TopicChange::pause(why("longer")).by(Some("eve"));
        assert_eq!(said(&after([first(), second])), Some((Some("longer"), Some(1000), Some("eve"), None)));
        // A repetition, another setting, and a pause without a reason leave it.
        for step in [first().by(Some("eve")), change(r#"{"max_payload":10}"#), change(r#"{"paused":true}"#)] {
            assert_eq!(said(&after([first(), step])), Some((Some("stock is counted"), Some(1000), Some("ops"), None)));
        }
        assert_eq!(after([first(), first()]).version, 2, "a repetition changes the topic");
        for end in [TopicChange::resume(), change(r#"{"paused":null}"#)] {
            let ended = after([first(), end]);
            assert_eq!((ended.config.paused, ended.pause), (false, None));
        }
        let again = after([first(), TopicChange::resume(), change(r#"{"paused":true}"#)]);
        assert_eq!(said(&again), Some((None, Some(3000), None, None)));
    }

    #[test]
    fn a_sink_resumes_only_what_was_paused_through_it() {
        let through = || TopicChange::pause_sink("shop", why("the shop moves"));
        let held = after([through()]);
        assert_eq!(said(&held), Some((Some("the shop moves"), Some(1000), None, Some("shop"))));
        assert!(!after([through(), TopicChange::resume_sink("shop")]).config.paused);
        assert!(!after([through(), TopicChange::resume()]).config.paused, "a topic is resumed by itself too");
        assert_eq!(after([through(), TopicChange::resume_sink("other")]), held);
        assert!(!after([TopicChange::pause_sink("other", None)]).config.paused, "it does not deliver through it");

        // What was paused by itself stays as it is, whichever came first.
        let own = TopicChange::pause(why("stock is counted"));
        let own_first = after([own.clone(), through(), TopicChange::resume_sink("shop")]);
        assert_eq!(said(&own_first), Some((Some("stock is counted"), Some(1000), None, None)));
        let own_later = after([through(), own, TopicChange::resume_sink("shop")]);
        assert_eq!(said(&own_later), Some((Some("stock is counted"), Some(1000), None, None)));
        // One that goes to another sink meanwhile is that one's, once it is paused too.
        let moved = change(r#"{"sink":{"name":"other"}}"#);
        let taken = [through(), moved, TopicChange::pause_sink("other", None)];
        assert_eq!(said(&after(taken.clone())).unwrap().3, Some("other"));
        let shop = TopicChange::resume_sink("shop");
        assert!(after(taken.into_iter().chain([shop])).config.paused);

        // Paused by a node that notes nothing: it is as if it was paused by itself.
        let mut older = after([]);
        older.config.paused = true;
        assert_eq!(through().made(Some(&older), Timestamp::ZERO).unwrap(), None);
        assert_eq!(TopicChange::resume_sink("shop").made(Some(&older), Timestamp::ZERO).unwrap(), None);
        let (_, note) = TopicChange::pause(why("found so")).made(Some(&older), Timestamp::ZERO).unwrap().unwrap();
        assert_eq!(note.unwrap(), PauseNote { reason: why("found so"), ..PauseNote::default() });
    }
}
