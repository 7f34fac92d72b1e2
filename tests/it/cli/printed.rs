//! The commands that the documents give to operators.

use std::path::Path;

use super::typed;

/// Words that stand for what the operator has.
const STAND_FOR: [(&str, &str); 7] = [
    ("TOPIC", "orders"),
    ("NAME", "orders"),
    ("ID", "order-42"),
    ("N", "8"),
    ("NODE", "node-1"),
    ("URL", "http://127.0.0.1:3830"),
    ("DIR", "folder"),
];

/// Commands of a document: in its text between backticks, and as lines of its blocks of code.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            let line = line.trim_start().trim_start_matches("$ ");
            found.extend(line.starts_with("duetime ").then(|| line.to_owned()));
        } else {
            let quoted = line.split('`').skip(1).step_by(2);
            found.extend(quoted.filter(|part| part.starts_with("duetime ")).map(str::to_owned));
        }
    }
    found
}

/// The words of a command without what a shell makes of the rest of its line; `None`: it stands for several.
fn words(command: &str) -> Option<Vec<&str>> {
    let before = |text: &'static str| move |part: &str| part.find(text).unwrap_or(part.len());
    let end = ["#", " | ", " > ", " && ", "; "].into_iter().map(|text| before(text)(command)).min()?;
    let words: Vec<&str> = command[..end].split_whitespace().skip(1).collect();
    let several = words.iter().any(|word| word.contains(['[', '<', '|', '…', '\'', '"']));
    let stands_for = |word| STAND_FOR.iter().find(|(name, _)| *name == word).map_or(word, |(_, given)| *given);
    (!several).then(|| words.into_iter().map(stands_for).collect())
}

#[test]
fn what_the_documents_give_to_type_is_taken_as_it_stands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut tried = 0;
    for document in ["docs/RUNBOOKS.md", "docs/OPERATIONS.md", "docs/CAPACITY.md", "deploy/README.md", "README.md"] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        for command in commands(&text) {
            let Some(mut words) = words(&command) else { continue };
            // Arguments are read before help is given, and nothing is done.
            words.push("--help");
            let said = typed(&words);
            assert_eq!(said.status, 0, "{document}: {command}\n{}", said.err);
            tried += 1;
        }
    }
    assert!(tried > 40, "only {tried} commands were found");
}
