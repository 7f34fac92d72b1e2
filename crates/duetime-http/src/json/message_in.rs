//! One message as producers write it, read straight from its bytes into what the router takes.
//!
//! Fields are found first and read one by one, so that a refusal names its field and says the fix.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use duetime_core::limits::{ATTEMPTS_MAX, HEADERS_MAX, OWN_HEADERS_MAX};
use duetime_core::store::Enqueue;
use duetime_core::trace::ProducerTrace;
use duetime_core::units::{check_delay, check_due_at, parse_duration, parse_time};
use duetime_core::{
    Due, Expiry, Headers, MessageId, Nonce, OnConflict, Repeat, Timestamp, max_attempts, own_visibility,
};
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::json::fields::{refuse, unknown_field};
use crate::json::path::refuse_id;
use crate::json::problem::Refusal;
use crate::json::repeat::read_repeat;
use crate::json::schema;

const FIELDS: [&str; 12] = [
    "id",
    "delay",
    "due_at",
    "payload",
    "payload_base64",
    "headers",
    "on_conflict",
    "expires",
    "expires_at",
    "max_attempts",
    "visibility_timeout",
    "repeat",
];

/// Standard alphabet, padded or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A shorter payload is copied out of the body that brought it.
const SHARED_BYTES_MIN: usize = 64 << 10;

/// What a message is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    pub now: Timestamp,
    pub payload_bytes_max: u64,
    /// Of a message that says nothing of when it falls due.
    pub delay: Duration,
    /// Of the request that brings the message.
    pub trace: Option<&'a ProducerTrace>,
    /// The request's body, where it is this message and nothing else: most of it may be the payload.
    pub body: Option<&'a Bytes>,
}

impl Rules<'_> {
    /// A part of the message as bytes of its own; one that is most of a large body, without a copy.
    fn part(&self, text: &str) -> Bytes {
        match self.body {
            Some(body) if text.len() >= SHARED_BYTES_MIN && 2 * text.len() >= body.len() => {
                body.slice_ref(text.as_bytes())
            }
            _ => Bytes::copy_from_slice(text.as_bytes()),
        }
    }
}

/// A message to be scheduled. Give `delay` or `due_at`; with neither it is due after the `delay` of its topic.
#[derive(ToSchema)]
#[schema(as = Message)]
#[allow(dead_code)]
pub(crate) struct MessageSchema {
    /// 1 to 256 bytes of UTF-8 without control characters, and neither `.` nor `..`. Absent: a UUIDv7 is made.
    #[schema(min_length = 1, max_length = 256)]
    id: Option<String>,
    /// From now on, by the store's clock.
    delay: Option<schema::DurationIn>,
    /// A moment since 2001; a past one is due at once, and the answer says by how much it is (`late_by_ms`).
    due_at: Option<schema::TimeIn>,
    /// A string is delivered as those bytes, any other JSON value as its JSON text. Absent: empty.
    payload: Option<serde_json::Value>,
    /// Any bytes. Instead of `payload`.
    payload_base64: Option<String>,
    /// Names and values, delivered with the message. One without `traceparent` takes over that of the request, and
    /// its `tracestate`.
    headers: Option<std::collections::HashMap<String, String>>,
    on_conflict: Option<OnConflictSchema>,
    /// It is handed over no later than this long after its due time, also after a new one; then it is ended as the
    /// `on_expiry` of its topic says. Absent: it does not expire. It is kept as the header `duetime-expires`.
    expires: Option<schema::DurationIn>,
    /// The same, as a moment. Instead of `expires`.
    expires_at: Option<schema::TimeIn>,
    /// How many times it is delivered before it is a dead letter, instead of `retry.max_attempts` of its topic: fewer or
    /// more. A redrive gives it as many again. It is kept as the header `duetime-max-attempts`.
    #[schema(minimum = 1, maximum = 99)]
    max_attempts: Option<u8>,
    /// How long a claim of it by a consumer hides it, 100 ms to 24 h, instead of the `visibility_timeout` of its topic; a
    /// claim that asks for one has that. By a sink it means nothing. It is kept as the header `duetime-visibility`.
    visibility_timeout: Option<schema::DurationIn>,
    /// It comes again by a rule, under the same id: the next one is written in the step that ends this one as delivered or
    /// expired. `delay` or `due_at` is the time of the first; with neither it is the first time of the rule. It is kept as
    /// the header `duetime-repeat`. Refused by a topic that delivers at most once, or in place.
    repeat: Option<crate::json::repeat::RepeatSchema>,
}

/// What to do when the id is already there. `earliest`, `latest`: of two that wait, the message that is due earlier, or
/// later, is there, whole; what somebody holds is replaced.
#[derive(ToSchema)]
#[schema(as = OnConflict, rename_all = "lowercase")]
#[allow(dead_code)]
pub(crate) enum OnConflictSchema {
    Reject,
    Replace,
    Earliest,
    Latest,
    Return,
}

/// The fields of one message, found and not yet read.
#[derive(Default)]
struct FoundFields<'a> {
    values: [Option<&'a RawValue>; FIELDS.len()],
    refused: Option<Refusal>,
}

impl<'de> serde::Deserialize<'de> for FoundFields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Finder;
        impl<'de> Visitor<'de> for Finder {
            type Value = FoundFields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a message: a JSON object with delay or due_at, payload, id, headers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FoundFields<'de>, A::Error> {
                let mut found = FoundFields::default();
                while let Some(Name(name)) = map.next_key()? {
                    let value: &RawValue = map.next_value()?;
                    match FIELDS.iter().position(|field| *field == name) {
                        Some(at) if found.values[at].is_none() => found.values[at] = Some(value),
                        Some(at) => return Err(A::Error::duplicate_field(FIELDS[at])),
                        None if found.refused.is_none() => found.refused = Some(unknown_field(&name, &FIELDS)),
                        None => {}
                    }
                }
                Ok(found)
            }
        }
        from.deserialize_map(Finder)
    }
}

/// A key, borrowed where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Name<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextField;
        impl<'de> Visitor<'de> for TextField {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(TextField)
    }
}

/// Reads one message. The id comes back with the refusal where it could be read.
pub(crate) fn read(json: &[u8], rules: &Rules<'_>) -> Result<Enqueue, (Option<String>, Refusal)> {
    let found: FoundFields<'_> = serde_json::from_slice(json).map_err(|error| (None, refuse(&error)))?;
    let [
        id,
        delay,
        due_at,
        payload,
        payload_base64,
        headers,
        on_conflict,
        expires,
        expires_at,
        own_max,
        visibility,
        repeat,
    ] = found.values;
    let given_id =
        present(id).map(|raw| text(raw, "id", "invalid_id")).transpose().map_err(|refusal| (None, refusal))?;
    let message = || -> Result<Enqueue, Refusal> {
        if let Some(refusal) = found.refused {
            return Err(refusal);
        }
        let id = match &given_id {
            Some(id) => {
                let id = MessageId::new(id).map_err(|error| refuse_id(&error))?;
                id.check_new().map_err(|error| refuse_id(&error))?;
                id
            }
            None => make_id(rules.now),
        };
        let payload = read_payload(payload, present(payload_base64), rules)?;
        let headers = present(headers).map(read_headers).transpose()?.unwrap_or_default();
        let given_due = read_due(present(delay), present(due_at), rules.now)?;
        let mut due = given_due.unwrap_or(Due::In(rules.delay));
        let headers = match present(repeat) {
            Some(raw) => {
                let first = read_repeat(raw, given_due, present(expires_at).is_some(), rules.now)?;
                due = Due::At(first.at);
                first.kept_in(&headers)
            }
            None => headers,
        };
        let headers = match read_expiry(present(expires), present(expires_at), due, rules)? {
            Some(expiry) => expiry.kept_in(&headers),
            None => headers,
        };
        let headers = match present(own_max).map(read_max_attempts).transpose()? {
            Some(most) => max_attempts::kept_in(most, &headers),
            None => headers,
        };
        let headers = match present(visibility).map(read_visibility).transpose()? {
            Some(visibility) => own_visibility::kept_in(visibility, &headers),
            None => headers,
        };
        headers.check_size().map_err(refuse_headers)?;
        Ok(Enqueue {
            id,
            due,
            headers: rules.trace.into_iter().fold(headers, Headers::traced),
            payload,
            on_conflict: present(on_conflict).map(read_on_conflict).transpose()?.unwrap_or_default(),
            nonce: Nonce(rand::random()),
        })
    };
    message().map_err(|refusal| (given_id.as_ref().map(|id| id.chars().take(100).collect()), refusal))
}

/// `null` means absent in every field but `payload`, where it is a JSON value like others.
fn present(value: Option<&RawValue>) -> Option<&RawValue> {
    value.filter(|raw| raw.get() != "null")
}

/// A UUID of version 7.
pub(crate) fn make_id(now: Timestamp) -> MessageId {
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &rand::random()).into_uuid();
    let mut text = [0u8; uuid::fmt::Hyphenated::LENGTH];
    MessageId::new(uuid.hyphenated().encode_lower(&mut text)).expect("36 plain characters")
}

/// Reads a JSON string, without a copy where it has no escapes.
pub(crate) fn text<'a>(raw: &'a RawValue, field: &str, code: &'static str) -> Result<Cow<'a, str>, Refusal> {
    let quoted = raw.get();
    let Some(inner) = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        let shown: String = quoted.chars().take(40).collect();
        return Err(Refusal::new(code, format!("{field} must be a string, not {shown}; put it in quotes")).at(field));
    };
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str(quoted)
        .map(Cow::Owned)
        .map_err(|error| Refusal::new(code, format!("{field} is not a string of Unicode: {error}")).at(field))
}

/// A string's text, or a whole number's digits; what else it may be is refused by who reads it.
fn text_or_number<'a>(raw: &'a RawValue, field: &str, code: &'static str, help: &str) -> Result<Cow<'a, str>, Refusal> {
    let written = raw.get();
    if written.starts_with('"') {
        return text(raw, field, code);
    }
    if written.strip_prefix('-').unwrap_or(written).bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Cow::Borrowed(written));
    }
    let shown: String = written.chars().take(40).collect();
    Err(Refusal::new(code, format!("{field} is {shown}; {help}")).at(field))
}

/// Reads `delay` or `due_at`; none of them is `None`, both are refused.
pub(crate) fn read_due(
    delay: Option<&RawValue>,
    due_at: Option<&RawValue>,
    now: Timestamp,
) -> Result<Option<Due>, Refusal> {
    match (delay, due_at) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err(Refusal::new("invalid_due_time", "delay and due_at are both given; give one of them").at("due_at"))
        }
        (Some(raw), None) => {
            let code = "invalid_delay";
            let help = "give a string with a unit, like \"30m\"";
            let text = text_or_number(raw, "delay", code, help)?;
            let delay = parse_duration(&text)
                .and_then(check_delay)
                .map_err(|error| Refusal::new(code, format!("delay: {error}")).at("delay"))?;
            Ok(Some(Due::In(delay)))
        }
        (None, Some(raw)) => {
            let code = "invalid_due_time";
            let help = "give whole milliseconds since the Unix epoch or RFC 3339 like \"2030-01-31T12:00:00Z\"";
            let text = text_or_number(raw, "due_at", code, help)?;
            let due_at = parse_time(&text)
                .and_then(|at| check_due_at(at, now))
                .map_err(|error| Refusal::new(code, format!("due_at: {error}")).at("due_at"))?;
            Ok(Some(Due::At(due_at)))
        }
    }
}

/// Reads `expires` or `expires_at`.
fn read_expiry(
    after: Option<&RawValue>,
    at: Option<&RawValue>,
    due: Due,
    rules: &Rules<'_>,
) -> Result<Option<Expiry>, Refusal> {
    let code = "invalid_expiry";
    let refuse = |field: &str, detail: &str| Err(Refusal::new(code, format!("{field}: {detail}")).at(field));
    let (field, expiry) = match (after, at) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return refuse("expires_at", "expires is given too; give one of them"),
        (Some(raw), None) => {
            let text = text_or_number(raw, "expires", code, "give a string with a unit, like \"10m\"")?;
            match parse_duration(&text) {
                Ok(after) => ("expires", Expiry::After(after)),
                Err(error) => return refuse("expires", &error),
            }
        }
        (None, Some(raw)) => {
            let help = "give whole milliseconds since the Unix epoch or RFC 3339 like \"2030-01-31T12:00:00Z\"";
            let text = text_or_number(raw, "expires_at", code, help)?;
            match parse_time(&text) {
                Ok(at) => ("expires_at", Expiry::At(at)),
                Err(error) => return refuse("expires_at", &error),
            }
        }
    };
    expiry.check(due.of(rules.now)).map(Some).or_else(|error| refuse(field, &error))
}

fn read_max_attempts(raw: &RawValue) -> Result<u8, Refusal> {
    let given = raw.get();
    let checked = match given.parse() {
        Ok(asked) => max_attempts::check(asked),
        Err(_) => {
            Err(format!("is {}; give a whole number, 1 to {ATTEMPTS_MAX}", given.chars().take(40).collect::<String>()))
        }
    };
    checked.map_err(|error| Refusal::new("invalid_value", format!("max_attempts {error}")).at("max_attempts"))
}

fn read_visibility(raw: &RawValue) -> Result<Duration, Refusal> {
    let (field, code) = ("visibility_timeout", "invalid_value");
    let text = text_or_number(raw, field, code, "give a string with a unit, like \"5m\"")?;
    let asked = parse_duration(&text).map_err(|error| format!("{field}: {error}"));
    asked.and_then(own_visibility::check).map_err(|error| Refusal::new(code, error).at(field))
}

/// How many milliseconds the moment that is asked for is past at `now`; `None`: it is not, or it is a delay.
pub(crate) fn late_by_ms(due: Due, now: Timestamp) -> Option<u64> {
    let Due::At(at) = due else { return None };
    let late = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
    (late > 0).then_some(late)
}

pub(crate) fn read_payload(
    plain: Option<&RawValue>,
    base64: Option<&RawValue>,
    rules: &Rules<'_>,
) -> Result<Bytes, Refusal> {
    let (payload, field) = match (plain, base64) {
        (Some(_), Some(_)) => {
            let detail = "payload and payload_base64 are both given; give one of them";
            return Err(Refusal::new("invalid_payload", detail).at("payload_base64"));
        }
        (None, None) => return Ok(Bytes::new()),
        (Some(raw), None) if raw.get().starts_with('"') => match text(raw, "payload", "invalid_payload")? {
            Cow::Borrowed(text) => (rules.part(text), "payload"),
            Cow::Owned(text) => (Bytes::from(text), "payload"),
        },
        (Some(raw), None) => (rules.part(raw.get()), "payload"),
        (None, Some(raw)) => {
            let text = text(raw, "payload_base64", "invalid_payload")?;
            let bytes = BASE64.decode(text.as_bytes()).map_err(|error| {
                let detail = format!("payload_base64 is not base64 (standard alphabet): {error}");
                Refusal::new("invalid_base64", detail).at("payload_base64")
            })?;
            (Bytes::from(bytes), "payload_base64")
        }
    };
    let (len, max) = (payload.len() as u64, rules.payload_bytes_max);
    if len > max {
        let detail =
            format!("the payload has {len} bytes and the topic takes {max}; send less, or raise its max_payload");
        return Err(Refusal::new("payload_too_large", detail).at(field));
    }
    Ok(payload)
}

struct Pairs(Vec<(String, String)>);

impl<'de> serde::Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of names and string values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs: Vec<(String, String)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    // Each name is compared with those before: of many more that would take the node's time for long.
                    if pairs.len() == HEADERS_MAX + OWN_HEADERS_MAX {
                        return Err(A::Error::custom(format!(
                            "more than {HEADERS_MAX}, or {OWN_HEADERS_MAX} of Duetime's own besides: the limits"
                        )));
                    }
                    if pairs.iter().any(|(before, _)| *before == name) {
                        return Err(A::Error::custom(format!("header {name:?} is given twice; give it once")));
                    }
                    pairs.push((name, value));
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(Reader)
    }
}

fn refuse_headers(text: String) -> Refusal {
    Refusal::new("invalid_headers", format!("headers: {text}")).at("headers")
}

fn read_headers(raw: &RawValue) -> Result<Headers, Refusal> {
    let Pairs(pairs) = serde_json::from_str(raw.get()).map_err(|error| refuse_headers(refuse(&error).detail))?;
    let headers = Headers::new(pairs).map_err(refuse_headers)?;
    Repeat::check(&headers).map_err(refuse_headers)?;
    Ok(headers)
}

fn read_on_conflict(raw: &RawValue) -> Result<OnConflict, Refusal> {
    match raw.get() {
        "\"reject\"" => Ok(OnConflict::Reject),
        "\"replace\"" => Ok(OnConflict::Replace),
        "\"earliest\"" => Ok(OnConflict::Earliest),
        "\"latest\"" => Ok(OnConflict::Latest),
        "\"return\"" => Ok(OnConflict::Return),
        other => {
            let shown: String = other.chars().take(40).collect();
            let detail =
                format!("on_conflict is {shown}; give \"reject\", \"replace\", \"earliest\", \"latest\" or \"return\"");
            Err(Refusal::new("invalid_on_conflict", detail).at("on_conflict"))
        }
    }
}
