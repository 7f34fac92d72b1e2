//! Every field of the configuration that may hold a secret is tried by the test that looks for secrets in what people see.

use std::collections::BTreeSet;

use crate::repo::{files, is, none, root};

/// The rows of the test.
const PLACES: &str = "tests/it/canary/places.rs";

/// Types that hold nothing but secrets, or addresses with a password in them.
const TYPES: [&str; 3] = ["Secret", "TargetUrl", "SecretSource"];

/// Last words of the names of fields that hold a secret, or the path of a file with one.
const WORDS: [&str; 6] = ["password", "passphrase", "secret", "token", "hash", "key"];

/// `pub name: Type,`
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, of) = line.trim().strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")?;
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then_some((name, of))
}

fn is_secret(name: &str, of: &str) -> bool {
    let words = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned).collect::<Vec<_>>();
    if words(of).iter().any(|word| TYPES.contains(&word.as_str())) {
        return true;
    }
    let is_path = of.contains("PathBuf") || of.contains("PemFile");
    let last = name.trim_end_matches("_file").rsplit('_').next().unwrap_or_default();
    // A text called key is the key of a record.
    (is_path || of.contains("String") && last != "key") && (WORDS.contains(&last) || is_path && last == "credentials")
}

#[test]
fn every_field_for_a_secret_has_a_row_where_secrets_are_looked_for() {
    let mut fields = BTreeSet::new();
    for file in files(|path| path.starts_with("crates/") && path.contains("/src/") && is(path, "rs")) {
        let mut is_configuration = false;
        for line in file.text.lines() {
            if line.trim().starts_with("#[derive(") {
                is_configuration = line.contains("Deserialize");
            }
            if let Some((name, of)) = field(line)
                && is_configuration
                && is_secret(name, of)
            {
                fields.insert(format!("{}: {name}", file.path));
            }
        }
    }
    let text = std::fs::read_to_string(root().join(PLACES)).expect("the rows are there");
    let rows: BTreeSet<String> =
        text.split('"').filter(|part| part.starts_with("crates/")).map(str::to_owned).collect();
    let mut broken: Vec<String> = fields.difference(&rows).map(|field| format!("{field} has no row")).collect();
    broken.extend(rows.difference(&fields).map(|row| format!("{row} is no field for a secret")));
    assert!(fields.len() > 15, "too few fields were found: {fields:?}");
    none("each field for a secret needs a row in tests/it/canary/places.rs", broken);
}
