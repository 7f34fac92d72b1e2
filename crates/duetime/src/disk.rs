//! Shows how much of its disk the embedded store uses.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use duetime_metrics::Meters;
use nix::sys::statvfs::statvfs;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// How often the disk of the store is checked.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Bytes of the files in `folder`, and of what is free for more.
fn used_and_free(folder: &Path) -> std::io::Result<(u64, u64)> {
    let mut used = 0;
    for entry in std::fs::read_dir(folder)? {
        // A file may be gone by now.
        used += entry?.metadata().map_or(0, |meta| if meta.is_file() { meta.len() } else { 0 });
    }
    let disk = statvfs(folder)?;
    Ok((used, disk.blocks_available() * disk.fragment_size()))
}

/// Looks until `stop`; `server` is the name that the metrics go by.
pub async fn watch(server: &'static str, folder: PathBuf, meters: Arc<Meters>, stop: CancellationToken) {
    loop {
        let of = folder.clone();
        match tokio::task::spawn_blocking(move || used_and_free(&of)).await {
            Ok(Ok((used, free))) => meters.store_bytes(server, used, Some(used.saturating_add(free))),
            Ok(Err(error)) => debug!(%error, "the disk of the store cannot be looked at"),
            Err(error) => debug!(%error, "looking at the disk of the store ended by itself"),
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_folder_and_what_is_free_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), [0; 5_000]).unwrap();
        let (used, free) = used_and_free(folder.path()).unwrap();
        assert!(used == 5_000 && free > 0, "{used} {free}");
        assert!(used_and_free(&folder.path().join("none")).is_err());
    }
}
