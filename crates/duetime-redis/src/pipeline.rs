//! Plain commands for many keys: grouped by master, all masters at once, each answer by itself.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use redis::{Cmd, Pipeline, Value};
use tokio::time::Instant;

use crate::error::{Failure, LinkError};
use crate::node::Node;
use crate::retry_budget::{REDIRECTS_MAX, RetryBudget};
use crate::servers::Servers;

/// How long a look at many shards takes at most, with all its repetitions: what no master has answered by
/// then is answered by an error, and the rest as it was answered.
const LOOK_FOR: Duration = Duration::from_secs(1);
/// A look that met a silent master has the map of the masters read again, and waits for it no longer
/// than this.
const DOUBT_FOR: Duration = Duration::from_millis(200);

/// What a look gives its connection beyond its own time, so that one that is silent is noted as such.
const CONNECT_SLACK: Duration = Duration::from_millis(50);

/// One command on its way to its answer.
struct PipelineItem<'a> {
    at: usize,
    cmd: &'a Cmd,
    /// A node that is still taking the slot over.
    ask: Option<String>,
}

fn items(pipeline: &Pipeline) -> Vec<PipelineItem<'_>> {
    pipeline.cmd_iter().enumerate().map(|(at, cmd)| PipelineItem { at, cmd, ask: None }).collect()
}

fn all_answered(answers: Vec<Option<Result<Value, LinkError>>>) -> Vec<Result<Value, LinkError>> {
    answers.into_iter().map(|answer| answer.expect("every command was answered or given up")).collect()
}

/// See [`Link::pipeline`](crate::Link::pipeline).
pub(crate) async fn whole(servers: &Servers, name: &'static str, pipeline: &Pipeline) -> Result<Vec<Value>, LinkError> {
    each(servers, servers.retry_budget(name), None, pipeline).await.into_iter().collect()
}

/// See [`Link::look`](crate::Link::look).
pub(crate) async fn look(servers: &Servers, name: &'static str, pipeline: &Pipeline) -> Vec<Result<Value, LinkError>> {
    each(servers, servers.retry_budget_of(name, LOOK_FOR), Some(Instant::now() + LOOK_FOR), pipeline).await
}

/// See [`Link::each_once`](crate::Link::each_once).
pub(crate) async fn each_once(servers: &Servers, pipeline: &Pipeline) -> Vec<Result<Value, LinkError>> {
    let mut answers: Vec<Option<Result<Value, LinkError>>> = Vec::new();
    answers.resize_with(pipeline.len(), || None);
    let mut items = items(pipeline);
    for round in 0..=REDIRECTS_MAX {
        let mut again = Vec::new();
        for (item, answer) in send_round(servers, items, None).await {
            match answer {
                // Turned away before anything was done.
                Err(Failure::Ask { to }) if round < REDIRECTS_MAX => again.push(PipelineItem { ask: Some(to), ..item }),
                Err(Failure::Moved { slot, to })
                    if round < REDIRECTS_MAX && servers.topology.moved(slot, &to).is_ok() =>
                {
                    again.push(PipelineItem { ask: None, ..item });
                }
                Err(failure) => {
                    if let Failure::Transient { .. } = failure {
                        servers.topology.doubt().await;
                    }
                    answers[item.at] = Some(Err(failure.into()));
                }
                Ok(value) => answers[item.at] = Some(Ok(value)),
            }
        }
        if again.is_empty() {
            break;
        }
        items = again;
    }
    all_answered(answers)
}

async fn each(
    servers: &Servers,
    mut retry_budget: RetryBudget,
    until: Option<Instant>,
    pipeline: &Pipeline,
) -> Vec<Result<Value, LinkError>> {
    let mut answers: Vec<Option<Result<Value, LinkError>>> = Vec::new();
    answers.resize_with(pipeline.len(), || None);
    let mut items = items(pipeline);
    while !items.is_empty() {
        let mut again = Vec::new();
        let mut worst: Option<Failure> = None;
        for (item, answer) in send_round(servers, items, until).await {
            let failure = match answer {
                Ok(value) => {
                    answers[item.at] = Some(Ok(value));
                    continue;
                }
                Err(Failure::Final(error)) => {
                    answers[item.at] = Some(Err(error));
                    continue;
                }
                Err(failure) => failure,
            };
            let ask = if let Failure::Ask { to } = &failure { Some(to.clone()) } else { None };
            again.push(PipelineItem { ask, ..item });
            // A pause, if any of them needs one.
            if !matches!(worst, Some(Failure::Transient { .. })) {
                worst = Some(failure);
            }
        }
        items = again;
        if let Some(failure) = worst
            && let Err(error) = within(servers, until, &mut retry_budget, failure).await
        {
            for item in items.drain(..) {
                answers[item.at] = Some(Err(error.clone()));
            }
        }
    }
    all_answered(answers)
}

/// [`Servers::after`] that ends a little after `until`.
async fn within(
    servers: &Servers,
    until: Option<Instant>,
    retry_budget: &mut RetryBudget,
    failure: Failure,
) -> Result<(), LinkError> {
    let Some(until) = until else { return servers.after(retry_budget, failure).await };
    let text = LinkError::from(failure.clone());
    match tokio::time::timeout_at(until + DOUBT_FOR, servers.after(retry_budget, failure)).await {
        Ok(Ok(())) if Instant::now() < until => Ok(()),
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) | Err(_) => Err(LinkError::Unavailable(text.to_string())),
    }
}

/// Sends every item once; a master that is silent until then has failed.
async fn send_round<'a>(
    servers: &Servers,
    items: Vec<PipelineItem<'a>>,
    until: Option<Instant>,
) -> Vec<(PipelineItem<'a>, Result<Value, Failure>)> {
    let mut groups = Vec::<(Arc<Node>, Vec<PipelineItem<'a>>)>::new();
    let mut done = Vec::with_capacity(items.len());
    for item in items {
        match servers.route(item.ask.clone(), item.cmd.args_iter().nth(1)).await {
            Ok((node, _)) => match groups.iter_mut().find(|(known, _)| known.name == node.name) {
                Some((_, group)) => group.push(item),
                None => groups.push((node, vec![item])),
            },
            Err(failure) => done.push((item, Err(failure))),
        }
    }
    let sent = groups.into_iter().map(|(node, group)| async move {
        let mut pipeline = Pipeline::with_capacity(group.len());
        for item in &group {
            if item.ask.is_some() {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(item.cmd.clone());
        }
        let longest = until.map(|until| until.saturating_duration_since(Instant::now()));
        let sending = node.send_all_within(&pipeline, longest);
        let answers = match longest {
            // Making the connection takes time too.
            Some(longest) => tokio::time::timeout(longest + CONNECT_SLACK, sending).await.unwrap_or_else(|_| {
                Err(Failure::Transient { reconnect: false, text: format!("no answer from {} in time", node.name) })
            }),
            None => sending.await,
        };
        let mut answers = match answers {
            Ok(answers) => answers.into_iter(),
            Err(failure) => {
                return group.into_iter().map(|item| (item, Err(failure.clone()))).collect::<Vec<_>>();
            }
        };
        let mut pairs = Vec::with_capacity(group.len());
        for item in group {
            if item.ask.is_some() {
                answers.next();
            }
            let answer = answers.next().unwrap_or_else(|| Err(Failure::unexpected_reply("an answer is missing")));
            pairs.push((item, answer));
        }
        pairs
    });
    for pairs in join_all(sent).await {
        done.extend(pairs);
    }
    done
}
