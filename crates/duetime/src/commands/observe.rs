//! `duetime nodes|status`

use std::time::Duration;

use clap::Args;
use duetime_client::NodeView;
use duetime_core::units::parse_duration;
use serde_json::json;

use super::{output, topic};
use crate::connection::NodeArgs;

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

fn table(nodes: &[NodeView]) -> anyhow::Result<()> {
    let rows = nodes.iter().map(|node| {
        vec![
            node.id.clone(),
            node.address.clone(),
            node.unhealthy.as_ref().map_or_else(|| node.state.clone(), |why| format!("{}: {why}", node.state)),
            node.mode.clone(),
            node.shards_owned.to_string(),
            output::moment(node.since),
            node.version.clone(),
        ]
    });
    output::table(&["node", "address", "state", "ownership", "shards", "since", "version"], rows.collect(), "no nodes")
}

/// `duetime nodes`
pub async fn nodes(connection: &NodeArgs) -> anyhow::Result<bool> {
    let nodes = connection.client()?.nodes().await?;
    if connection.json {
        output::json(&json!({ "nodes": nodes }))?;
    } else {
        table(&nodes)?;
    }
    Ok(true)
}

/// `duetime status`: false when the node is not able to serve.
pub async fn status(connection: &NodeArgs) -> anyhow::Result<bool> {
    let client = connection.client()?;
    let nodes = client.nodes().await?;
    let ready = match client.ready().await {
        Ok(()) => None,
        Err(error) => Some(error.to_string()),
    };
    let topics = client.topics().await?;
    if connection.json {
        let not_ready = ready.clone();
        output::json(&json!({ "ready": ready.is_none(), "not_ready": not_ready, "nodes": nodes, "topics": topics }))?;
    } else {
        match &ready {
            None => output::line(&format!("{} is able to serve", client.base()))?,
            Some(reason) => output::line(&format!("{} is not able to serve: {reason}", client.base()))?,
        }
        table(&nodes)?;
        topic::counts(&topics)?;
    }
    Ok(ready.is_none())
}
