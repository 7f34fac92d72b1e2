//! The pages that list the settings of a topic are made of their declarations.

use duetime_core::TopicConfig;
use duetime_core::setting::{Kind, Setting};

use crate::repo::root;

const BEGIN: &str = "<!-- Settings of a topic, made of their declarations by a test. -->\n";
const END: &str = "<!-- End of the settings. -->\n";
/// Longest line of the list.
const WIDTH: usize = 118;

/// Returns what values of this kind look like.
fn kind(kind: &Kind) -> &'static str {
    match kind.present() {
        Kind::Duration => "duration",
        Kind::Durations(_) => "list of durations",
        Kind::Size => "size",
        Kind::Count(..) => "whole number",
        Kind::Number(..) => "number",
        Kind::Flag => "`true` or `false`",
        Kind::Word(_) => "word",
        Kind::Topic => "name of a topic",
        Kind::Shards => "number or `\"auto\"`",
        Kind::Object(_) if kind.list_form().is_some() => "object or list",
        Kind::Sink | Kind::Object(_) | Kind::Maybe(_) => "object",
    }
}

/// Returns an item of a list, wrapped.
fn item(indent: &str, text: &str) -> String {
    let mut lines = vec![format!("{indent}-")];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if last.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{indent}  {word}"));
        } else {
            *last = format!("{last} {word}");
        }
    }
    lines.join("\n") + "\n"
}

fn listed(indent: &str, settings: &[Setting]) -> String {
    let one = |setting: &Setting| {
        let text = format!("**`{}`** ({}): {}", setting.name, kind(&setting.kind), setting.text());
        item(indent, &text) + &listed(&format!("{indent}  "), setting.kind.inner())
    };
    settings.iter().map(one).collect()
}

#[test]
fn the_list_of_a_topics_settings_is_as_they_are_declared() {
    let path = root().join("docs/api/topics.md");
    let page = std::fs::read_to_string(&path).expect("docs/api/topics.md is there");
    let (before, rest) = page.split_once(BEGIN).expect("the list begins with its mark");
    let (_, after) = rest.split_once(END).expect("the list ends with its mark");
    let wanted = format!("{before}{BEGIN}{}{END}{after}", listed("", TopicConfig::SETTINGS));
    if std::env::var_os("DUETIME_TEST_WRITE").is_some() {
        std::fs::write(&path, wanted).expect("the page can be written");
        return;
    }
    assert!(
        page == wanted,
        "docs/api/topics.md lists other settings than there are; DUETIME_TEST_WRITE=1 writes the list"
    );
}
