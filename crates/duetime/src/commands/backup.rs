//! `duetime backup FILE`

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use duetime_client::BackupDownload;
use duetime_store_embedded::{BackupCounts, check_backup};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use super::output;
use crate::connection::NodeArgs;

/// How often it is said how far it is.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// A backup of a node's embedded store.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to make; it must not be there yet.
    file: PathBuf,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Takes all of it; says on a terminal how far it is.
async fn take(download: &mut BackupDownload, part: &Path) -> anyhow::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let cannot_write = || format!("cannot write {}", part.display());
    let mut file = options.open(part).await.with_context(cannot_write)?;
    let (mut there, mut said) = (0, Instant::now());
    while let Some(chunk) = download.chunk().await? {
        file.write_all(&chunk).await.with_context(cannot_write)?;
        there += chunk.len() as u64;
        if said.elapsed() >= SAID_EVERY && std::io::stderr().is_terminal() {
            said = Instant::now();
            eprint!("\r{} of {} MiB ", there >> 20, download.bytes >> 20);
        }
    }
    ensure!(there == download.bytes, "the node sent {there} of {} bytes; make another backup", download.bytes);
    file.sync_all().await.with_context(cannot_write)?;
    Ok(())
}

/// Runs it: a file is there under its name only when it is whole and was read.
pub async fn run(BackupArgs { file, connection }: BackupArgs) -> anyhow::Result<bool> {
    ensure!(!file.exists(), "{} is there already; name another file, or remove it", file.display());
    let mut download = connection.client()?.backup().await?;
    let mut part = file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let (read, at) = (part.clone(), file.clone());
    let made = async {
        take(&mut download, &part).await?;
        let counted =
            tokio::task::spawn_blocking(move || check_backup(&read)).await.context("reading the backup")??;
        let wanted = BackupCounts { topics: download.topics, messages: download.messages };
        ensure!(counted == wanted, "the backup has {counted:?}, and the node counted {wanted:?}; make another backup");
        std::fs::rename(&part, &at).with_context(|| format!("cannot make {}", at.display()))
    };
    if let Err(error) = made.await {
        // What is not whole is of no use.
        let _ = std::fs::remove_file(&part);
        return Err(error);
    }
    let BackupDownload { bytes, messages, topics, .. } = download;
    if connection.json {
        output::json(&serde_json::json!({"file": file, "bytes": bytes, "messages": messages, "topics": topics}))?;
    } else {
        let name = file.display();
        output::line(&format!(
            "{name}: {messages} messages of {topics} topics, {} MiB; whole",
            bytes.div_ceil(1 << 20)
        ))?;
    }
    Ok(true)
}
