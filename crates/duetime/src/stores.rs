//! Opens the store that is configured.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use duetime_core::{BackupStore, Store};
use duetime_metrics::Meters;
use duetime_redis::Link;
use duetime_store_embedded::EmbeddedStore;
use duetime_store_redis::RedisStore;
use duetime_supervisor::Supervisor;
use tracing::info;

use crate::config::StoreConfig;
use crate::{manager, test_clock};

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// Where messages are.
    pub store: Arc<dyn Store>,
    /// The same, for copies of it.
    pub backups: Arc<dyn BackupStore>,
    /// Its address, as it may be shown.
    pub shown: String,
    /// The kind of store, for metrics.
    pub kind: &'static str,
    /// Other nodes may use it too: what they change is looked for.
    pub shared: bool,
    /// It has a clock of its own.
    pub has_clock: bool,
    /// How long a moved batch is kept at its source where its destination has no replica; see [`MOVE_GRACE`].
    pub move_grace: Duration,
    /// The link through which nodes share its shards, where it is Redis.
    pub link: Option<Arc<Link>>,
    /// Its folder, where it is embedded.
    pub folder: Option<PathBuf>,
}

/// How long a moved batch is kept at its source where its destination has no replica: longer than an
/// append-only file that is synced every second may be behind. On a cluster, whose masters are restarted one by
/// one; where all shards are on one server, no time helps.
const MOVE_GRACE: Duration = Duration::from_secs(2);

/// A store that has not opened after this is said to be waited for.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// The same, and says so when it takes long.
pub async fn open_patiently(
    config: &StoreConfig,
    meters: Arc<Meters>,
    supervisor: &Supervisor,
) -> anyhow::Result<Opened> {
    let mut opened = pin!(open(config, meters, supervisor));
    if let Ok(opened) = tokio::time::timeout(QUIET_MAX, &mut opened).await {
        return opened;
    }
    info!(store = %config.shown(), "waiting for the store, which does not answer yet");
    manager::waits_for_store();
    opened.await
}

/// Opens the store; `supervisor` watches over its loops.
pub async fn open(config: &StoreConfig, meters: Arc<Meters>, supervisor: &Supervisor) -> anyhow::Result<Opened> {
    let shown = config.shown();
    let doing = || format!("opening the store {shown}");
    match config {
        StoreConfig::Redis(config) => {
            let opened = RedisStore::connect_under(config.as_ref().clone(), meters, supervisor).await;
            let store = opened.with_context(doing)?;
            let link = store.link();
            let kind = link.kind();
            let move_grace = if link.is_cluster() { MOVE_GRACE } else { Duration::ZERO };
            Ok(Opened {
                backups: store.clone(),
                store,
                shown,
                kind,
                shared: true,
                has_clock: true,
                move_grace,
                link: Some(link),
                folder: None,
            })
        }
        StoreConfig::Embedded(config) => {
            test_clock::refuse_marked(&config.folder)?;
            // Opening reads the index of what is there, from the disk.
            let (of, folder) = (config.folder.clone(), config.folder.clone());
            let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&of, meters)).await;
            let store = opened.context("opening the store in a thread of its own")?.with_context(doing)?;
            let (move_grace, folder) = (Duration::ZERO, Some(folder));
            let kind = "embedded";
            let backups = store.clone();
            Ok(Opened { store, backups, shown, kind, shared: false, has_clock: false, move_grace, link: None, folder })
        }
    }
}

/// Why a check has to leave the store unopened, where it has to; that is no fault of the file.
pub fn unopened(config: &StoreConfig) -> Option<String> {
    let folder = config.folder()?;
    if !folder.exists() {
        return Some("will be created at the first start".to_owned());
    }
    // The node whose file this is may be running.
    EmbeddedStore::user(folder).map(|process| format!("in use by the duetime of process {process}"))
}
