//! Looks at the server before it is trusted; each refusal says how to fix it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;
use tracing::warn;

use crate::error::LinkError;
use crate::node::Node;
use crate::reply::{clock_of, text};
use crate::servers::Servers;

/// What the server must be like.
#[derive(Debug, Clone, Copy)]
pub struct Checks {
    /// Refuse a server that may evict keys.
    pub noeviction: bool,
    /// Refuse a server that runs no scripts.
    pub scripts: bool,
}

/// What the server said about itself.
#[derive(Debug, Clone, Default)]
pub struct ServerFacts {
    /// `redis_version`; empty when INFO is not permitted.
    pub version: String,
    /// `maxmemory-policy`; empty when it cannot be read.
    pub policy: String,
}

/// Longest wait for one master to send its time.
const TELL_WITHIN: Duration = Duration::from_secs(1);
/// Oldest server that has every command the scripts use.
const VERSION_MIN: (u32, u32) = (6, 2);

pub(crate) fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// See [`Link::check`](crate::Link::check). `legacy` is set where one is older than 7.0.
pub(crate) async fn check(servers: &Servers, checks: Checks, legacy: &AtomicBool) -> Result<ServerFacts, LinkError> {
    let mut facts = ServerFacts::default();
    for node in servers.masters().await? {
        facts = check_node(servers, &node, checks, legacy).await?;
    }
    Ok(facts)
}

async fn check_node(
    servers: &Servers,
    node: &Node,
    checks: Checks,
    legacy: &AtomicBool,
) -> Result<ServerFacts, LinkError> {
    let mut facts = ServerFacts::default();
    match servers.command_on(node, "info", &redis::cmd("INFO")).await {
        Ok(info) => {
            let info = text(&info);
            let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
            facts.version = fields.get("redis_version").unwrap_or(&"").trim().to_owned();
            facts.policy = fields.get("maxmemory_policy").unwrap_or(&"").trim().to_owned();
            check_version(&facts.version, legacy)?;
        }
        Err(LinkError::NotPermitted(reason)) => {
            warn!(%reason, "cannot ask redis for its version; taking it for 7.0 or later");
        }
        Err(error) => return Err(error),
    }
    if checks.noeviction {
        match facts.policy.as_str() {
            "" => warn!("cannot ask redis for maxmemory-policy; it must be noeviction or messages can vanish"),
            "noeviction" => {}
            other => {
                return Err(LinkError::Setup(format!(
                    "redis may evict messages: maxmemory-policy is {other}; set it: \
                     redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf"
                )));
            }
        }
    }
    if checks.scripts {
        check_scripts(servers, node).await?;
    }
    Ok(facts)
}

/// Runs a script as all are run: loaded, then called by its name.
async fn check_scripts(servers: &Servers, node: &Node) -> Result<(), LinkError> {
    let script = redis::Script::new("return 1");
    let (mut load, mut run) = (redis::cmd("SCRIPT"), redis::cmd("EVALSHA"));
    load.arg("LOAD").arg("return 1");
    run.arg(script.get_hash()).arg(0);
    for (name, cmd) in [("SCRIPT LOAD", load), ("EVALSHA", run)] {
        match servers.command_on(node, "script", &cmd).await {
            Err(LinkError::Refused { code, detail }) => {
                return Err(LinkError::Setup(format!(
                    "redis at {} refuses {name} ({code} {detail}), and every operation of duetime is a script; take \
                     rename-command for SCRIPT and EVALSHA out of redis.conf, give the user `+evalsha +script|load`, or use a \
                     server that runs scripts",
                    node.name
                )));
            }
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// See [`Link::check_clock`](crate::Link::check_clock).
pub(crate) async fn check_clock(servers: &Servers, own_ms: impl Fn() -> i64, most_ms: i64) -> Result<(), LinkError> {
    for node in servers.masters().await? {
        let before = own_ms();
        let theirs = read_clock(&servers.command_on(&node, "time", &redis::cmd("TIME")).await?)?;
        let apart = clock_skew_ms(before, theirs, own_ms());
        if apart.abs() > most_ms {
            return Err(LinkError::Setup(format!(
                "this machine's clock and that of redis at {} differ by {apart} ms, more than {most_ms}; set both \
                 by NTP (timedatectl set-ntp true)",
                node.name
            )));
        }
    }
    Ok(())
}

/// See [`Link::clock_skew_ms`](crate::Link::clock_skew_ms).
pub(crate) async fn clock_skews(servers: &Servers, own_ms: impl Fn() -> i64) -> Result<ClockSkews, LinkError> {
    let (masters, cmd) = (servers.masters().await?, redis::cmd("TIME"));
    let asked = masters.iter().map(|node| async {
        let before = own_ms();
        let answer = tokio::time::timeout(TELL_WITHIN, node.send(&cmd, false)).await;
        let silent = |_| LinkError::Unavailable(format!("{} does not answer with its time", node.name));
        Ok((node.name.clone(), clock_skew_ms(before, read_clock(&answer.map_err(silent)??)?, own_ms())))
    });
    let (answered, silent): (Vec<_>, Vec<_>) =
        futures::future::join_all(asked).await.into_iter().partition(Result::is_ok);
    let mut answered: Vec<(String, i64)> = answered.into_iter().flatten().collect();
    answered.sort_by_key(|(_, ms)| ms.abs());
    match (answered.first().map(|(_, ms)| *ms), answered.pop(), silent.into_iter().next()) {
        (Some(least_ms), Some((worst, worst_ms)), _) => Ok(ClockSkews { least_ms, worst_ms, worst }),
        (_, _, Some(Err(error))) => Err(error),
        _ => Err(LinkError::Unavailable("no master is known".to_owned())),
    }
}

fn check_version(version: &str, legacy: &AtomicBool) -> Result<(), LinkError> {
    let Some(found) = numbers(version) else {
        warn!(version, "cannot read redis's version; taking it for 7.0 or later");
        return Ok(());
    };
    if found < VERSION_MIN {
        return Err(LinkError::Setup(format!(
            "redis {version} is too old; duetime needs 6.2 or later, upgrade the server"
        )));
    }
    if found.0 < 7 {
        // One old master is enough: what it takes, newer ones take too.
        legacy.store(true, Ordering::Relaxed);
        warn!(version, "redis before 7.0 refuses claims too when its memory is full; 7.0 does not");
    }
    Ok(())
}

/// How far the clocks of all masters that answer are ahead of this process's, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockSkews {
    /// All of them by at least so much: one wrong clock among many masters is not taken for our own.
    pub least_ms: i64,
    /// The one that is furthest away.
    pub worst_ms: i64,
    /// Which that is.
    pub worst: String,
}

/// How far ahead a clock is that was read between two looks at our own.
fn clock_skew_ms(before: i64, theirs: i64, after: i64) -> i64 {
    if theirs < before { theirs - before } else { (theirs - after).max(0) }
}

pub(crate) fn read_clock(value: &Value) -> Result<i64, LinkError> {
    clock_of(value).ok_or_else(|| LinkError::Unavailable("TIME answered oddly".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(numbers("6.2.14"), Some((6, 2)));
        assert!(numbers("6.0.16").unwrap() < VERSION_MIN);
        assert!(numbers("10.0.1").unwrap() > VERSION_MIN);
        assert_eq!(numbers("beta"), None);
    }
}
