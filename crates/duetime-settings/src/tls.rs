//! The certificates of a client.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
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
    /// The name in the server's certificate, if it is not that of the address. For etcd and for other nodes alone.
    pub server_name: Option<String>,
    #[serde(skip)]
    current: CurrentPem,
}

/// What the files held when they were read last; clones of one [`ClientTls`] share it. It is no setting: any two are equal.
#[derive(Clone, Default)]
struct CurrentPem(Arc<Mutex<Option<Arc<ClientPem>>>>);

impl PartialEq for CurrentPem {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CurrentPem {}

impl fmt::Debug for CurrentPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentPem")
    }
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

    /// The same with this name in place of the address.
    #[must_use]
    pub fn named(self, server_name: &str) -> Self {
        Self { server_name: Some(server_name.to_owned()), ..self }
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

    /// All files, to be watched for changes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.ca_file, &self.cert_file, &self.key_file].into_iter().flatten().map(PemFile::path)
    }

    /// What connections are made with: what the files held at the first call, or at the last [`Self::renew`] of any clone.
    ///
    /// # Errors
    ///
    /// As [`Self::fault`], or a sentence that names the file.
    pub fn read(&self) -> Result<Arc<ClientPem>, String> {
        let mut current = self.current.0.lock();
        if let Some(pem) = &*current {
            return Ok(pem.clone());
        }
        Ok(current.insert(Arc::new(self.read_files()?)).clone())
    }

    /// Reads the files again: all clones make new connections with what is in them, unless `check` refuses that.
    ///
    /// # Errors
    ///
    /// As [`Self::read`], and those of `check`; new connections are made with what was read before.
    pub fn renew(&self, check: impl FnOnce(&ClientPem) -> Result<(), String>) -> Result<(), String> {
        let pem = self.read_files()?;
        check(&pem)?;
        *self.current.0.lock() = Some(Arc::new(pem));
        Ok(())
    }

    fn read_files(&self) -> Result<ClientPem, String> {
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
        let whole = ClientTls { key_file: Some(there), ..tls.clone() }.read_files().unwrap();
        assert_eq!(whole.ca.as_deref(), Some(&b"pem"[..]));
        assert_eq!(whole.identity, Some((b"pem".to_vec(), b"pem".to_vec())));
        let missing = ClientTls { key_file: Some(PemFile::new(folder.path().join("key.pem"))), ..tls };
        assert!(
            missing
                .read()
                .is_err_and(|fault| fault.starts_with("key_file ") && fault.contains("key.pem: No such file"))
        );
    }

    #[test]
    fn what_is_read_again_is_for_all_clones_and_what_is_refused_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let tls = ClientTls::trusting(Some(PemFile::new(&file)));
        let clone = tls.clone();
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        let ca = |tls: &ClientTls| tls.read().unwrap().ca.clone().unwrap();
        write("first");
        assert_eq!(ca(&tls), b"first");
        write("second");
        assert_eq!(ca(&clone), b"first", "nobody has read it again");
        tls.renew(|_| Ok(())).unwrap();
        assert_eq!(ca(&clone), b"second");
        write("rubbish");
        assert!(tls.renew(|pem| (pem.ca.as_deref() == Some(b"good")).then_some(()).ok_or("no".to_owned())).is_err());
        std::fs::remove_file(&file).unwrap();
        assert!(tls.renew(|_| Ok(())).is_err_and(|fault| fault.contains("ca.pem: No such file")));
        assert_eq!(ca(&clone), b"second");
    }
}
