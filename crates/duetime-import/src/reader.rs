//! Reads keys of another system in steps of bounded size. Every command only reads.

use std::sync::Arc;

use duetime_redis::{Link, LinkConfig, LinkError, RedisUrl};
use redis::{Cmd, Pipeline, Value, cmd};

use crate::options::SourceError;

/// Entries that one step asks for. Redis may bring some more of a small key, which it keeps in one piece.
const STEP: usize = 200;

/// The cursor of a scan, or how many elements from the tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepPlace(pub(crate) u64);

/// Where entries are read from.
#[derive(Clone, Debug)]
pub(crate) enum Scanned {
    /// A sorted set: members with scores.
    Zset(String),
    /// A hash: fields with values.
    Hash(String),
    /// A list: its elements, from the end that is taken from first.
    List(String),
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The member, the field, or the element.
    pub name: Vec<u8>,
    /// Of a member.
    pub score: f64,
    /// Of a field.
    pub value: Vec<u8>,
}

/// A count of what a key holds, by the command for its type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    Zset,
    Hash,
    List,
}

/// The Redis of another system.
pub(crate) struct Reader {
    link: Arc<Link>,
}

fn odd(what: &str) -> SourceError {
    SourceError::Odd(what.to_owned())
}

fn bytes(value: Value) -> Result<Vec<u8>, SourceError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.to_vec()),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        Value::Int(number) => Ok(number.to_string().into_bytes()),
        Value::Double(number) => Ok(number.to_string().into_bytes()),
        _ => Err(odd("a text was expected")),
    }
}

fn array(value: Value) -> Result<Vec<Value>, SourceError> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(odd("a list was expected")),
    }
}

fn number<T: std::str::FromStr>(value: Value) -> Result<T, SourceError> {
    let text = String::from_utf8(bytes(value)?).map_err(|_| odd("a number was expected"))?;
    text.parse().map_err(|_| odd("a number was expected"))
}

fn is_of_another_type(error: &LinkError) -> bool {
    matches!(error, LinkError::Refused { code, .. } if code == "WRONGTYPE")
}

impl Reader {
    /// With where it is, for people.
    pub fn new(url: &str) -> Result<(Self, String), SourceError> {
        let url = RedisUrl::parse(url)?;
        let at = url.to_string();
        Ok((Self { link: Link::new(LinkConfig::new(url))? }, at))
    }

    /// What a command answered; a key of another type than the system has there is named.
    fn of(key: &str, answer: Result<Value, LinkError>) -> Result<Value, SourceError> {
        answer.map_err(|error| match is_of_another_type(&error) {
            true => SourceError::OtherType(key.to_owned()),
            false => error.into(),
        })
    }

    /// Entries of one step from `place` on, and the place of the next step; `None`: these were the last. What is there
    /// throughout is brought at least once.
    pub async fn step(
        &self,
        scanned: &Scanned,
        place: StepPlace,
    ) -> Result<(Vec<Entry>, Option<StepPlace>), SourceError> {
        match scanned {
            Scanned::Zset(key) => self.scan("ZSCAN", key, place).await,
            Scanned::Hash(key) => self.scan("HSCAN", key, place).await,
            Scanned::List(key) => self.tail(key, place).await,
        }
    }

    async fn scan(
        &self,
        command: &'static str,
        key: &str,
        place: StepPlace,
    ) -> Result<(Vec<Entry>, Option<StepPlace>), SourceError> {
        let mut scan = cmd(command);
        scan.arg(key).arg(place.0).arg("COUNT").arg(STEP);
        let [next, found] = <[Value; 2]>::try_from(array(Self::of(key, self.link.command("scan", &scan).await)?)?)
            .map_err(|_| odd("a cursor and entries were expected"))?;
        let next: u64 = number(next)?;
        let (mut entries, mut found) = (Vec::new(), array(found)?.into_iter());
        while let (Some(name), Some(value)) = (found.next(), found.next()) {
            let (name, mut entry) = (bytes(name)?, Entry { name: Vec::new(), score: 0.0, value: Vec::new() });
            entry.name = name;
            if command == "ZSCAN" {
                entry.score = number(value)?;
            } else {
                entry.value = bytes(value)?;
            }
            entries.push(entry);
        }
        Ok((entries, (next != 0).then_some(StepPlace(next))))
    }

    /// Elements counted from the tail: what is pushed at the head meanwhile shifts none of them.
    async fn tail(&self, key: &str, place: StepPlace) -> Result<(Vec<Entry>, Option<StepPlace>), SourceError> {
        let mut range = cmd("LRANGE");
        let at = i64::try_from(place.0).map_err(|_| odd("a place beyond any list"))?;
        range.arg(key).arg(-at - STEP as i64).arg(-at - 1);
        let found = array(Self::of(key, self.link.command("lrange", &range).await)?)?;
        let next = (found.len() == STEP).then_some(StepPlace(place.0 + STEP as u64));
        let entry = |name: Value| Ok(Entry { name: bytes(name)?, score: 0.0, value: Vec::new() });
        Ok((found.into_iter().map(entry).collect::<Result<_, SourceError>>()?, next))
    }

    /// The same `fields` of each of `keys`; `None`: there is no such field, or the key is no hash.
    pub async fn fields(&self, keys: &[Vec<u8>], fields: &[&str]) -> Result<Vec<Vec<Option<Vec<u8>>>>, SourceError> {
        let asks = keys.iter().map(|key| cmd("HMGET").arg(key).arg(fields).clone()).collect();
        let answers = self.each("hmget", asks).await?;
        answers.into_iter().map(|answer| answer.map_or_else(|| Ok(vec![None; fields.len()]), optional)).collect()
    }

    /// The answers to these commands; `None`: its key is of another type. One such key does not keep the others back.
    async fn each(&self, name: &'static str, asks: Vec<Cmd>) -> Result<Vec<Option<Value>>, SourceError> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let mut all = Pipeline::new();
        for ask in &asks {
            all.add_command(ask.clone());
        }
        match self.link.pipeline(name, &all).await {
            Ok(answers) => return Ok(answers.into_iter().map(Some).collect()),
            Err(error) if is_of_another_type(&error) => {}
            Err(error) => return Err(error.into()),
        }
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            answers.push(match self.link.command(name, &ask).await {
                Ok(answer) => Some(answer),
                Err(error) if is_of_another_type(&error) => None,
                Err(error) => return Err(error.into()),
            });
        }
        Ok(answers)
    }

    /// Some fields of one hash.
    pub async fn fields_of(&self, key: &str, fields: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, SourceError> {
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        optional(Self::of(key, self.link.command("hmget", cmd("HMGET").arg(key).arg(fields)).await)?)
    }

    /// The strings at `keys`; `None`: there is none, or the key holds something else.
    pub async fn strings(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, SourceError> {
        let asks = keys.iter().map(|key| cmd("GET").arg(key).clone()).collect();
        let answers = self.each("get", asks).await?;
        optional(Value::Array(answers.into_iter().map(|answer| answer.unwrap_or(Value::Nil)).collect()))
    }

    /// How many entries a key has; none where there is no such key.
    pub async fn count(&self, counted: Counted, key: &str) -> Result<u64, SourceError> {
        let name = match counted {
            Counted::Zset => "ZCARD",
            Counted::Hash => "HLEN",
            Counted::List => "LLEN",
        };
        number(Self::of(key, self.link.command("count", cmd(name).arg(key)).await)?)
    }
}

fn optional(value: Value) -> Result<Vec<Option<Vec<u8>>>, SourceError> {
    let one = |value: Value| match value {
        Value::Nil => Ok(None),
        other => bytes(other).map(Some),
    };
    array(value)?.into_iter().map(one).collect()
}
