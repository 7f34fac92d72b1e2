//! Redis' slow log: which scripts held it up for longer than they should.

use std::collections::BTreeMap;

use redis::Value;
use redis::aio::MultiplexedConnection;

/// Scripts longer than this are counted, in microseconds.
pub const SLOW_MICROS: i64 = 1_000;
const ENTRIES_MAX: usize = 100_000;
/// Words of an `EVALSHA` of a shard's script before its own arguments: command, name, 7, keys, epoch.
const ARGUMENTS: usize = 3 + 7 + 1;

/// How many were slow, and the longest, in microseconds, by what they did.
pub type Slow = BTreeMap<&'static str, (u64, i64)>;

async fn config(server: &mut MultiplexedConnection, name: &str, value: String) {
    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec_async(server).await.expect("the server obeys");
}

/// Begins a log.
pub async fn watch(server: &mut MultiplexedConnection) {
    config(server, "slowlog-max-len", ENTRIES_MAX.to_string()).await;
    config(server, "slowlog-log-slower-than", SLOW_MICROS.to_string()).await;
}

/// What was slow since the last look.
pub async fn take(server: &mut MultiplexedConnection) -> Slow {
    let entries: Vec<Vec<Value>> =
        redis::cmd("SLOWLOG").arg("GET").arg(ENTRIES_MAX).query_async(server).await.expect("the server answers");
    redis::cmd("SLOWLOG").arg("RESET").exec_async(server).await.expect("the server obeys");
    let mut slow = Slow::new();
    for entry in entries {
        let (Some(Value::Int(micros)), Some(Value::Array(words))) = (entry.get(2), entry.get(3)) else { continue };
        let one = slow.entry(kind(words)).or_default();
        *one = (one.0 + 1, one.1.max(*micros));
    }
    slow
}

fn word(words: &[Value], nth: usize) -> &[u8] {
    match words.get(nth) {
        Some(Value::BulkString(bytes)) => bytes,
        _ => b"",
    }
}

/// The log has no names of scripts: they are recognised by the shape of their arguments.
fn kind(words: &[Value]) -> &'static str {
    let is_nonce = |text: &[u8]| text.len() == 16 && text.iter().all(u8::is_ascii_hexdigit);
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let own = |nth: usize| word(words, ARGUMENTS + nth);
    if !word(words, 0).eq_ignore_ascii_case(b"EVALSHA") {
        return "other commands";
    }
    match own(0) {
        b"l" | b"d" if words.len() == ARGUMENTS + 3 => "scan",
        to if is_number(to) && is_nonce(own(1)) => "take",
        from if is_number(from) && is_number(own(1)) && is_nonce(own(2)) => "put",
        _ => "other scripts",
    }
}
