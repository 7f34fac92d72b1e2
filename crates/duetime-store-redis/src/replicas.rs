//! Whether an answer waits for replicas, and how many have what it tells of.

/// Whether settlements are answered once replicas have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A settlement that a failover loses comes again as a duplicate.
    No,
    /// The topic asks for it.
    ForReplicas,
}

/// The replicas that have two changes, of those that have each; `None`: none are waited for.
pub(crate) fn fewest(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}
