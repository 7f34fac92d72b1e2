//! Lines of pages and of help texts, read as a shell reads them: each is understood by this program.

use std::path::Path;

use clap::error::ErrorKind;

use super::program;

/// Words of a page that stand for what its reader has.
const STAND_FOR: [(&str, &str); 7] = [
    ("TOPIC", "orders"),
    ("NAME", "orders"),
    ("ID", "order-42"),
    ("N", "8"),
    ("NODE", "node-1"),
    ("URL", "http://127.0.0.1:3830"),
    ("DIR", "folder"),
];

/// The words of the first command of a line, up to a pipe, a redirection or a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '|' | '>' | '<' | '&' | ';' | ')') => break,
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    // The number of what is redirected is none of the command's.
    words.extend(word.filter(|word| !line.contains(&format!(" {word}>"))));
    words
}

/// Reads a line, without running it.
pub(super) fn understood(line: &str) -> Result<(), clap::Error> {
    program().try_get_matches_from(words(line)).map(|_| ())
}

/// The lines of a page that call the program: in blocks of `sh`, and indented. What goes on in a next line is one.
fn calls(page: &str) -> Vec<(usize, String)> {
    let (mut found, mut in_shell, mut begun) = (Vec::new(), false, None::<(usize, String)>);
    for (number, line) in (1..).zip(page.lines()) {
        if let Some(language) = line.strip_prefix("```") {
            in_shell = language == "sh";
            continue;
        }
        if !in_shell && !line.starts_with("    ") {
            continue;
        }
        let (at, text) = begun.take().map_or((number, String::new()), |(at, text)| (at, text + " "));
        let text = text + line.trim();
        match text.strip_suffix('\\') {
            Some(open) => begun = Some((at, open.to_owned())),
            None => found.push((at, text)),
        }
    }
    found.retain(|(_, text)| text.starts_with("duetime "));
    found
}

#[test]
fn each_command_in_the_pages_for_users_is_understood_as_it_is_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (page, least) in [
        ("docs/MOVING.md", 12),
        ("docs/TUTORIAL.md", 8),
        ("docs/RECIPES.md", 3),
        ("docs/COMMANDS.md", 5),
        ("README.md", 5),
    ] {
        let calls = calls(&std::fs::read_to_string(root.join(page)).unwrap());
        assert!(calls.len() >= least, "{page}: {calls:?}");
        for (line, call) in calls {
            understood(&call).unwrap_or_else(|error| panic!("{page}:{line}: {call}\n{error}"));
        }
    }
}

/// What a page gives to type, in blocks of any kind and between backticks, but for what stands for several commands.
fn given(page: &str) -> Vec<String> {
    let (mut found, mut in_block, mut begun) = (Vec::new(), false, String::new());
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            let text = std::mem::take(&mut begun) + line.trim().trim_start_matches("$ ");
            match text.strip_suffix('\\') {
                Some(open) => begun.push_str(open),
                None => found.push(text),
            }
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found.retain(|text| text.starts_with("duetime ") && !text.contains(['[', '…']));
    found
}

#[test]
fn what_the_pages_for_operators_give_to_type_is_understood_as_far_as_it_goes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let stands_for = |word: String| {
        let known = STAND_FOR.iter().find(|(name, _)| *name == word);
        known.map_or(word, |(_, given)| (*given).to_owned())
    };
    let mut read = 0;
    for page in ["docs/RUNBOOKS.md", "docs/OPERATIONS.md", "docs/CAPACITY.md", "deploy/README.md", "README.md"] {
        for command in given(&std::fs::read_to_string(root.join(page)).unwrap()) {
            // Arguments are read before help is given, and what a text leaves away is not missed.
            let typed = words(&command).into_iter().map(stands_for).chain(["--help".to_owned()]);
            let help = program().try_get_matches_from(typed).expect_err("help is given");
            assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{page}: {command}\n{help}");
            read += 1;
        }
    }
    assert!(read > 100, "only {read} commands were found");
}

#[test]
fn words_are_those_of_a_shell() {
    for (line, wanted) in [
        ("duetime get a 'b c' --x \"d\" '' | jq .", &["duetime", "get", "a", "b c", "--x", "d", ""][..]),
        ("duetime export a 2>/dev/null", &["duetime", "export", "a"]),
        ("duetime serve &", &["duetime", "serve"]),
        ("duetime nodes   # all", &["duetime", "nodes"]),
    ] {
        assert_eq!(words(line), wanted, "{line}");
    }
    let page = "text\n\n    duetime a \\\n      --b\n\n```sh\nduetime c\nother\n```\n```text\nduetime d\n```\n";
    assert_eq!(calls(page), [(3, "duetime a  --b".to_owned()), (7, "duetime c".to_owned())]);
}
