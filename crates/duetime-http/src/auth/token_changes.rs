//! Which tokens came, went and changed when they were reloaded, for the audit log.

/// A token: its name, and all that it is.
type Described<'a> = (&'a str, String);

/// Names those that came, went and changed; `None`: they are the same.
pub(crate) fn sentence(before: &[Described<'_>], after: &[Described<'_>]) -> Option<String> {
    let is_in = |name: &str, tokens: &[Described<'_>]| tokens.iter().any(|(other, _)| *other == name);
    let names = |of: &[Described<'_>], wanted: &dyn Fn(&Described<'_>) -> bool| -> Vec<String> {
        of.iter().filter(|token| wanted(token)).map(|(name, _)| (*name).to_owned()).collect()
    };
    let parts = [
        ("came", names(after, &|(name, _)| !is_in(name, before))),
        ("went", names(before, &|(name, _)| !is_in(name, after))),
        ("changed", names(after, &|token| is_in(token.0, before) && !before.contains(token))),
    ];
    let said = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let said: Vec<String> = said.map(|(word, names)| format!("{word}: {}", names.join(", "))).collect();
    (!said.is_empty()).then(|| format!("tokens that {}", said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_came_went_and_changed_are_named() {
        let token = |name, what: &str| (name, what.to_owned());
        let before = [token("root", "1"), token("shop", "2"), token("old", "3")];
        let after = [token("root", "1"), token("shop", "4"), token("intruder", "5"), token("other", "6")];
        assert_eq!(sentence(&before, &after).unwrap(), "tokens that came: intruder, other; went: old; changed: shop");
        assert_eq!(sentence(&before, &before), None);
    }
}
