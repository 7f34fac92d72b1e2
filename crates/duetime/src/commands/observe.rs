//! `duetime nodes|drain|undrain|status|whoami|rates|audit`

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use duetime_client::{AuditFilter, ClientError, GoneNode, Issues, NodeIssue, NodeView, Nodes, Rates, Topic};
use duetime_core::units::{parse_duration, show_duration};
use duetime_core::{Clock as _, Timestamp};
use serde_json::json;

use super::{output, topic};
use crate::clock::SystemClock;
use crate::connection::NodeArgs;

/// Messages that are due for so long, while nobody claims any, wait for consumers that are not there.
const NOBODY_AFTER: Duration = Duration::from_secs(60);

/// `duetime top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// How often to look.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1s")]
    pub every: Duration,
    /// Which node.
    #[command(flatten)]
    pub connection: NodeArgs,
}

/// `duetime rates`
#[derive(Debug, Args)]
pub struct RatesArgs {
    /// Of all nodes together, which the node asks for their own.
    #[arg(long)]
    all_nodes: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime audit`
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Number of entries, newest first.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Only these kinds, with commas between them; claims are many. [possible values: administration, messages, claims,
    /// refused]
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    kind: Vec<String>,
    /// Only these operations, with commas between them, as the list has them: pause_sink,resume_sink
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    operation: Vec<String>,
    /// Only what is about this topic.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Of all nodes, which the node asks for their own.
    #[arg(long)]
    all_nodes: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// The node to be drained, or to take its share again.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node, as `duetime nodes` names it.
    #[arg(value_name = "NODE")]
    id: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime drain`, or with `draining` false `duetime undrain`.
pub async fn drain(args: &DrainArgs, draining: bool) -> anyhow::Result<bool> {
    let answer = args.connection.client()?.drain_node(&args.id, draining).await?;
    if args.connection.json {
        output::json(&answer)?;
    } else if draining {
        let then = "leaves its shards to other nodes within seconds and answers requests; `duetime undrain` ends it";
        output::line(&format!("{} {then}", answer.id))?;
    } else {
        output::line(&format!("{} takes its share of the shards again", answer.id))?;
    }
    Ok(true)
}

/// `draining by ops`, `unhealthy: its clock is …`.
fn state(node: &NodeView) -> String {
    match (&node.unhealthy, &node.drain) {
        (Some(why), _) => format!("{}: {why}", node.state),
        (None, Some(drain)) => {
            format!("{}{}", node.state, drain.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default())
        }
        (None, None) => node.state.clone(),
    }
}

fn table(nodes: &[NodeView]) -> anyhow::Result<()> {
    let dash = || "-".to_owned();
    let rows = nodes.iter().map(|node| {
        let vitals = node.vitals.as_ref();
        vec![
            node.id.clone(),
            node.address.clone(),
            state(node),
            node.mode.clone(),
            node.shards_owned.to_string(),
            output::moment(node.since),
            node.version.clone(),
            vitals.and_then(|now| now.claims_per_minute).map_or_else(dash, |claims| claims.to_string()),
            vitals.and_then(|now| now.memory_bytes).map_or_else(dash, |bytes| format!("{} MiB", bytes >> 20)),
            vitals.map_or_else(dash, |now| format!("{} ms", now.clock_skew_ms)),
            vitals.and_then(|now| now.lease_since).map_or_else(dash, output::away),
        ]
    });
    let head = [
        "node",
        "address",
        "state",
        "ownership",
        "shards",
        "since",
        "version",
        "claims/min",
        "memory",
        "clock off",
        "lease",
    ];
    output::table(&head, rows.collect(), "no nodes")
}

/// `node-2 died or was cut off at …`, for a node that went.
pub fn went(node: &GoneNode) -> String {
    let how = if node.stopped { "stopped" } else { "died or was cut off" };
    format!("{} {how} at {} and is not back", node.id, output::moment(node.gone_at))
}

/// `duetime nodes`
pub async fn nodes(connection: &NodeArgs) -> anyhow::Result<bool> {
    let all = connection.client()?.all_nodes().await?;
    if connection.json {
        output::json(&all)?;
        return Ok(true);
    }
    table(&all.nodes)?;
    all.gone.iter().try_for_each(|node| output::line(&went(node)))?;
    Ok(true)
}

/// What nodes say, each sentence once with all who say it; that of `own`, which was asked, as it says it itself.
fn by_issue(own: &[String], others: &Issues) -> Vec<String> {
    let mut said: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for NodeIssue { node, issue } in others.issues.iter().filter(|one| !own.contains(&one.issue)) {
        said.entry(issue).or_default().push(node);
    }
    let said = said.into_iter().map(|(issue, nodes)| format!("{issue} (says {})", nodes.join(", ")));
    own.iter().cloned().chain(said).collect()
}

/// Topics for consumers whose messages are due for long, and of which nothing was settled lately nor is held by
/// anybody. Nothing is known where the figures of a node are missing.
fn unclaimed<'a>(topics: &'a [Topic], rates: &Rates, now: Timestamp) -> Vec<&'a Topic> {
    if rates.nodes.iter().flatten().any(|node| !node.answered) {
        return Vec::new();
    }
    let is_still = |topic: &Topic| {
        let settled = rates.topics.iter().find(|one| one.topic == topic.name);
        settled.is_some_and(|now| now.over_ms > 0 && now.delivered + now.retried + now.dead == 0.0)
    };
    let waits = |topic: &Topic| {
        let oldest = topic.oldest_due_at.map(Timestamp::from_millis);
        topic.due > 0 && topic.in_flight == 0 && oldest.is_some_and(|oldest| now.since(oldest) > NOBODY_AFTER)
    };
    let is_for_consumers = |topic: &Topic| topic.config.sink.is_none() && !topic.config.paused;
    topics.iter().filter(|topic| is_for_consumers(topic) && waits(topic) && is_still(topic)).collect()
}

/// `duetime status`: false when the node is not able to serve.
pub async fn status(connection: &NodeArgs) -> anyhow::Result<bool> {
    let client = connection.client()?;
    let (all, ready, topics, rates, of_all) = tokio::join!(
        client.all_nodes(),
        client.ready(),
        client.topics(),
        client.cluster_rates(),
        client.cluster_issues()
    );
    let (Nodes { nodes, gone }, topics) = (all?, topics?);
    let (own, ready) = match ready {
        Ok(issues) => (issues, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let mut issues = of_all.as_ref().map_or_else(|_| own.clone(), |of_all| by_issue(&own, of_all));
    match of_all {
        Ok(of_all) => {
            let silent = of_all.nodes.into_iter().flatten().filter(|node| !node.answered);
            issues.extend(silent.map(|node| format!("node {} did not say what is wrong there", node.name)));
        }
        // One of an earlier version does not know what others say.
        Err(ClientError::Refused(problem)) if problem.status == 404 => {}
        Err(error) => issues.push(format!("what other nodes know to be wrong is not known: {error}")),
    }
    // A token may look at topics and not at rates.
    let rates = rates.ok();
    let unclaimed = rates.map(|rates| unclaimed(&topics, &rates, SystemClock.now())).unwrap_or_default();
    if connection.json {
        let unclaimed: Vec<&str> = unclaimed.iter().map(|topic| topic.name.as_str()).collect();
        output::json(&json!({
            "ready": ready.is_none(), "not_ready": ready, "issues": issues, "unclaimed": unclaimed, "nodes": nodes,
            "gone": gone, "topics": topics,
        }))?;
    } else {
        match &ready {
            None => output::line(&format!("{} is able to serve", client.base()))?,
            Some(reason) => output::line(&format!("{} is not able to serve: {reason}", client.base()))?,
        }
        for issue in &issues {
            output::line(&format!("issue: {issue}"))?;
        }
        for topic in unclaimed {
            let (name, due, most) = (&topic.name, topic.due, show_duration(NOBODY_AFTER));
            let waits = format!("{due} messages of it are due, the oldest for more than {most}");
            output::line(&format!("issue: nobody claims {name}: {waits}; start its consumers, or give it a sink"))?;
        }
        for node in gone.iter().filter(|node| !node.stopped) {
            output::line(&format!("issue: {}", went(node)))?;
        }
        table(&nodes)?;
        topic::counts(&topics)?;
    }
    Ok(ready.is_none())
}

/// `duetime whoami`
pub async fn whoami(connection: &NodeArgs) -> anyhow::Result<bool> {
    let me = connection.client()?.me().await?;
    if connection.json {
        output::json(&me)?;
        return Ok(true);
    }
    let limit = |limit: Option<f64>| limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    let most = |most: Option<u64>| most.map_or_else(|| "no limit".to_owned(), |most| most.to_string());
    output::pairs(vec![
        ("token", me.name.unwrap_or_else(|| "none is asked for".to_owned())),
        ("scopes", me.scopes.join(", ")),
        ("topics", me.topics.map_or_else(|| "all".to_owned(), |topics| topics.join(", "))),
        (
            "sinks",
            me.sinks.map_or_else(
                || "all".to_owned(),
                |sinks| duetime_core::suggest::listed(&sinks.iter().map(String::as_str).collect::<Vec<_>>()),
            ),
        ),
        ("requests a second", limit(me.requests_per_second)),
        ("messages a second", limit(me.messages_per_second)),
        ("most topics", most(me.max_topics.map(|most| most as u64))),
        ("most messages of a topic", most(me.max_topic_messages)),
        ("most bytes of a topic", most(me.max_topic_bytes)),
        ("most shards of a topic", most(me.max_topic_shards.map(u64::from))),
    ])?;
    Ok(true)
}

/// `0.4`, `17`, `–`.
fn shown(number: Option<f64>) -> String {
    match number {
        None => "–".to_owned(),
        Some(number) if number >= 10.0 || number == 0.0 => format!("{number:.0}"),
        Some(number) => format!("{number:.1}"),
    }
}

/// `duetime rates`
pub async fn rates(args: &RatesArgs) -> anyhow::Result<bool> {
    let RatesArgs { all_nodes, connection } = args;
    let client = connection.client()?;
    let rates = if *all_nodes { client.cluster_rates().await? } else { client.rates().await? };
    let is_whole = output::all_answered(rates.nodes.as_deref());
    if connection.json {
        output::json(&rates)?;
        return Ok(is_whole);
    }
    let rows = rates.topics.iter().map(|topic| {
        let numbers = [topic.scheduled, topic.cancelled, topic.delivered, topic.retried, topic.dead].map(Some);
        // Lateness that is kept of several topics together is that of none of them.
        let own = |ms: Option<f64>| ms.filter(|_| !topic.of_rest);
        let times = [own(topic.late_p50_ms), own(topic.late_p99_ms), topic.capacity];
        let numbers = numbers.into_iter().chain(times).map(shown);
        std::iter::once(topic.topic.clone()).chain(numbers).collect()
    });
    let head = ["topic", "in/s", "cancelled/s", "out/s", "retried/s", "dead/s", "late p50 ms", "p99 ms", "capacity/s"];
    output::table(&head, rows.collect(), "no topics yet")?;
    let sinks = rates.sinks.iter().map(|sink| {
        let refused = sink.refused.iter().filter(|refused| refused.count > 0);
        let refused: Vec<String> = refused.map(|refused| format!("{} {}", refused.kind, refused.count)).collect();
        let times = [Some(sink.calls), sink.call_p50_ms, sink.call_p99_ms].map(shown);
        [sink.sink.clone()].into_iter().chain(times).chain([refused.join(", ")]).collect()
    });
    let sinks: Vec<_> = sinks.collect();
    if !sinks.is_empty() {
        output::table(&["sink", "calls/s", "p50 ms", "p99 ms", "refused"], sinks, "")?;
    }
    Ok(is_whole)
}

/// `duetime audit`
pub async fn audit(args: &AuditArgs) -> anyhow::Result<bool> {
    let AuditArgs { limit, kind, operation, topic, all_nodes, connection } = args;
    let (kinds, operations, topic) = (kind.clone(), operation.clone(), topic.clone());
    let filter = AuditFilter { kinds, operations, topic, all_nodes: *all_nodes };
    let log = connection.client()?.audit(usize::from(*limit), &filter).await?;
    let is_whole = output::all_answered(log.nodes.as_deref());
    if connection.json {
        output::json(&log)?;
        return Ok(is_whole);
    }
    let rows = log.entries.iter().map(|line| {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
        let node = log.nodes.is_some().then(|| text(&line.node));
        let words = vec![
            line.time.clone(),
            text(&line.who),
            text(&line.from),
            line.what().to_owned(),
            line.topic
                .clone()
                .or_else(|| line.sink.as_ref().map(|sink| format!("sink {sink}")))
                .unwrap_or_else(|| "–".to_owned()),
            text(&line.id),
            match line.refused {
                0 => line.count.to_string(),
                refused => format!("{} ({refused} refused)", line.count),
            },
            format!("{} {}", line.outcome, line.status),
            line.reason.clone().unwrap_or_default(),
        ];
        node.into_iter().chain(words).collect()
    });
    let head = ["node", "time", "who", "from", "operation", "topic", "message", "items", "outcome", "reason"];
    let head = if log.nodes.is_some() { &head[..] } else { &head[1..] };
    output::table(head, rows.collect(), "nothing like that was changed since the node started")?;
    Ok(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_nodes_say_is_one_line_and_names_them() {
        let issues = json!({"node": "n1", "issues": [{"node": "n1", "issue": "own"}, {"node": "n2", "issue": "own"},
            {"node": "n2", "issue": "other"}, {"node": "n3", "issue": "other"}]});
        let issues: Issues = serde_json::from_value(issues).unwrap();
        assert_eq!(by_issue(&["own".to_owned()], &issues), ["own", "other (says n2, n3)"]);
    }

    #[test]
    fn a_topic_for_consumers_of_which_nobody_claims_anything_is_found() {
        let topic = |name: &str, fields: serde_json::Value| {
            let mut all = json!({"name": name, "due": 3, "oldest_due_at": 1_000});
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            serde_json::from_value::<Topic>(all).unwrap()
        };
        let topics = [
            topic("nobody", json!({})),
            topic("held", json!({"in_flight": 1})),
            topic("paused", json!({"paused": true})),
            topic("sent", json!({"sink": {"name": "out"}})),
            topic("none", json!({"due": 0})),
            topic("unseen", json!({})),
            topic("slow", json!({})),
        ];
        let rates = |answered: bool| {
            let still = |topic: &str, delivered: f64| {
                json!({"topic": topic, "over_ms": 60_000, "scheduled": 1.0, "cancelled": 0.0, "delivered": delivered,
                    "retried": 0.0, "dead": 0.0})
            };
            let of: Vec<_> = topics.iter().filter(|topic| !["unseen", "slow"].contains(&topic.name.as_str())).collect();
            let of = of.iter().map(|topic| still(&topic.name, 0.0)).chain([still("slow", 0.1)]).collect::<Vec<_>>();
            let nodes = json!([{"name": "n1", "answered": answered}]);
            serde_json::from_value::<Rates>(json!({"node": "n1", "nodes": nodes, "topics": of})).unwrap()
        };
        let names = |answered: bool, now: i64| {
            let found = unclaimed(&topics, &rates(answered), Timestamp::from_millis(now));
            found.iter().map(|topic| topic.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(true, 61_001), ["nobody"]);
        assert!(names(true, 61_000).is_empty(), "a minute is not over");
        assert!(names(false, 61_001).is_empty(), "another node may have served it");
    }
}
