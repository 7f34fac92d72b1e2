//! What every master says about itself while the store is in use.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;

use crate::error::LinkError;
use crate::replicated::following_in;
use crate::reply::text;
use crate::topology::Topology;

/// Longest wait for one master.
const TELL_WITHIN: Duration = Duration::from_secs(1);

/// One master, as its INFO shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MasterFacts {
    /// `maxmemory-policy`; empty where it is not known.
    pub policy: String,
    /// Replicas that follow it and are not silent.
    pub replicas: u32,
    /// It refuses writes without replicas: `min-replicas-to-write` and `min-replicas-max-lag` are set.
    pub guarded: bool,
    /// Why it cannot keep what it is given on its disk; empty when it can.
    pub disk: String,
    /// It keeps an append-only file.
    pub append_only: bool,
    /// Bytes of memory it uses.
    pub used_bytes: u64,
    /// Most that it may use; `None`: no limit.
    pub limit_bytes: Option<u64>,
}

pub(crate) fn read(info: &str) -> MasterFacts {
    let fields: HashMap<&str, &str> =
        info.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim())).collect();
    let is = |name: &str, value: &str| fields.get(name) == Some(&value);
    let number = |name: &str| fields.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
    let append_only = is("aof_enabled", "1");
    let disk = if append_only && is("aof_last_write_status", "err") {
        "writing the append-only file failed"
    } else if is("rdb_last_bgsave_status", "err") {
        "the last snapshot failed"
    } else {
        ""
    };
    MasterFacts {
        policy: (*fields.get("maxmemory_policy").unwrap_or(&"")).to_owned(),
        replicas: following_in(info),
        guarded: fields.contains_key("min_slaves_good_slaves"),
        disk: disk.to_owned(),
        append_only,
        used_bytes: number("used_memory"),
        limit_bytes: Some(number("maxmemory")).filter(|limit| *limit > 0),
    }
}

/// See [`Link::facts`](crate::Link::facts).
pub(crate) async fn of_masters(
    topology: &Topology,
) -> Result<Vec<(String, Result<MasterFacts, LinkError>)>, LinkError> {
    let (masters, info) = (topology.masters().await?, redis::cmd("INFO"));
    let asked = masters.iter().map(async |node| {
        let silent = |_| LinkError::Unavailable(format!("{} does not report its state", node.name));
        let answer = tokio::time::timeout(TELL_WITHIN, node.send(&info, false)).await.map_err(silent);
        let facts = answer.and_then(|answer| Ok(read(&text(&answer?))));
        (node.name.clone(), facts)
    });
    Ok(join_all(asked).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_must_know_is_read() {
        let well = "maxmemory_policy:noeviction\r\naof_enabled:1\r\naof_last_write_status:ok\r\n\
                    rdb_last_bgsave_status:ok\r\nslave0:ip=a,port=1,state=online,offset=1,lag=0\r\n\
                    min_slaves_good_slaves:1\r\nused_memory:7\r\nmaxmemory:9\r\n";
        let facts = MasterFacts {
            policy: "noeviction".to_owned(),
            replicas: 1,
            guarded: true,
            disk: String::new(),
            append_only: true,
            used_bytes: 7,
            limit_bytes: Some(9),
        };
        assert_eq!(read(well), facts);
        assert!(read(&well.replace("write_status:ok", "write_status:err")).disk.contains("append-only"));
        assert!(read(&well.replace("bgsave_status:ok", "bgsave_status:err")).disk.contains("snapshot"));
        assert!(!read("role:master\r\n").guarded);
        assert_eq!(read("maxmemory:0\r\n").limit_bytes, None);
    }
}
