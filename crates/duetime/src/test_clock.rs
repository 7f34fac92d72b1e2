//! A node for tests of users: its clock is moved by hand, so its messages are nobody else's.
//!
//! What keeps it out of production is the store: a new folder of its own, never Redis, and never opened again by a node
//! that goes by the machine's clock.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use crate::config::{Config, Overlay};

/// A file in the folder of a store whose times are a test clock's.
const MARKER: &str = "test-clock";
const MARKER_TEXT: &str = "The messages here are those of a node with a test clock. Remove the folder.\n";

/// Where a node with a test clock may listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Reach {
    /// For programs of this machine.
    Loopback,
    /// For programs of other machines too, such as containers of a test.
    Exposed,
}

/// The folder of a node that names none: removed with this.
pub fn own_folder() -> anyhow::Result<(TempDir, Overlay)> {
    let folder =
        tempfile::Builder::new().prefix("duetime-test-clock-").permissions(Permissions::from_mode(0o700)).tempdir();
    let folder =
        folder.context("making a folder for the messages of a test; set TMPDIR, or --store embedded:FOLDER")?;
    let value = toml::Value::from(format!("embedded:{}", folder.path().display()));
    Ok((folder, Overlay { flag: "--test-clock", key: ("store", "url"), value }))
}

/// Refuses a test clock over a store that is used for anything else.
pub fn check_store(config: &Config) -> anyhow::Result<()> {
    let Some(folder) = config.store.folder() else {
        bail!(
            "--test-clock moves time by hand, and {} may have messages of others; leave the store away for a folder that \
             is removed at the end, or give --store embedded:FOLDER with a new folder",
            config.store.shown()
        );
    };
    let is_new = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    ensure!(
        is_new,
        "--test-clock wants a new folder, and {} is there already: its messages have times of another clock. Give another \
         one, remove it, or leave --store away for a folder that is removed at the end",
        folder.display()
    );
    Ok(())
}

/// Refuses to be reached from other machines, unless that is said.
pub fn check_address(reach: Reach, address: SocketAddr) -> anyhow::Result<()> {
    ensure!(
        reach == Reach::Exposed || address.ip().is_loopback(),
        "--test-clock is for tests, and {address} can be reached from other machines; listen on 127.0.0.1, or say \
         --test-clock=exposed where these are part of the test"
    );
    Ok(())
}

/// Notes that the times in this folder are a test clock's.
pub fn mark(folder: &Path) -> anyhow::Result<()> {
    std::fs::write(folder.join(MARKER), MARKER_TEXT).with_context(|| format!("writing into {}", folder.display()))
}

/// Refuses the folder of a node with a test clock.
pub fn refuse_marked(folder: &Path) -> anyhow::Result<()> {
    ensure!(
        !folder.join(MARKER).exists(),
        "{} was used by a node with a test clock: its messages have times that may never have come. Remove it, or choose \
         another folder with --store embedded:FOLDER",
        folder.display()
    );
    Ok(())
}
