//! What a new metric, route or page touches is listed whole in `docs/ARCHITECTURE.md`: the files are those of one that is there.
//!
//! The lists for sinks and stores are held in `docs.rs`.

use crate::repo::{files, none, root};

const PAGE: &str = "docs/ARCHITECTURE.md";

fn page() -> String {
    files(|path| path == PAGE).remove(0).text
}

/// The paths that the list beginning with `- **begin**` has, up to the next list.
fn listed(page: &str, begin: &str) -> Vec<String> {
    let rest = page.split(&format!("\n- **{begin}**")).nth(1).unwrap_or_else(|| panic!("{PAGE} has no list {begin:?}"));
    let list = rest.split("\n- **").next().unwrap_or_default().split("\n\n## ").next().unwrap_or_default();
    let words = list.split('`').skip(1).step_by(2);
    words.filter(|word| word.contains('/') && !word.contains([' ', '{', '='])).map(str::to_owned).collect()
}

/// Where the names of one metric, route or page are, but for the change log and what is about the rules themselves.
fn touched(names: &[&str]) -> Vec<String> {
    let counts = |path: &str| {
        let not = ["CHANGELOG.md", PAGE, "tests/tidy/", "benches/runs/"];
        !not.iter().any(|not| path.starts_with(not))
    };
    let named = |text: &str| names.iter().any(|name| text.contains(name));
    files(counts).into_iter().filter(|file| named(&file.text)).map(|file| file.path).collect()
}

fn is_listed_whole(of: &str, begin: &str, names: &[&str]) {
    let (listed, touched) = (listed(&page(), begin), touched(names));
    let missing = touched.iter().filter(|path| !listed.contains(path)).cloned();
    none(&format!("{PAGE} does not say that {of} touches"), missing.collect());
    let idle = listed.iter().filter(|path| !touched.contains(path)).cloned();
    none(&format!("{PAGE} says that {of} touches"), idle.collect());
}

#[test]
fn what_a_new_metric_touches_is_listed_whole() {
    let names = ["duetime_pending_bytes", "PENDING_BYTES", "pending_bytes: IntGauge", "meters.pending_bytes"];
    is_listed_whole("a new metric", "A metric", &names);
}

#[test]
fn what_a_new_route_touches_is_listed_whole() {
    let names =
        ["get_shard_owners", "owners::get", "mod owners;", "/owners", "ShardOwners", "shard_owners(", "shards owners"];
    is_listed_whole("a new route", "A route of the API", &names);
}

/// Each page of the console: its file, the line of the frame, the browser that sees it, its row and its two pictures.
#[test]
fn every_page_of_the_console_is_in_all_the_places_that_a_page_has() {
    const SCREENS: &str = "crates/duetime-console/assets/screens";
    let places = [
        SCREENS,
        "crates/duetime-console/assets/app.js",
        "tests/it/console/page.py",
        "docs/console",
        "docs/CONSOLE.md",
    ];
    let listed = listed(&page(), "A page of the console");
    assert_eq!(listed[..places.len()], places, "{PAGE} lists other places for a page of the console");
    let text = |path: &str| std::fs::read_to_string(root().join(path)).expect("a place of a page can be read");
    let (frame, browser, manual) = (text(places[1]), text(places[2]), text(places[4]));
    let mut broken = Vec::new();
    let mut seen = 0;
    for file in files(|path| path.starts_with(SCREENS)) {
        let name = file.path[SCREENS.len() + 1..].trim_end_matches(".js").to_owned();
        if !frame.contains(&format!("./screens/{name}.js\"")) {
            // A part of other pages.
            let used = files(|path| path.starts_with(SCREENS))
                .iter()
                .any(|other| other.text.contains(&format!("/{name}.js\"")));
            broken.extend((!used).then(|| format!("{}: imported by nothing", file.path)));
            continue;
        }
        seen += 1;
        if browser.contains(&format!("/#/{name}/")) && !browser.contains(&format!("\"{name}\": (")) {
            // It has an address only, to which another page leads.
            continue;
        }
        let mut lacks = |there: bool, what: String| broken.extend((!there).then(|| format!("{}: {what}", file.path)));
        lacks(browser.contains(&format!("\"{name}\": (")), format!("not in SCREENS of {}", places[2]));
        lacks(manual.contains(&format!("(console/{name}-light.png) | **")), format!("no row in {}", places[4]));
        for look in ["light", "dark"] {
            let picture = format!("docs/console/{name}-{look}.png");
            lacks(root().join(&picture).exists(), format!("no {picture}"));
        }
    }
    assert!(seen > 10, "{seen} pages");
    none("a page of the console is not everywhere where a page is", broken);
}

/// How many places a list counts: its highest number.
fn numbered(page: &str, begin: &str) -> usize {
    let rest = page.split(&format!("\n- **{begin}**")).nth(1).unwrap_or_else(|| panic!("{PAGE} has no list {begin:?}"));
    let list = rest.split("\n- **").next().unwrap_or_default();
    (1..).take_while(|n| list.contains(&format!(" {n}. `"))).last().unwrap_or_default()
}

#[test]
fn the_table_of_costs_says_how_long_the_lists_are() {
    let page = page();
    let rows = [
        ("a metric", "A metric"),
        ("a route", "A route of the API"),
        ("a page of the console", "A page of the console"),
        ("a sink", "A sink"),
        ("a store", "A store"),
    ];
    let wrong = rows.iter().filter_map(|(row, begin)| {
        let count = numbered(&page, begin);
        (!page.contains(&format!("\n| {row} | {count}"))).then(|| format!("| {row} | {count}"))
    });
    none("the table \"What it costs to add\" has another number than the list below it", wrong.collect());
}
