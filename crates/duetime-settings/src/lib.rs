//! How a value of the configuration is written, where more than one component has such a value: secrets, addresses with
//! a password in them, what may be shown of both, and certificates.
//!
//! Upstream: the config structs of the components. Knows none of them.

pub mod hashed;
pub mod redactor;
pub mod secret;
pub mod source;
pub mod tls;

pub use hashed::{SecretHash, hash_of, without_hashed};
pub use redactor::{REDACTED_BYTES_MIN, Redactor};
pub use secret::{Secret, TargetUrl};
pub use source::SecretSource;
pub use tls::{ClientPem, ClientTls, PemFile};
