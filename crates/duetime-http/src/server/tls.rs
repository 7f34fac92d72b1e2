//! TLS on the listener: certificates are reloaded while the node serves.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use duetime_settings::ClientPem;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use tokio_rustls::TlsAcceptor;
use x509_parser::certificate::Validity;
use x509_parser::time::ASN1Time;

/// `node.tls`: where the keys of the listener are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate with those between it and its authority, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Authorities of clients, PEM. Given: a client without a certificate of theirs is refused.
    pub client_ca: Option<PathBuf>,
}

/// The key to blame, and a sentence that names its file.
pub type TlsFault = (&'static str, String);

impl TlsFiles {
    /// All files, to be watched for changes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).map(PathBuf::as_path)
    }

    /// When the first certificate of the file ends, in seconds since the Unix epoch. `None`: it cannot be read.
    #[must_use]
    pub fn ends(&self) -> Option<i64> {
        certificate_ends(&self.cert)
    }

    /// That a certificate of the file is over or not valid yet, by the clock of this machine: no client that looks at
    /// it would go on. `None`: none is, or it cannot be read.
    #[must_use]
    pub fn expired(&self) -> Option<TlsFault> {
        Some(("cert", certificate_fault(&self.cert)?))
    }

    fn load(&self) -> Result<ServerConfig, TlsFault> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ("cert", format!("TLS cannot be used: {error}")))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let refused = |error: &dyn Display| ("client_ca", format!("{}: {error}", file.display()));
                let mut roots = RootCertStore::empty();
                for authority in certificates("client_ca", file)? {
                    roots.add(authority).map_err(|error| refused(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| refused(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| ("key", format!("{}: no private key in PEM can be read: {error}", self.key.display())))?;
        let mut config = builder.with_single_cert(certificates("cert", &self.cert)?, key).map_err(|error| {
            ("key", format!("{} and {} do not go together: {error}", self.cert.display(), self.key.display()))
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// When the first of the certificates in this PEM file ends, in seconds since the Unix epoch. `None`: it cannot be
/// read.
#[must_use]
pub fn certificate_ends(file: &Path) -> Option<i64> {
    validities(file)?.iter().map(|validity| validity.not_after.timestamp()).min()
}

/// Why a certificate in this PEM file is not valid by the clock of this machine, and what to do. `None`: all are, or
/// they cannot be read.
#[must_use]
pub fn certificate_fault(file: &Path) -> Option<String> {
    invalid_at(file, ASN1Time::now())
}

fn invalid_at(file: &Path, now: ASN1Time) -> Option<String> {
    invalid_among(&validities(file)?, &file.display(), now)
}

fn invalid_among(all: &[Validity], shown: &dyn Display, now: ASN1Time) -> Option<String> {
    all.iter().find_map(|Validity { not_before, not_after }| {
        if *not_after < now {
            Some(format!("{shown}: the certificate expired on {not_after}; put a new one there"))
        } else if *not_before > now {
            Some(format!(
                "{shown}: the certificate is not valid before {not_before}; put it there later, or set the clock"
            ))
        } else {
            None
        }
    })
}

/// Whether a client can use what was read of its files, by the clock of this machine.
///
/// # Errors
///
/// A sentence that names the key of [`ClientTls`](duetime_settings::ClientTls).
pub fn check_client(pem: &ClientPem) -> Result<(), String> {
    let read = |key: &str, text: &[u8]| {
        let all = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|error| format!("{key}: no certificate in PEM can be read: {error}"))?;
        if all.is_empty() { Err(format!("{key}: has no certificate in PEM")) } else { Ok(all) }
    };
    if let Some(ca) = &pem.ca {
        let mut roots = RootCertStore::empty();
        read("ca_file", ca)?
            .into_iter()
            .try_for_each(|one| roots.add(one).map_err(|error| format!("ca_file: {error}")))?;
    }
    let Some((cert, key)) = &pem.identity else { return Ok(()) };
    let chain = read("cert_file", cert)?;
    if let Some(fault) = validities_of(&chain).and_then(|all| invalid_among(&all, &"cert_file", ASN1Time::now())) {
        return Err(fault);
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("key_file: no private key in PEM can be read: {error}"))?;
    CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())
        .map(drop)
        .map_err(|error| format!("cert_file and key_file do not go together: {error}"))
}

/// From when to when each certificate of the file is valid.
fn validities(file: &Path) -> Option<Vec<Validity>> {
    validities_of(&certificates("cert", file).ok()?)
}

fn validities_of(all: &[CertificateDer<'_>]) -> Option<Vec<Validity>> {
    let validity = |one: &CertificateDer<'_>| Some(x509_parser::parse_x509_certificate(one).ok()?.1.validity().clone());
    all.iter().map(validity).collect()
}

fn certificates(key: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let read = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| (key, format!("{}: no certificate in PEM can be read: {error}", file.display())))?;
    if read.is_empty() {
        return Err((key, format!("{}: has no certificate in PEM", file.display())));
    }
    Ok(read)
}

/// The keys in use. Clones share them.
#[derive(Clone)]
pub struct Tls(Arc<ArcSwap<ServerConfig>>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The key of [`TlsFiles`], and a sentence that names the file.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsFault> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(files.load()?))))
    }

    /// Reads them again; new connections use what is there now.
    ///
    /// # Errors
    ///
    /// As [`Self::load`], and that a certificate is over or not valid yet; what was read before stays in use.
    pub fn reload(&self, files: &TlsFiles) -> Result<(), TlsFault> {
        files.expired().map_or(Ok(()), Err)?;
        self.0.store(Arc::new(files.load()?));
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.load_full())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_over_or_not_valid_yet_is_a_fault_wherever_in_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pem = || duetime_testkit::webhook::localhost_tls().1;
        std::fs::write(file.path(), pem() + &pem()).unwrap();
        let at = |seconds| invalid_at(file.path(), ASN1Time::from_timestamp(seconds).unwrap());
        let own = validities(file.path()).unwrap();
        assert_eq!(own.len(), 2);
        let (from, to) = (own[0].not_before.timestamp(), own[0].not_after.timestamp());
        assert_eq!((at(from), at(to)), (None, None));
        assert!(at(from - 1).unwrap().contains("is not valid before"));
        assert!(at(to + 1).unwrap().contains("expired on"));
        assert_eq!(certificate_ends(file.path()), Some(to));
    }

    #[test]
    fn a_client_uses_no_rubbish_and_no_key_of_another_certificate() {
        let folder = tempfile::tempdir().unwrap();
        duetime_testkit::servers::write_certificates(folder.path());
        let file = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
        let other = duetime_testkit::webhook::localhost_tls().1.into_bytes();
        let check = |ca: &[u8], cert: &[u8], key: &[u8]| {
            check_client(&ClientPem { ca: Some(ca.to_vec()), identity: Some((cert.to_vec(), key.to_vec())) })
        };
        check(&ca, &cert, &key).unwrap();
        for (checked, names) in [
            (check(b"rubbish", &cert, &key), "ca_file: has no certificate"),
            (check(&ca, b"", &key), "cert_file: has no certificate"),
            (check(&ca, &cert, b"rubbish"), "key_file: no private key"),
            (check(&ca, &other, &key), "cert_file and key_file do not go together"),
        ] {
            assert!(checked.as_ref().is_err_and(|fault| fault.contains(names)), "{names}: {checked:?}");
        }
    }
}
