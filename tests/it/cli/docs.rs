//! The documents that are in the program.

use std::path::Path;

use super::typed;

/// What is for those who change Duetime.
const NOT_FOR_USERS: [&str; 4] = ["ARCHITECTURE.md", "BENCHMARKS.md", "MODEL.md", "STYLE.md"];

#[test]
fn each_page_for_users_is_in_the_program_as_it_is_in_the_repository() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let pages: Vec<&str> = links.filter(|page| !NOT_FOR_USERS.contains(page)).chain(["../README.md"]).collect();
    assert!(pages.len() > 20, "{pages:?}");
    for page in &pages {
        let text = std::fs::read_to_string(docs.join(page)).unwrap();
        let printed = typed(&["docs", page]).done().out;
        assert_eq!(printed.trim_end(), text.trim_end(), "{page}");
    }
    let listed = typed(&["docs"]).done().out;
    assert_eq!(listed.lines().count(), pages.len() + 1, "a head, and a line for each: {listed}");
}

#[test]
fn a_section_is_found_by_the_link_that_leads_to_it_and_a_word_by_its_section() {
    let remember = typed(&["docs", "api/topics.md#remember"]).done().out;
    assert!(remember.starts_with("### Remember\n") && remember.contains("`became`"), "{remember}");
    assert_eq!(remember.matches("\n### ").count(), 0, "the next section is left out: {remember}");
    assert_eq!(remember, typed(&["docs", "topics#Remember"]).done().out);
    let whole = typed(&["docs", "recipes#work-exactly-once-under-an-id"]);
    assert_eq!(whole.status, 1, "{}", whole.out);
    assert!(whole.err.contains("has no section") && whole.err.contains("an-order-timeout-end-to-end"), "{}", whole.err);
    typed(&["docs", "nonsense"]).refused(1, &["is called \"nonsense\"", "duetime docs", "`--search \"nonsense\"`"]);

    let found = typed(&["docs", "--search", "CANCELLED_before"]).done().out;
    assert!(found.contains("api/produce#") && found.contains("api/topics#remember"), "{found}");
    let found = typed(&["docs", "api/topics", "--search", "cancelled_before"]).done().out;
    assert!(!found.contains("api/produce#") && found.contains("api/topics#remember"), "{found}");
    assert_eq!(typed(&["docs", "--search", "no page says this"]).status, 1);
}
