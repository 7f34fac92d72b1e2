//! Where the secret of a token is written: in the file itself, in another one, or in a variable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A secret as written: a string, `{ file = "PATH" }` or `{ env = "NAME" }`.
#[derive(Clone)]
pub struct SecretSource(Place);

#[derive(Clone)]
enum Place {
    Text(String),
    File(PathBuf),
    Variable(String),
}

impl SecretSource {
    pub(crate) fn file(path: &Path) -> Self {
        Self(Place::File(path.to_owned()))
    }

    /// The file it is in.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.0 {
            Place::File(path) => Some(path),
            _ => None,
        }
    }

    /// The secret, without white space around it.
    pub(crate) fn read(&self) -> Result<String, String> {
        let text = match &self.0 {
            Place::Text(text) => text.clone(),
            Place::File(path) => {
                std::fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?
            }
            Place::Variable(name) => {
                std::env::var(name).map_err(|_| format!("the variable {name} is not set, or is not UTF-8"))?
            }
        };
        Ok(text.trim().to_owned())
    }
}

impl<'de> Deserialize<'de> for SecretSource {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Text(String),
            Place(BTreeMap<String, String>),
        }
        let help = || {
            serde::de::Error::custom("write the secret as a string, as { file = \"PATH\" } or as { env = \"NAME\" }")
        };
        match Raw::deserialize(from).map_err(|_| help())? {
            Raw::Text(text) => Ok(Self(Place::Text(text))),
            Raw::Place(place) => match place.iter().next() {
                Some((key, path)) if key == "file" && place.len() == 1 => Ok(Self(Place::File(path.into()))),
                Some((key, name)) if key == "env" && place.len() == 1 => Ok(Self(Place::Variable(name.clone()))),
                _ => Err(help()),
            },
        }
    }
}
