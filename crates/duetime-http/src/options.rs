//! What an operator may set about the listener, beside the tokens.

use crate::origin::Hosts;

/// See the module. The default suits a node on a loopback address.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// The names this node goes by.
    pub hosts: Hosts,
}
