//! Where a secret is: in the configuration itself, in another file, or in a variable.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};
use zeroize::Zeroizing;

/// More of a file is not read: what has no first line of this length holds no secret.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A secret as it is written: a string, `{ file = "/run/secrets/x" }`, whose first line it then is, or
/// `{ env = "NAME" }`. It can be read again, for it may have changed.
#[derive(Clone)]
pub struct SecretSource(SecretPlace);

#[derive(Clone)]
enum SecretPlace {
    Text(Zeroizing<String>),
    File(PathBuf),
    Variable(String),
}

impl SecretSource {
    /// One that is in this file.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self(SecretPlace::File(path.to_owned()))
    }

    /// The file it is in.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            SecretPlace::File(path) => Some(path),
            _ => None,
        }
    }

    /// Whether it is in the configuration itself.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.0, SecretPlace::Text(_))
    }

    /// The secret as it is now. It is wiped when it is dropped, and so is what it was read from.
    ///
    /// # Errors
    ///
    /// A sentence that names the file or the variable.
    pub fn read(&self) -> Result<Zeroizing<String>, String> {
        match &self.0 {
            SecretPlace::Text(text) => Ok(text.clone()),
            SecretPlace::File(path) => {
                let text = read_begin(path)
                    .map_err(|error| format!("cannot read the secret in {}: {error}", path.display()))?;
                Ok(text.lines().next().unwrap_or_default().trim().to_owned().into())
            }
            SecretPlace::Variable(name) => {
                let text = std::env::var(name)
                    .map_err(|_| format!("the variable {name} of a secret is not set, or is not UTF-8"))?;
                Ok(Zeroizing::new(text).trim().to_owned().into())
            }
        }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretSource")
    }
}

/// The text of a file, or its first [`FILE_BYTES_MAX`].
fn read_begin(file: &Path) -> std::io::Result<Zeroizing<String>> {
    // One that grew would leave copies of its beginning.
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize + 64));
    File::open(file)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

impl<'de> Deserialize<'de> for SecretSource {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Not an enum of both: it would be read from a copy that nobody wipes.
        struct WrittenSecret;
        impl<'de> Visitor<'de> for WrittenSecret {
            type Value = Option<SecretSource>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a secret")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                self.visit_string(text.to_owned())
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(Some(SecretSource(SecretPlace::Text(text.into()))))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut places = BTreeMap::<String, PathBuf>::new();
                while let Some((key, place)) = map.next_entry()? {
                    places.insert(key, place);
                }
                Ok(match places.into_iter().collect::<Vec<_>>().as_slice() {
                    [(key, path)] if key == "file" => Some(SecretSource::file(path)),
                    [(key, name)] if key == "env" => {
                        Some(SecretSource(SecretPlace::Variable(name.to_string_lossy().into_owned())))
                    }
                    _ => None,
                })
            }
        }
        let help = || D::Error::custom("write the secret as a string, as { file = \"PATH\" } or as { env = \"NAME\" }");
        // That there is none is said as it is; what else is wrong could show it. A reader's error is only a text.
        let or_help = |error: D::Error| if error.to_string().starts_with("missing field") { error } else { help() };
        from.deserialize_any(WrittenSecret).map_err(or_help)?.ok_or_else(help)
    }
}
