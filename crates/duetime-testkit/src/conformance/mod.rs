//! Suites that every implementation of a contract runs, once for all.

mod factory;
pub mod ownership;
pub mod resize;
pub mod sink;
pub mod store;

pub use factory::StoreFactory;

/// What a suite does with the list of its sentences: a `#[tokio::test]` for each, runs them, or names them.
#[macro_export]
macro_rules! suite {
    (@tests $suite:ident $factory:expr; $($group:ident :: $sentence:ident,)*) => {
        $(
            #[tokio::test]
            async fn $sentence() {
                let factory = $factory;
                $crate::conformance::$suite::$group::$sentence(&factory).await;
            }
        )*
    };
    (@run $suite:ident $factory:expr; $($group:ident :: $sentence:ident,)*) => {
        $( $crate::conformance::$suite::$group::$sentence($factory).await; )*
    };
    (@names $suite:ident $unused:expr; $($group:ident :: $sentence:ident,)*) => {
        [$(concat!(stringify!($group), "::", stringify!($sentence))),*]
    };
}

/// Fails unless the list of a suite has just the sentences of its files.
#[cfg(test)]
fn check_listed(listed: &[&str], sources: &[(&str, &str)]) {
    let mut written = Vec::new();
    for (group, text) in sources {
        let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        written.extend(names.map(|name| format!("{group}::{}", name.split('(').next().unwrap())));
    }
    written.sort();
    let mut listed = listed.to_vec();
    listed.sort_unstable();
    assert_eq!(listed, written);
}
