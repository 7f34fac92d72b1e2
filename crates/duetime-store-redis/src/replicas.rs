//! How many replicas have what an answer reports.

/// The replicas that have two changes, of those that have each; `None`: none are waited for.
pub(crate) fn fewest(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}
