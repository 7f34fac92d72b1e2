//! A small disk for tests that fill it. Only root can mount one.

use std::path::Path;
use std::process::Command;

use duetime_testkit::violation::cannot_run;
use tempfile::TempDir;

/// A disk of its own; unmounted when it is dropped.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts a disk of this size; `None` without the right to, and the test is noted as one that did not run.
    pub(crate) fn mount(mebibytes: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "duetime-test"]).arg(folder.path());
        if mount.output().is_ok_and(|done| done.status.success()) {
            return Some(Self(folder));
        }
        cannot_run("a small disk can only be mounted by root; run the tests as root (sudo -E ./test)");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}
