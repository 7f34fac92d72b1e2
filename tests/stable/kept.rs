//! Holds a list of what is promised (docs/COMPATIBILITY.md) against what the code has.
//!
//! Upstream: the tests that read the code, in `tests/tidy` and in the program's crate, which include this file.
//! The lists are beside it.

use std::collections::BTreeSet;
use std::path::Path;

/// What a line that is gone means.
const GONE: &str = "was promised, and is gone or changed. Keep it, and mark it as deprecated first: docs/COMPATIBILITY.md, \
                    \"Deprecate and remove\"";
/// What a line that is not in the list means.
const NEW: &str = "is new, and will be promised from now on. If that is meant, add this line, in its order";

/// What is wrong between the lines of a list and those that the code gives.
pub fn faults(list: &str, present: &BTreeSet<String>) -> Vec<String> {
    let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    let mut faults = Vec::new();
    for pair in lines.windows(2).filter(|pair| pair[0] >= pair[1]) {
        faults.push(format!("not sorted, or there twice: {}", pair[1]));
    }
    let promised: BTreeSet<&str> = lines.into_iter().collect();
    faults.extend(promised.iter().filter(|line| !present.contains(**line)).map(|line| format!("{GONE}: {line}")));
    faults.extend(present.iter().filter(|line| !promised.contains(line.as_str())).map(|line| format!("{NEW}: {line}")));
    faults
}

/// The text of a list.
pub fn list(name: &str) -> String {
    let places = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|place| place.join("tests/stable").join(name));
    let path = places.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("no tests/stable/{name}"));
    std::fs::read_to_string(path).expect("a list can be read")
}

/// Fails where the list and the code differ, and says in each line what to do.
pub fn holds(name: &str, present: &BTreeSet<String>) {
    let faults = faults(&list(name), present);
    assert!(faults.is_empty(), "tests/stable/{name}\n  {}\n", faults.join("\n  "));
}
