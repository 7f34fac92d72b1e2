//! The commands on keys, one at a time, in a script or not.

use std::ops::Bound;

use bytes::Bytes;

use crate::db::{Db, Value, WrongType};
use crate::reply::{Reply, double};
use crate::zset::{End, Zset};

/// What commands work on, and what they leave for others to do.
#[derive(Debug, Default)]
pub(crate) struct Exec {
    pub(crate) db: Db,
    /// The server's clock, in microseconds; it stands still while a script runs.
    pub(crate) now_us: i64,
    /// Changes, as replicas carry them out.
    pub(crate) effects: Vec<Vec<Bytes>>,
    /// Channels and messages.
    pub(crate) published: Vec<(Bytes, Bytes)>,
    /// Why nothing may be written.
    pub(crate) read_only: Option<String>,
    /// Refuses what needs memory.
    pub(crate) full: bool,
}

/// An answer, or an error that is one.
type Answer = Result<Reply, String>;

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

impl From<WrongType> for String {
    fn from(_: WrongType) -> Self {
        WRONG_TYPE.to_owned()
    }
}

/// The name of a command, in capitals.
pub(crate) fn name_of(args: &[Bytes]) -> String {
    args.first().map(|name| String::from_utf8_lossy(name).to_ascii_uppercase()).unwrap_or_default()
}

/// Whether a command changes keys, and if so, whether it needs memory.
fn writes(name: &str) -> Option<bool> {
    match name {
        "SET" | "INCRBY" | "INCR" | "HSET" | "HSETNX" | "ZADD" | "XADD" => Some(true),
        "DEL" | "UNLINK" | "HDEL" | "ZREM" | "ZREMRANGEBYSCORE" | "ZREMRANGEBYRANK" | "XTRIM" | "XDEL" | "EXPIRE"
        | "PEXPIRE" | "PEXPIREAT" | "FLUSHALL" => Some(false),
        _ => None,
    }
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Result<T, String> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| NOT_AN_INTEGER.to_owned())
}

fn score(text: &[u8]) -> Result<f64, String> {
    let text = std::str::from_utf8(text).unwrap_or("").to_ascii_lowercase();
    let number = match text.as_str() {
        "inf" | "+inf" | "infinity" | "+infinity" => f64::INFINITY,
        "-inf" | "-infinity" => f64::NEG_INFINITY,
        text => text.parse().unwrap_or(f64::NAN),
    };
    if number.is_nan() { Err("ERR value is not a valid float".to_owned()) } else { Ok(number) }
}

fn end(text: &[u8]) -> Result<End, String> {
    let exclusive = text.first() == Some(&b'(');
    let score = score(if exclusive { &text[1..] } else { text });
    Ok(End { score: score.map_err(|_| "ERR min or max is not a float".to_owned())?, exclusive })
}

fn is(text: &[u8], word: &str) -> bool {
    text.eq_ignore_ascii_case(word.as_bytes())
}

fn scored(found: impl IntoIterator<Item = (f64, Bytes)>, with_scores: bool) -> Reply {
    let mut items = Vec::new();
    for (score, member) in found {
        items.push(Reply::Bulk(member));
        if with_scores {
            items.push(Reply::Bulk(double(score).into()));
        }
    }
    Reply::Array(items)
}

fn maybe(found: Option<&Bytes>) -> Reply {
    found.map_or(Reply::Nil, |found| Reply::Bulk(found.clone()))
}

impl Exec {
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_us / 1000
    }

    /// Carries one command out. None: there is no such command on keys.
    pub(crate) fn run(&mut self, args: &[Bytes]) -> Option<Reply> {
        let name = name_of(args);
        let least = match name.as_str() {
            "TIME" | "PING" | "DBSIZE" | "FLUSHALL" => 1,
            "GET" | "HLEN" | "HGETALL" | "HVALS" | "HKEYS" | "HRANDFIELD" | "ZCARD" | "XLEN" | "TYPE" | "EXISTS"
            | "DEL" | "UNLINK" | "INCR" | "PTTL" | "TTL" | "ECHO" => 2,
            "SET" | "INCRBY" | "HGET" | "HMGET" | "HDEL" | "HEXISTS" | "HSTRLEN" | "ZREM" | "ZSCORE" | "ZMSCORE"
            | "ZSCAN" | "HSCAN" | "EXPIRE" | "PEXPIRE" | "PEXPIREAT" | "PUBLISH" | "XDEL" => 3,
            "HSET" | "HSETNX" | "ZADD" | "ZCOUNT" | "ZRANGE" | "ZRANGEBYSCORE" | "ZREMRANGEBYSCORE"
            | "ZREMRANGEBYRANK" | "XTRIM" | "XRANGE" => 4,
            "XADD" => 5,
            _ => return None,
        };
        if args.len() < least {
            return Some(Reply::error(format!("ERR wrong number of arguments for '{}' command", name.to_lowercase())));
        }
        if let Some(needs_memory) = writes(&name) {
            if let Some(why) = &self.read_only {
                return Some(Reply::error(why.clone()));
            }
            if needs_memory && self.full {
                return Some(Reply::error(OOM));
            }
        }
        let answer = match name.as_bytes()[0] {
            b'H' => self.hash(&name, args),
            b'Z' => self.zset(&name, args),
            b'X' => self.stream(&name, args),
            _ => self.plain(&name, args),
        };
        Some(answer.unwrap_or_else(Reply::Error))
    }

    fn changed(&mut self, args: &[Bytes]) {
        self.effects.push(args.to_vec());
    }

    fn plain(&mut self, name: &str, args: &[Bytes]) -> Answer {
        let now = self.now_ms();
        Ok(match name {
            "PING" => args.get(1).map_or_else(|| Reply::Status("PONG".to_owned()), |text| Reply::Bulk(text.clone())),
            "ECHO" => Reply::Bulk(args[1].clone()),
            "TIME" => {
                let part = |number: i64| Reply::Bulk(number.to_string().into());
                Reply::Array(vec![part(self.now_us.div_euclid(1_000_000)), part(self.now_us.rem_euclid(1_000_000))])
            }
            "DBSIZE" => Reply::count(self.db.len()),
            "FLUSHALL" => {
                self.db.clear();
                self.changed(args);
                Reply::ok()
            }
            "GET" => match self.db.get(&args[1], now) {
                Some(Value::String(value)) => Reply::Bulk(value.clone()),
                Some(_) => return Err(WRONG_TYPE.to_owned()),
                None => Reply::Nil,
            },
            "SET" => {
                if args.len() > 3 {
                    return Err(SYNTAX.to_owned());
                }
                self.db.set(&args[1], Value::String(args[2].clone()));
                self.changed(args);
                Reply::ok()
            }
            "INCR" | "INCRBY" => {
                let by: i64 = args.get(2).map_or(Ok(1), |text| number(text))?;
                let before = match self.db.get(&args[1], now) {
                    Some(Value::String(value)) => number(value)?,
                    Some(_) => return Err(WRONG_TYPE.to_owned()),
                    None => 0,
                };
                let after = by.checked_add(before).ok_or("ERR increment or decrement would overflow")?;
                let ends = self.db.ends_at_ms(&args[1]);
                self.db.set(&args[1], Value::String(after.to_string().into()));
                self.db.end_at_ms(&args[1], ends);
                self.changed(args);
                Reply::Int(after)
            }
            "EXISTS" => Reply::count(args[1..].iter().filter(|key| self.db.get(key, now).is_some()).count()),
            "DEL" | "UNLINK" => {
                let mut gone = 0;
                for key in &args[1..] {
                    gone += usize::from(self.db.get(key, now).is_some() && self.db.remove(key).is_some());
                }
                if gone > 0 {
                    self.changed(args);
                }
                Reply::count(gone)
            }
            "TYPE" => Reply::Status(self.db.get(&args[1], now).map_or("none", Value::kind).to_owned()),
            "EXPIRE" | "PEXPIRE" | "PEXPIREAT" => {
                let given: i64 = number(&args[2])?;
                let at = match name {
                    "EXPIRE" => now + given * 1000,
                    "PEXPIRE" => now + given,
                    _ => given,
                };
                if self.db.get(&args[1], now).is_none() {
                    return Ok(Reply::Int(0));
                }
                self.db.end_at_ms(&args[1], Some(at));
                self.changed(&[Bytes::from("PEXPIREAT"), args[1].clone(), at.to_string().into()]);
                Reply::Int(1)
            }
            "PTTL" | "TTL" => match (self.db.get(&args[1], now).is_some(), self.db.ends_at_ms(&args[1])) {
                (false, _) => Reply::Int(-2),
                (true, None) => Reply::Int(-1),
                (true, Some(end)) if name == "PTTL" => Reply::Int(end - now),
                (true, Some(end)) => Reply::Int((end - now + 500) / 1000),
            },
            "PUBLISH" => {
                self.published.push((args[1].clone(), args[2].clone()));
                Reply::Int(0)
            }
            _ => return Err(format!("ERR unknown command '{name}'")),
        })
    }

    fn hash(&mut self, name: &str, args: &[Bytes]) -> Answer {
        let (now, key) = (self.now_ms(), &args[1]);
        match name {
            "HSET" => {
                if !args.len().is_multiple_of(2) {
                    return Err("ERR wrong number of arguments for 'hset' command".to_owned());
                }
                let new = self.db.change_hash(key, now, |fields| {
                    let pairs = args[2..].chunks_exact(2);
                    pairs.filter(|pair| fields.insert(pair[0].clone(), pair[1].clone()).is_none()).count()
                })?;
                self.changed(args);
                return Ok(Reply::count(new));
            }
            "HSETNX" => {
                let is_new = self.db.change_hash(key, now, |fields| {
                    let is_new = !fields.contains_key(&args[2]);
                    if is_new {
                        fields.insert(args[2].clone(), args[3].clone());
                    }
                    is_new
                })?;
                if is_new {
                    self.changed(args);
                }
                return Ok(Reply::Int(i64::from(is_new)));
            }
            "HDEL" => {
                if self.db.hash(key, now)?.is_none() {
                    return Ok(Reply::Int(0));
                }
                let gone = self.db.change_hash(key, now, |fields| {
                    args[2..].iter().filter(|field| fields.remove(*field).is_some()).count()
                })?;
                if gone > 0 {
                    self.changed(args);
                }
                return Ok(Reply::count(gone));
            }
            _ => {}
        }
        let empty = Default::default();
        let fields = self.db.hash(key, now)?.unwrap_or(&empty);
        Ok(match name {
            "HGET" => maybe(fields.get(&args[2])),
            "HMGET" => Reply::Array(args[2..].iter().map(|field| maybe(fields.get(field))).collect()),
            "HLEN" => Reply::count(fields.len()),
            "HEXISTS" => Reply::Int(i64::from(fields.contains_key(&args[2]))),
            "HSTRLEN" => Reply::count(fields.get(&args[2]).map_or(0, Bytes::len)),
            "HGETALL" => {
                let pairs = fields.iter().flat_map(|(field, value)| [field, value]);
                Reply::Array(pairs.map(|part| Reply::Bulk(part.clone())).collect())
            }
            "HVALS" => Reply::Array(fields.values().map(|value| Reply::Bulk(value.clone())).collect()),
            "HKEYS" => Reply::Array(fields.keys().map(|field| Reply::Bulk(field.clone())).collect()),
            // Any that are there: the first ones.
            "HRANDFIELD" => {
                let Some(count) = args.get(2) else { return Ok(maybe(fields.keys().next())) };
                let count = number::<i64>(count)?.unsigned_abs();
                let with_values = args.get(3).is_some_and(|word| is(word, "WITHVALUES"));
                let taken = fields.iter().take(usize::try_from(count).unwrap_or(usize::MAX));
                let parts = taken.flat_map(|(field, value)| [Some(field), Some(value).filter(|_| with_values)]);
                Reply::Array(parts.flatten().map(|part| Reply::Bulk(part.clone())).collect())
            }
            "HSCAN" => {
                let pairs = fields.iter().flat_map(|(field, value)| [field, value]);
                let page = pairs.map(|part| Reply::Bulk(part.clone())).collect();
                Reply::Array(vec![Reply::bulk(b"0"), Reply::Array(page)])
            }
            _ => return Err(format!("ERR unknown command '{name}'")),
        })
    }

    fn zset(&mut self, name: &str, args: &[Bytes]) -> Answer {
        let (now, key) = (self.now_ms(), &args[1]);
        match name {
            "ZADD" => return self.zadd(args),
            "ZREM" | "ZREMRANGEBYSCORE" | "ZREMRANGEBYRANK" => {
                let Some(members) = self.db.zset(key, now)? else { return Ok(Reply::Int(0)) };
                let gone: Vec<Bytes> = match name {
                    "ZREM" => args[2..].to_vec(),
                    "ZREMRANGEBYSCORE" => {
                        members.by_score(end(&args[2])?, end(&args[3])?).map(|(_, member)| member.clone()).collect()
                    }
                    _ => {
                        let ranked = members.by_rank(number(&args[2])?, number(&args[3])?);
                        ranked.into_iter().map(|(_, member)| member).collect()
                    }
                };
                let count = self.db.change_zset(key, now, |members| {
                    gone.iter().filter(|member| members.remove(member).is_some()).count()
                })?;
                if count > 0 {
                    self.changed(args);
                }
                return Ok(Reply::count(count));
            }
            _ => {}
        }
        let empty = Zset::default();
        let members = self.db.zset(key, now)?.unwrap_or(&empty);
        let shown = |score: Option<f64>| score.map_or(Reply::Nil, |score| Reply::Bulk(double(score).into()));
        Ok(match name {
            "ZCARD" => Reply::count(members.len()),
            "ZSCORE" => shown(members.score(&args[2])),
            "ZMSCORE" => Reply::Array(args[2..].iter().map(|member| shown(members.score(member))).collect()),
            "ZCOUNT" => Reply::count(members.by_score(end(&args[2])?, end(&args[3])?).count()),
            "ZRANGE" => {
                let with_scores = match args.get(4) {
                    None => false,
                    Some(word) if is(word, "WITHSCORES") && args.len() == 5 => true,
                    Some(_) => return Err(SYNTAX.to_owned()),
                };
                scored(members.by_rank(number(&args[2])?, number(&args[3])?), with_scores)
            }
            "ZRANGEBYSCORE" => {
                let (mut with_scores, mut skip, mut most, mut at) = (false, 0, usize::MAX, 4);
                while let Some(word) = args.get(at) {
                    if is(word, "WITHSCORES") {
                        (with_scores, at) = (true, at + 1);
                    } else if is(word, "LIMIT") && args.len() > at + 2 {
                        skip = number(&args[at + 1])?;
                        most = usize::try_from(number::<i64>(&args[at + 2])?).unwrap_or(usize::MAX);
                        at += 3;
                    } else {
                        return Err(SYNTAX.to_owned());
                    }
                }
                let found = members.by_score(end(&args[2])?, end(&args[3])?).skip(skip).take(most);
                scored(found.map(|(score, member)| (score, member.clone())), with_scores)
            }
            "ZSCAN" => {
                let count = match args.get(3) {
                    None => 10,
                    Some(word) if is(word, "COUNT") && args.len() == 5 => number(&args[4])?,
                    Some(_) => return Err(SYNTAX.to_owned()),
                };
                let cursor = number(&args[2]).map_err(|_| "ERR invalid cursor".to_owned())?;
                let (next, page) = members.scan(cursor, count);
                Reply::Array(vec![Reply::Bulk(next.to_string().into()), scored(page, true)])
            }
            _ => return Err(format!("ERR unknown command '{name}'")),
        })
    }

    fn zadd(&mut self, args: &[Bytes]) -> Answer {
        let (mut only_new, mut changed_too, mut at) = (false, false, 2);
        loop {
            match args.get(at) {
                Some(word) if is(word, "NX") => only_new = true,
                Some(word) if is(word, "CH") => changed_too = true,
                _ => break,
            }
            at += 1;
        }
        let pairs = &args[at..];
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Err(SYNTAX.to_owned());
        }
        let scores = pairs.chunks_exact(2).map(|pair| score(&pair[0])).collect::<Result<Vec<_>, _>>()?;
        let (added, moved) = self.db.change_zset(&args[1], self.now_us / 1000, |members| {
            let (mut added, mut moved) = (0, 0);
            for (pair, score) in pairs.chunks_exact(2).zip(scores) {
                if only_new && members.score(&pair[1]).is_some() {
                    continue;
                }
                match members.set(&pair[1], score) {
                    None => added += 1,
                    Some(before) => moved += usize::from(before != score),
                }
            }
            (added, moved)
        })?;
        if added + moved > 0 {
            self.changed(args);
        }
        Ok(Reply::count(if changed_too { added + moved } else { added }))
    }

    fn stream(&mut self, name: &str, args: &[Bytes]) -> Answer {
        let (now, key) = (self.now_ms(), &args[1]);
        let id_text = |id: (u64, u64)| Bytes::from(format!("{}-{}", id.0, id.1));
        let id_of = |text: &[u8], sub: u64| -> Result<(u64, u64), String> {
            let text = std::str::from_utf8(text).unwrap_or("");
            let wrong = || "ERR Invalid stream ID specified as stream command argument".to_owned();
            match text.split_once('-') {
                Some((ms, sub)) => Ok((ms.parse().map_err(|_| wrong())?, sub.parse().map_err(|_| wrong())?)),
                None => Ok((text.parse().map_err(|_| wrong())?, sub)),
            }
        };
        Ok(match name {
            "XADD" => {
                let (id, parts) = (&args[2], &args[3..]);
                if !parts.len().is_multiple_of(2) {
                    return Err("ERR wrong number of arguments for 'xadd' command".to_owned());
                }
                let given = if id.as_ref() == b"*" { None } else { Some(id_of(id, 0)?) };
                let now = u64::try_from(now).unwrap_or(0);
                let id = self.db.change_stream(key, self.now_us / 1000, |stream| {
                    let next = if now > stream.last.0 { (now, 0) } else { (stream.last.0, stream.last.1 + 1) };
                    let id = given.unwrap_or(next);
                    if id <= stream.last {
                        return None;
                    }
                    stream.last = id;
                    stream.entries.insert(id, parts.to_vec());
                    Some(id)
                })?;
                let id =
                    id.ok_or("ERR The ID specified in XADD is equal or smaller than the target stream top item")?;
                let mut effect = args.to_vec();
                effect[2] = id_text(id);
                self.changed(&effect);
                Reply::Bulk(id_text(id))
            }
            "XLEN" => Reply::count(self.db.stream(key, now)?.map_or(0, |stream| stream.entries.len())),
            "XTRIM" => {
                let most: usize = number(args.last().expect("it has arguments"))?;
                if !is(&args[2], "MAXLEN") || self.db.stream(key, now)?.is_none() {
                    return Ok(Reply::Int(0));
                }
                let about = args[3].as_ref() == b"~";
                let gone = self.db.change_stream(key, now, |stream| {
                    let mut over = stream.entries.len().saturating_sub(most);
                    if about {
                        // Redis removes whole nodes of a hundred entries.
                        over -= over % 100;
                    }
                    (0..over).for_each(|_| drop(stream.entries.pop_first()));
                    over
                })?;
                if gone > 0 {
                    self.changed(args);
                }
                Reply::count(gone)
            }
            "XDEL" => {
                let ids = args[2..].iter().map(|id| id_of(id, 0)).collect::<Result<Vec<_>, _>>()?;
                if self.db.stream(key, now)?.is_none() {
                    return Ok(Reply::Int(0));
                }
                let gone = self.db.change_stream(key, now, |stream| {
                    ids.iter().filter(|id| stream.entries.remove(id).is_some()).count()
                })?;
                if gone > 0 {
                    self.changed(args);
                }
                Reply::count(gone)
            }
            "XRANGE" => {
                let from = if args[2].as_ref() == b"-" { (0, 0) } else { id_of(&args[2], 0)? };
                let to = if args[3].as_ref() == b"+" { (u64::MAX, u64::MAX) } else { id_of(&args[3], u64::MAX)? };
                let Some(stream) = self.db.stream(key, now)? else { return Ok(Reply::Array(Vec::new())) };
                let range = stream.entries.range((Bound::Included(from), Bound::Included(to)));
                let entry = |(id, parts): (&(u64, u64), &Vec<Bytes>)| {
                    let parts = parts.iter().map(|part| Reply::Bulk(part.clone())).collect();
                    Reply::Array(vec![Reply::Bulk(id_text(*id)), Reply::Array(parts)])
                };
                Reply::Array(range.map(entry).collect())
            }
            _ => return Err(format!("ERR unknown command '{name}'")),
        })
    }
}
