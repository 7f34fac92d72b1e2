//! What to do about faults that all targets may have: no listener, an unknown certificate authority, a refused login.
//!
//! Upstream: the check of each named sink. The libraries distinguish these in words alone; nothing but the advice rests
//! on them.

/// A part of what is said, and what to do.
const REMEDIES: [(&str, &str); 14] = [
    ("Connection refused", "start it, or fix host and port"),
    ("lookup address", "fix the host"),
    ("UnknownIssuer", "set `ca_file` to a PEM of the authority that signed its certificate"),
    ("NotValidForName", "use a name that its certificate is for"),
    ("certificate expired", "renew its certificate"),
    ("InvalidContentType", "there is no TLS at this port: fix the port, or write the scheme without TLS"),
    ("ACCESS_REFUSED - Login", "check user and password in `url`"),
    ("vhost", "create it and let the user in, or fix the path of `url`: rabbitmqctl add_vhost, set_permissions"),
    ("uthorization violation", "check `user` and `password`, `token` or `credentials_file`"),
    ("no JetStream", "start the server with -js, and let the account use it"),
    ("READONLY", "a replica takes nothing: give the address of its master"),
    (" in time", "fix host and port, and see that no firewall is between"),
    ("timed out", "fix host and port, and see that no firewall is between"),
    ("did not answer within", "fix host and port, or raise `timeout`"),
];

/// What stands before a remedy.
const BEFORE: &str = "; ";

/// `said`, and what to do about it where that is known and not said yet.
#[must_use]
pub fn with_remedy(said: String) -> String {
    match REMEDIES.iter().find(|(part, _)| said.contains(part)) {
        Some((_, remedy)) if !said.contains(BEFORE) => format!("{}{BEFORE}{remedy}", said.trim_end_matches('.')),
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_given_once_and_an_unknown_fault_is_left_as_it_is() {
        let told = with_remedy("could not connect: Connection refused (os error 111)".to_owned());
        assert_eq!(told, "could not connect: Connection refused (os error 111); start it, or fix host and port");
        assert_eq!(with_remedy(told.clone()), told);
        assert_eq!(with_remedy("it is raining".to_owned()), "it is raining");
    }
}
