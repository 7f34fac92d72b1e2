//! Reads: messages, dead letters, heads, counts. Nothing here writes.

use duetime_core::envelope::{self, Envelope};
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::message::{Death, MessageState, StoredMessage};
use duetime_core::store::{DeadPage, ShardCounts, StoreError};
use duetime_core::{ListEntry, ListPage, ListRange, Lookup, MessageId, Score, Shard, Timestamp};
use duetime_redis::{LinkError, Sending};
use futures::future::join_all;
use redis::{Cmd, Pipeline, Value};

use crate::caller_time::CallerTime;
use crate::calls::Calls;
use crate::held::{HELD, ask_held, held};
use crate::record;
use crate::reply::{array, bytes, count, id, outcome, score, store_error, text, tuple, unexpected_reply};

/// Commands sent in one pipeline of reads.
const PIPELINE_MAX: usize = 2048;
/// Commands that count one shard.
const COUNTS: usize = 3 + HELD;

/// The body, or what can be said without one: a reader must not fail over what a claim will bury.
fn body(value: Value) -> Envelope {
    let decoded = bytes(value).and_then(|body| envelope::decode(&body).ok());
    decoded.unwrap_or_else(Envelope::lost)
}

fn live(id: MessageId, score: Score, body: Envelope) -> StoredMessage {
    let state = if score.class().is_held() { MessageState::InFlight } else { MessageState::Scheduled };
    StoredMessage {
        id,
        state,
        due_at: body.due_at,
        visible_at: score.visible_at(),
        attempts: score.tries(),
        redrives: body.redrives,
        nonce: body.nonce,
        headers: body.headers,
        payload: body.payload,
        death: None,
    }
}

fn dead(id: MessageId, score: Score, body: Envelope, info: Value) -> StoredMessage {
    let info = text(info).unwrap_or_default();
    let (attempts, reason) = info.split_once(' ').unwrap_or(("0", ""));
    StoredMessage {
        id,
        state: MessageState::Dead,
        due_at: body.due_at,
        visible_at: score.visible_at(),
        attempts: attempts.parse().unwrap_or(0),
        redrives: body.redrives,
        nonce: body.nonce,
        headers: body.headers,
        payload: body.payload,
        death: Some(Death { at: score.visible_at(), reason: reason.to_owned() }),
    }
}

/// Reads the answer of the get script to these ids.
pub(crate) fn messages<'a>(
    ids: impl Iterator<Item = &'a MessageId>,
    reply: Value,
) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
    let ids: Vec<&MessageId> = ids.collect();
    let [scores, bodies, graves, infos, past] = tuple(reply)?;
    let (scores, bodies, graves, infos) = (array(scores)?, array(bodies)?, array(graves)?, array(infos)?);
    let past = array(past)?;
    if [scores.len(), bodies.len(), graves.len(), infos.len(), past.len()] != [ids.len(); 5] {
        return Err(unexpected_reply("another number of messages than of ids"));
    }
    let rows = scores.into_iter().zip(bodies).zip(graves.into_iter().zip(infos)).zip(past);
    ids.into_iter()
        .zip(rows)
        .map(|(id, (((at, stored), (grave, info)), became))| {
            Ok(match (score(&at)?, score(&grave)?) {
                (Some(at), _) => Lookup::Found(live(id.clone(), at, body(stored))),
                (None, Some(grave)) => Lookup::Found(dead(id.clone(), grave, body(stored), info)),
                (None, None) => Lookup::Absent(outcome(&became)?),
            })
        })
        .collect()
}

pub(crate) async fn read_messages(
    calls: &Calls,
    shard: &Shard,
    ids: &[MessageId],
) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
    let mut found = Vec::with_capacity(ids.len());
    for part in ids.chunks(BATCH_ITEMS_MAX) {
        let fill = |cmd: &mut Cmd, _: &Sending| {
            for id in part {
                cmd.arg(id.as_str());
            }
        };
        let reply =
            calls.on_shard("read messages", &calls.scripts.home.get, shard, CallerTime::none(), None, fill).await?;
        found.extend(messages(part.iter(), reply)?);
    }
    Ok(found)
}

/// Claims that a cancel ended, as cancel.lua notes them.
pub(crate) async fn read_cancelled(calls: &Calls, shard: &Shard) -> Result<Vec<(MessageId, Score)>, StoreError> {
    let doing = "read cancelled claims";
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.cmd("HGET").arg(calls.keys.bodies(shard)).arg("\0cancelled");
    let answers = calls.link.pipeline(doing, &pipeline).await.map_err(|error| store_error(doing, None, error))?;
    let noted = answers.into_iter().next();
    let noted = noted.and_then(text).unwrap_or_default();
    let of = |line: &str| {
        let (score, id) = line.split_once(' ')?;
        Some((MessageId::new(id).ok()?, Score::from_raw(score.parse().ok()?)))
    };
    Ok(noted.lines().filter_map(of).collect())
}

pub(crate) async fn read_dead(
    calls: &Calls,
    shard: &Shard,
    from: Option<i64>,
    limit: usize,
) -> Result<DeadPage, StoreError> {
    let limit = limit.clamp(1, BATCH_ITEMS_MAX);
    // One more than asked: its score is where the next page starts.
    let fill = |cmd: &mut Cmd, _: &Sending| {
        match from {
            Some(from) => cmd.arg(from),
            None => cmd.arg("-inf"),
        };
        cmd.arg(limit + 1);
    };
    let reply = calls.on_whole_shard("read dead letters", &calls.scripts.dead_page, shard, fill).await?;
    let [pairs, bodies, infos, moving] = tuple(reply)?;
    let pairs = array(pairs)?;
    let mut own = Vec::with_capacity(pairs.len() / 2);
    for ((pair, stored), info) in pairs.chunks_exact(2).zip(array(bodies)?).zip(array(infos)?) {
        let grave = score(&pair[1])?.ok_or_else(|| unexpected_reply("a dead letter without a time"))?;
        own.push((grave.raw(), dead(id(&pair[0])?, grave, body(stored), info)));
    }
    let next = if own.len() > limit { own.pop().map(|(at, _)| at) } else { None };
    let mut frozen = Vec::new();
    for pair in array(moving)?.chunks_exact(2) {
        let one = record::frozen(id(&pair[0])?, pair[1].clone());
        let one = one.ok_or_else(|| unexpected_reply("a message in an outbox"))?;
        frozen.extend(one.dead_letter().filter(|(at, _)| from.is_none_or(|from| *at >= from)));
    }
    Ok(DeadPage::merged(own, next, frozen, limit))
}

/// Those of the pairs of id and score that are in `range`.
fn entries(pairs: Value, range: &ListRange) -> Result<Vec<ListEntry>, StoreError> {
    let mut found = Vec::new();
    for pair in array(pairs)?.chunks_exact(2) {
        // The entry that is never claimed has no score.
        let at = score(&pair[1])?.filter(|at| (range.lowest()..range.end()).contains(&at.raw()));
        if let Some(at) = at {
            let id = id(&pair[0])?;
            found.push(ListEntry { tie: id.to_string(), id, score: at });
        }
    }
    Ok(found)
}

pub(crate) async fn read_list(
    calls: &Calls,
    shard: &Shard,
    range: &ListRange,
    limit: usize,
) -> Result<ListPage, StoreError> {
    let limit = limit.clamp(1, BATCH_ITEMS_MAX);
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(range.lowest()).arg(limit);
        if let Some(after) = &range.after {
            cmd.arg(after.score).arg(after.tie.as_str());
        }
    };
    let reply = calls.on_whole_shard("list messages", &calls.scripts.list, shard, fill).await?;
    let [pairs, moving] = tuple(reply)?;
    let found = entries(pairs, range)?;
    let mut page = ListPage { more: found.len() == limit, found };
    let behind = |one: &ListEntry| {
        let after = range.after.as_ref();
        after.is_none_or(|after| (one.score.raw(), one.tie.as_str()) > (after.score, after.tie.as_str()))
    };
    let mut moving = entries(moving, range)?;
    moving.retain(behind);
    page.merge(moving, limit, |one| (one.score, one.id.clone()));
    Ok(page)
}

pub(crate) async fn read_heads(calls: &Calls, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
    let doing = "look at the heads";
    let asked: Vec<Pipeline> = shards
        .chunks(PIPELINE_MAX)
        .map(|part| {
            let mut pipeline = Pipeline::with_capacity(part.len());
            for shard in part {
                pipeline.cmd("ZRANGE").arg(calls.keys.messages(shard)).arg(0).arg(0).arg("WITHSCORES");
            }
            pipeline
        })
        .collect();
    let looks = join_all(asked.iter().map(|pipeline| calls.link.look(doing, pipeline))).await;
    let answers = looks.into_iter().flatten();
    answers.map(|first| head(first.map_err(|error| store_error(doing, None, error))?)).collect()
}

/// Counts of each shard; `None`: its master is silent while others answer.
pub(crate) async fn count_shards(
    calls: &Calls,
    shards: &[Shard],
    now: Timestamp,
) -> Result<Vec<Option<ShardCounts>>, StoreError> {
    let asked: Vec<Pipeline> = shards.chunks(PIPELINE_MAX / COUNTS).map(|part| counts(calls, part, now)).collect();
    let groups = look_each(calls, "count messages", &asked, COUNTS).await?;
    groups.into_iter().map(|values| values.map(|values| counted(&values)).transpose()).collect()
}

fn counts(calls: &Calls, shards: &[Shard], now: Timestamp) -> Pipeline {
    let top = Score::due_at_most(now).raw();
    let mut pipeline = Pipeline::with_capacity(shards.len() * COUNTS);
    for shard in shards {
        let key = calls.keys.messages(shard);
        pipeline.cmd("ZRANGE").arg(&key).arg(0).arg(0).arg("WITHSCORES");
        pipeline.cmd("ZCOUNT").arg(&key).arg("-inf").arg(top);
        pipeline.cmd("HGET").arg(calls.keys.meta(shard)).arg("in_flight");
        ask_held(&mut pipeline, &calls.keys, shard);
    }
    pipeline
}

/// Asks all at once; the answers in groups of so many, `None` where a master is silent while
/// others answer.
pub(crate) async fn look_each(
    calls: &Calls,
    doing: &'static str,
    asked: &[Pipeline],
    group: usize,
) -> Result<Vec<Option<Vec<Value>>>, StoreError> {
    let looks = join_all(asked.iter().map(|pipeline| calls.link.look(doing, pipeline))).await;
    let mut groups = Vec::new();
    let mut silent = None;
    for answers in looks {
        let mut answers = answers.into_iter();
        while answers.len() >= group {
            match answers.by_ref().take(group).collect::<Vec<_>>().into_iter().collect() {
                Ok(values) => groups.push(Some(values)),
                Err(LinkError::Unavailable(text)) => {
                    silent = Some(text);
                    groups.push(None);
                }
                Err(error) => return Err(store_error(doing, None, error)),
            }
        }
    }
    match silent {
        Some(text) if groups.iter().all(Option::is_none) => Err(store_error(doing, None, LinkError::Unavailable(text))),
        _ => Ok(groups),
    }
}

/// How many messages are visible in each bucket, but for shards whose master is silent while others answer; and how
/// many these are.
pub(crate) async fn count_buckets(
    calls: &Calls,
    shards: &[Shard],
    edges: &[Timestamp],
) -> Result<(Vec<u64>, usize), StoreError> {
    let mut totals = vec![0u64; edges.len().saturating_sub(1)];
    if totals.is_empty() {
        return Ok((totals, 0));
    }
    let parts = shards.chunks((PIPELINE_MAX / totals.len()).max(1));
    let asked: Vec<Pipeline> = parts.map(|part| buckets(calls, part, edges)).collect();
    let groups = look_each(calls, "forecast", &asked, totals.len()).await?;
    let silent = groups.iter().filter(|values| values.is_none()).count();
    for values in groups.iter().flatten() {
        add_up(&mut totals, values)?;
    }
    Ok((totals, silent))
}

fn buckets(calls: &Calls, shards: &[Shard], edges: &[Timestamp]) -> Pipeline {
    let edge = |at: Timestamp| at.as_millis().saturating_mul(1000);
    let mut pipeline = Pipeline::with_capacity(shards.len() * edges.len());
    for shard in shards {
        for pair in edges.windows(2) {
            pipeline.cmd("ZCOUNT").arg(calls.keys.messages(shard));
            pipeline.arg(edge(pair[0])).arg(format!("({}", edge(pair[1])));
        }
    }
    pipeline
}

/// Reads the answers to the counts of one shard.
pub(crate) fn counted(values: &[Value]) -> Result<ShardCounts, StoreError> {
    let [first, due, claimed, live, dead, frozen] = values else {
        return Err(unexpected_reply("another number of counts than asked for"));
    };
    let in_flight = if *claimed == Value::Nil { 0 } else { count(claimed)? };
    let held = held([live, dead, frozen])?;
    Ok(ShardCounts {
        scheduled: held.live.saturating_sub(in_flight),
        due: count(due)?,
        in_flight,
        dead: held.dead,
        moving: held.frozen,
        head: head(first.clone())?,
    })
}

/// Adds the counts of shards, bucket by bucket.
pub(crate) fn add_up(totals: &mut [u64], values: &[Value]) -> Result<(), StoreError> {
    for (at, value) in values.iter().enumerate() {
        let total = &mut totals[at % totals.len()];
        *total = total.saturating_add(count(value)?);
    }
    Ok(())
}

/// Visible time of the first message; a shard with only the entry that is never claimed has none.
pub(crate) fn head(first: Value) -> Result<Option<Timestamp>, StoreError> {
    Ok(match array(first)?.get(1) {
        Some(at) => score(at)?.map(Score::visible_at),
        None => None,
    })
}
