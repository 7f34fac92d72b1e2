//! The rule by which tenants share what is bounded, where nothing that a tenant holds can be taken back from it.

/// True if a tenant that holds `held` may take `amount` of the `left` that no one holds: afterwards it holds at most
/// `factor` times what it leaves.
///
/// So each tenant finds something, however much those before it took: of a total of T, n tenants that take all they may
/// leave T / (n × `factor` + 1). Rule: "dynamic thresholds", Choudhury and Hahne, IEEE/ACM Transactions on Networking
/// 6(2), 1998.
#[must_use]
pub fn may_take(held: u64, amount: u64, left: u64, factor: u64) -> bool {
    let rest = left.checked_sub(amount);
    rest.is_some_and(|rest| held.saturating_add(amount) <= rest.saturating_mul(factor))
}

/// The most that one tenant can hold of `total`.
#[must_use]
pub fn most_of_one(total: u64, factor: u64) -> u64 {
    u64::try_from(u128::from(total) * u128::from(factor) / (u128::from(factor) + 1)).expect("less than the total")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_finds_something_however_much_those_before_it_took() {
        for factor in [1, 4] {
            let (total, mut left) = (1_000_000_u64, 1_000_000_u64);
            for tenant in 1..=5 {
                let mut held = 0;
                while may_take(held, 1, left, factor) {
                    (held, left) = (held + 1, left - 1);
                }
                assert!(held > 0 && held <= most_of_one(total, factor), "tenant {tenant}: {held}");
                let share = total / (tenant * factor + 1);
                assert!(tenant > 1 || left.abs_diff(share) <= 1, "{left} of {share}");
            }
            assert!(left > 0);
        }
        assert!(!may_take(0, 2, 1, 4));
        assert_eq!((most_of_one(100, 4), most_of_one(u64::MAX, 1)), (80, u64::MAX / 2));
    }
}
