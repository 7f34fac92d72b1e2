//! Certificates for servers of a test, signed by an authority of the test's own.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Writes `ca.pem`, and `server.pem` with `server.key` for `localhost` and `127.0.0.1`, into `folder`.
pub fn write_certificates(folder: &Path) {
    let key = || KeyPair::generate().expect("a fresh key");
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    // Another name than the server's, or that would look signed by itself.
    authority.distinguished_name.push(DnType::CommonName, "authority of a test");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, key()).expect("an authority signs itself");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let server_key = key();
    let params = CertificateParams::new(names).expect("good names");
    let server = params.signed_by(&server_key, &authority).expect("the authority signs");
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("the test's own folder");
    write("ca.pem", authority.pem());
    write("server.pem", server.pem());
    write("server.key", server_key.serialize_pem());
}
