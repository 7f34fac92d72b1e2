//! Looks at the server before it is trusted; each refusal says how to mend it.

use std::collections::HashMap;

use redis::Value;
use tracing::warn;

use crate::error::LinkError;
use crate::link::Link;

/// What the server must be like.
#[derive(Debug, Clone, Copy)]
pub struct Checks {
    /// Refuse a server that may evict keys.
    pub noeviction: bool,
}

/// What the server said about itself.
#[derive(Debug, Clone, Default)]
pub struct ServerFacts {
    /// `redis_version`; empty when INFO is not permitted.
    pub version: String,
    /// `maxmemory-policy`; empty when it cannot be read.
    pub policy: String,
}

/// Oldest server that has every command the scripts use.
const VERSION_MIN: (u32, u32) = (6, 2);

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

impl Link {
    /// Asks the server what it is and refuses what cannot work.
    ///
    /// # Errors
    ///
    /// [`LinkError::Setup`] with the remedy; [`LinkError::Unavailable`] when nobody answers.
    pub async fn check(&self, checks: Checks) -> Result<ServerFacts, LinkError> {
        let mut facts = ServerFacts::default();
        match self.command("info", &redis::cmd("INFO")).await {
            Ok(info) => {
                let info = text(&info);
                let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
                facts.version = fields.get("redis_version").unwrap_or(&"").trim().to_owned();
                facts.policy = fields.get("maxmemory_policy").unwrap_or(&"").trim().to_owned();
                self.check_version(&facts.version)?;
            }
            Err(LinkError::Setup(reason)) if !reason.contains("password") => {
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
        Ok(facts)
    }

    /// Refuses a server whose clock is more than `most_ms` away from what `own_ms` tells.
    ///
    /// # Errors
    ///
    /// [`LinkError::Setup`] with the remedy; [`LinkError::Unavailable`] when nobody answers.
    pub async fn check_clock(&self, own_ms: impl Fn() -> i64, most_ms: i64) -> Result<(), LinkError> {
        let apart = self.apart(own_ms).await?;
        if apart.abs() > most_ms {
            return Err(LinkError::Setup(format!(
                "this machine's clock and redis's differ by {apart} ms, more than {most_ms}; set both by NTP \
                 (timedatectl set-ntp true)"
            )));
        }
        Ok(())
    }

    /// By how many milliseconds the server's clock is ahead of what `own_ms` tells.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub async fn apart(&self, own_ms: impl Fn() -> i64) -> Result<i64, LinkError> {
        let before = own_ms();
        let theirs = self.clock().await?;
        let after = own_ms();
        // The answer was made somewhere between the two looks at our own clock.
        Ok(if theirs < before { theirs - before } else { (theirs - after).max(0) })
    }

    fn check_version(&self, version: &str) -> Result<(), LinkError> {
        let Some(found) = numbers(version) else {
            warn!(version, "cannot read redis's version; taking it for 7.0 or later");
            return Ok(());
        };
        if found < VERSION_MIN {
            return Err(LinkError::Setup(format!(
                "redis {version} is too old; duetime needs 6.2 or later, upgrade the server"
            )));
        }
        self.set_legacy(found.0 < 7);
        if self.is_legacy() {
            warn!(version, "redis before 7.0 refuses claims too when its memory is full; 7.0 does not");
        }
        Ok(())
    }

    /// The server's clock, milliseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub async fn clock(&self) -> Result<i64, LinkError> {
        let value = self.command("time", &redis::cmd("TIME")).await?;
        let Value::Array(parts) = &value else { return Err(LinkError::Unavailable("TIME answered oddly".to_owned())) };
        let part = |at: usize| parts.get(at).map(text).and_then(|t| t.parse::<i64>().ok()).unwrap_or(0);
        Ok(part(0) * 1000 + part(1) / 1000)
    }
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
