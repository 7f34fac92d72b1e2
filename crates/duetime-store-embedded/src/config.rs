//! What an operator sets about the embedded store.
//!
//! Upstream: the program's configuration.

use std::path::PathBuf;

use serde::Deserialize;

/// What its URL begins with.
const SCHEME: &str = "embedded:";

/// The section `[store]` where `url` is `embedded:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedStoreConfig {
    /// `embedded:PATH`: the folder that all is kept in.
    #[serde(rename = "url", deserialize_with = "folder")]
    pub folder: PathBuf,
}

impl EmbeddedStoreConfig {
    /// What `url` says, where it is of this store.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        let folder = url.strip_prefix(SCHEME).filter(|folder| !folder.is_empty())?;
        Some(Self { folder: PathBuf::from(folder) })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{SCHEME}{}", self.folder.display())
    }
}

fn folder<'de, D: serde::Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let found = EmbeddedStoreConfig::of_url(&String::deserialize(from)?).map(|config| config.folder);
    found.ok_or_else(|| serde::de::Error::custom("write embedded:PATH"))
}
