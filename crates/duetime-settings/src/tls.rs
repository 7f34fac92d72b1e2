//! The certificates of a client.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

/// A file of certificates or of a key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct PemFile(PathBuf);

impl PemFile {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is, for libraries that read it themselves.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What is in it; `key` is that of the configuration.
    ///
    /// # Errors
    ///
    /// A sentence that names the key and the file.
    pub fn read(&self, key: &str) -> Result<Vec<u8>, String> {
        std::fs::read(&self.0).map_err(|error| self.refused(key, error))
    }

    /// The same as text.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_text(&self, key: &str) -> Result<String, String> {
        String::from_utf8(self.read(key)?).map_err(|_| self.refused(key, "it is not text; give a PEM file"))
    }

    /// That something is wrong with it.
    pub fn refused(&self, key: &str, error: impl std::fmt::Display) -> String {
        format!("{key} {}: {error}", self.0.display())
    }
}

/// What a client trusts, and what it shows of itself: the settings of every client of this program, of the stores, of
/// etcd and of the targets of sinks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTls {
    /// PEM file of the authority that signed the server's certificate. Default: the public ones.
    pub ca_file: Option<PemFile>,
    /// PEM file of this client's certificate, where the server asks for one.
    pub cert_file: Option<PemFile>,
    /// PEM file of its key.
    pub key_file: Option<PemFile>,
    /// The name in the server's certificate, if it is not that of the address. For etcd alone.
    pub server_name: Option<String>,
}

/// The texts of the files of a [`ClientTls`].
#[derive(Default)]
pub struct ClientPem {
    /// The authority.
    pub ca: Option<Vec<u8>>,
    /// This client's certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl ClientTls {
    /// Trusts this authority, and shows nothing of itself.
    #[must_use]
    pub fn trusting(ca_file: Option<PemFile>) -> Self {
        Self { ca_file, ..Self::default() }
    }

    /// Reads the key `ca_file` of a section that has no other key about certificates.
    ///
    /// # Errors
    ///
    /// The reader's.
    pub fn of_ca_file<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::<PemFile>::deserialize(from).map(Self::trusting)
    }

    /// What makes no sense, with the fix.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        (self.cert_file.is_some() != self.key_file.is_some()).then_some("give both cert_file and key_file, or neither")
    }

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// As [`Self::fault`], or a sentence that names the file.
    pub fn read(&self) -> Result<ClientPem, String> {
        if let Some(fault) = self.fault() {
            return Err(fault.to_owned());
        }
        let read = |key, file: &Option<PemFile>| file.as_ref().map(|file| file.read(key)).transpose();
        let identity = read("cert_file", &self.cert_file)?.zip(read("key_file", &self.key_file)?);
        Ok(ClientPem { ca: read("ca_file", &self.ca_file)?, identity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_is_named_and_a_certificate_needs_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let there = PemFile::new(folder.path().join("there.pem"));
        std::fs::write(there.path(), "pem").unwrap();
        let tls = ClientTls { cert_file: Some(there.clone()), ..ClientTls::trusting(Some(there.clone())) };
        assert!(tls.read().is_err_and(|fault| fault.contains("both cert_file and key_file")));
        let whole = ClientTls { key_file: Some(there), ..tls.clone() }.read().unwrap();
        assert_eq!(whole.ca.as_deref(), Some(&b"pem"[..]));
        assert_eq!(whole.identity, Some((b"pem".to_vec(), b"pem".to_vec())));
        let missing = ClientTls { key_file: Some(PemFile::new(folder.path().join("key.pem"))), ..tls };
        assert!(
            missing
                .read()
                .is_err_and(|fault| fault.starts_with("key_file ") && fault.contains("key.pem: No such file"))
        );
    }
}
