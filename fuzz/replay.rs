//! Gives a fuzz target every input of its corpus: what `cargo test` runs of the fuzzing.
//!
//! Upstream: the module `fuzz` of each crate that has targets, which includes this file in its tests.

use std::path::Path;

/// Runs `target` on each file of `fuzz/corpus/NAME`.
pub fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut count = 0;
    for file in files {
        let path = file.expect("an entry of the corpus can be read").path();
        // Shown when the target panics.
        eprintln!("{}", path.display());
        target(&std::fs::read(&path).expect("an input can be read"));
        count += 1;
    }
    assert!(count > 0, "{} has no input", folder.display());
}

/// A test that each of these targets holds on its corpus.
macro_rules! corpora {
    ($($target:ident),*) => {
        #[cfg(test)]
        mod tests {
            #[test]
            fn the_corpora_break_no_law() {
                $( super::replay::replay(stringify!($target), super::$target); )*
            }
        }
    };
}
pub(crate) use corpora;
