//! Servers that the system does not have, or not in this version: where `./test` puts their programs.

use std::path::PathBuf;

/// Names the folder with the programs, if it is another than [`FOLDER`].
const FOLDER_VARIABLE: &str = "DUETIME_TEST_SERVERS";
/// Where `./test` links them, seen from this crate.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/test-tools/servers");

/// A version that the store is tried on besides the system's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerVersion {
    /// The oldest that is supported; it has no functions and no flags of scripts.
    Redis62,
    /// A newer Redis than Debian's.
    Redis82,
    /// The oldest Valkey to be had.
    Valkey81,
    /// The newest Valkey to be had.
    Valkey91,
}

impl ServerVersion {
    fn name(self) -> &'static str {
        match self {
            Self::Redis62 => "redis-6.2",
            Self::Redis82 => "redis-8.2",
            Self::Valkey81 => "valkey-8.1",
            Self::Valkey91 => "valkey-9.1",
        }
    }

    /// What INFO of such a server has in it.
    #[must_use]
    pub fn tells(self) -> String {
        let (kind, version) = self.name().split_once('-').expect("named above");
        format!("{kind}_version:{version}.")
    }

    /// The program.
    #[must_use]
    pub fn program(self) -> PathBuf {
        program(self.name())
    }
}

/// A program that `./test` put there, by the name it gave it.
pub(super) fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os(FOLDER_VARIABLE).map_or_else(|| PathBuf::from(FOLDER), PathBuf::from);
    let program = folder.join(name);
    assert!(program.exists(), "{} is missing; `./test --tools` installs what the tests need", program.display());
    program
}
