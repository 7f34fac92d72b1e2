//! Names in a sentence that stays short. Whatever lists names in answers and logs calls it.

/// `a, b and 3 more`: `shown_max` of them at most, in their order.
#[must_use]
pub fn some_of(all: impl IntoIterator<Item = impl ToString>, shown_max: usize) -> String {
    let mut rest = all.into_iter();
    let shown: Vec<String> = rest.by_ref().take(shown_max).map(|one| one.to_string()).collect();
    let shown = shown.join(", ");
    match rest.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_most_is_counted() {
        let of = |many: usize| some_of(&["a", "b", "c", "d"][..many], 2);
        assert_eq!([0, 1, 2, 4].map(of), ["", "a", "a, b", "a, b and 2 more"]);
    }
}
