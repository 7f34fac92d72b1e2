//! `duetime events`

use std::time::Duration;

use clap::Args;

use super::output;
use crate::connection::NodeArgs;

/// Longest event that is read.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// Wait before a stream that ended is opened again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The events of a node.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// End after so many.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Takes whole lines out of what was received.
fn lines(received: &mut Vec<u8>) -> Vec<String> {
    let Some(end) = received.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let whole: Vec<u8> = received.drain(..=end).collect();
    String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
}

/// `duetime events`: a line of JSON for each event; goes on where it was when the connection breaks.
pub async fn run(args: EventsArgs) -> anyhow::Result<bool> {
    let client = args.connection.client()?;
    let (mut left, mut seen) = (args.count, None::<String>);
    let mut stream = client.events(None).await?;
    loop {
        let mut received = Vec::new();
        while let Ok(Some(chunk)) = stream.chunk().await {
            received.extend_from_slice(&chunk);
            for line in lines(&mut received) {
                if let Some(id) = line.strip_prefix("id: ") {
                    seen = Some(id.to_owned());
                } else if let Some(data) = line.strip_prefix("data: ") {
                    if left == Some(0) {
                        return Ok(true);
                    }
                    output::line(data)?;
                    left = left.map(|left| left - 1);
                }
            }
            if left == Some(0) {
                return Ok(true);
            }
            anyhow::ensure!(received.len() <= EVENT_BYTES_MAX, "an event is larger than {EVENT_BYTES_MAX} bytes");
        }
        stream = loop {
            tokio::time::sleep(AGAIN_AFTER).await;
            match client.events(seen.as_deref()).await {
                Ok(stream) => break stream,
                // The node may be restarting.
                Err(error) if error.is_passing() => {}
                Err(error) => return Err(error.into()),
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_when_they_are_whole() {
        let mut received = b"event: change\nid: 7\nda".to_vec();
        assert_eq!(lines(&mut received), ["event: change", "id: 7"]);
        received.extend_from_slice(b"ta: {}\n\n");
        assert_eq!(lines(&mut received), ["data: {}", ""]);
        assert!(received.is_empty() && lines(&mut received).is_empty());
    }
}
