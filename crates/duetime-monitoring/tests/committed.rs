//! What is generated has the shape that Grafana and Prometheus want, and `deploy/` holds copies of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duetime_monitoring::{JOB, Objectives, RUNBOOKS, boards, rules};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn default_rules() -> String {
    let objectives = Objectives::parse(99.9, Duration::from_secs(1), &[]).unwrap();
    rules(&objectives, JOB, RUNBOOKS)
}

#[test]
fn the_committed_dashboards_are_those_that_are_generated() {
    for board in boards() {
        let path = root().join(format!("deploy/grafana/{}.json", board.name));
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == board.file(RUNBOOKS),
            "{} is not what is generated; run: cargo run -- dashboards --out deploy/grafana",
            path.display()
        );
    }
    let kept: BTreeSet<String> = std::fs::read_dir(root().join("deploy/grafana"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "json"))
        .collect();
    let made: BTreeSet<String> = boards().iter().map(|board| format!("{}.json", board.name)).collect();
    assert_eq!(kept, made, "deploy/grafana has dashboards that are not generated any more");
}

#[test]
fn the_committed_rules_are_those_that_are_generated() {
    let kept = std::fs::read_to_string(root().join("deploy/prometheus/duetime.rules.yaml")).unwrap_or_default();
    assert!(
        kept == default_rules(),
        "deploy/prometheus/duetime.rules.yaml is not what is generated; run: \
         cargo run -- alerts --within 1s --objective 99.9 > deploy/prometheus/duetime.rules.yaml"
    );
}

#[test]
fn each_series_is_recorded_by_one_rule_whatever_topics_have_bounds_of_their_own() {
    let named = ["orders=500ms".to_owned(), "mail.out=5s".to_owned()];
    let objectives = Objectives::parse(99.9, Duration::from_secs(1), &named).unwrap();
    let rules = rules(&objectives, JOB, RUNBOOKS);
    let recorded: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
    let names: BTreeSet<&str> = recorded.iter().copied().collect();
    assert_eq!(recorded.len(), names.len(), "promtool check rules refuses two rules of one name: {recorded:?}");
    for bound in [r#"topic!~\"orders|mail"#, r#"topic=\"orders\",le=\"0.5\""#, r#"topic=\"mail.out\",le=~\"5("#] {
        let of_windows = rules.lines().filter(|line| line.contains("rate(") && line.contains(bound)).count();
        assert_eq!(of_windows, 7, "{bound}: one for each window of\n{rules}");
    }
}

#[test]
fn each_alert_has_a_section_in_the_runbooks() {
    let page = std::fs::read_to_string(root().join(RUNBOOKS)).unwrap();
    let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("## Duetime")).collect();
    let rules = default_rules();
    let alerts: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: Duetime")).collect();
    assert_eq!(sections, alerts, "the alerts and the sections of {RUNBOOKS} are not the same");
}

#[test]
fn dashboards_and_runbooks_name_what_the_other_has() {
    let page = std::fs::read_to_string(root().join(RUNBOOKS)).unwrap();
    let sections: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_lowercase).collect();
    let mut titles = BTreeSet::new();
    for board in boards() {
        for panel in board.json("https://books.example/")["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            titles.insert(title.to_owned());
            for link in panel["links"].as_array().into_iter().flatten() {
                let section = link["url"].as_str().unwrap().strip_prefix("${runbooks}#").unwrap();
                assert!(sections.contains(section), "{title} links to {section}, which {RUNBOOKS} does not have");
            }
        }
        assert!(board.file("https://books.example/").contains("\"query\": \"https://books.example/\""));
    }
    // A panel is named as: Dashboard Delivery, "Time of a delivery, p99".
    let named: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("ashboard "))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .collect();
    assert!(named.len() >= 3, "{named:?}");
    for title in named {
        assert!(titles.contains(title), "{RUNBOOKS} names a panel {title:?} that no dashboard has");
    }
}

#[test]
fn a_dashboard_has_the_shape_that_grafana_wants() {
    let mut addresses = BTreeSet::new();
    for board in boards() {
        let json = board.json(RUNBOOKS);
        let address = json["uid"].as_str().unwrap().to_owned();
        assert!(address.len() <= 40, "{address} is longer than Grafana takes");
        assert!(addresses.insert(address), "two dashboards have one address");
        let panels = json["panels"].as_array().unwrap();
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in panels {
            let title = panel["title"].as_str().unwrap();
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is another's too");
            let grid = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            assert!(grid("x") + grid("w") <= 24, "{title} reaches over the grid");
            for x in grid("x")..grid("x") + grid("w") {
                for y in grid("y")..grid("y") + grid("h") {
                    assert!(taken.insert((x, y)), "{title} lies upon another panel");
                }
            }
            if panel["type"] == "row" {
                continue;
            }
            assert!(panel["description"].as_str().unwrap().len() > 10, "{title} does not say what it shows");
            assert!(!panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap().is_empty(), "{title} has no unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            let steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array().unwrap();
            let values: Vec<f64> = steps.iter().filter_map(|step| step["value"].as_f64()).collect();
            assert!(values.is_sorted_by(|one, next| one < next), "{title}: two colours begin at one value: {values:?}");
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty() && targets.iter().all(|target| !target["expr"].as_str().unwrap().is_empty()));
        }
    }
}

#[test]
fn no_expression_names_a_whole_bucket_in_the_spelling_of_one_prometheus() {
    let mut texts: Vec<String> = boards()
        .iter()
        .flat_map(|b| {
            b.panels().flat_map(duetime_monitoring::Panel::expressions).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    for within in ["1s", "5s", "1h", "500ms"] {
        let within = duetime_core::units::parse_duration(within).unwrap();
        texts.push(rules(&Objectives::parse(99.0, within, &["orders=60s".to_owned()]).unwrap(), JOB, RUNBOOKS));
    }
    for text in texts {
        let text = text.replace("\\\"", "\"");
        for (at, _) in text.match_indices("le=\"") {
            let bound = text[at + 4..].split('"').next().unwrap();
            assert!(bound.contains('.'), "le=\"{bound}\" is le=\"{bound}.0\" to Prometheus 3: {text}");
        }
    }
}

#[test]
fn the_bytes_of_a_dashboard_do_not_depend_on_how_the_library_was_built() {
    for board in boards() {
        let text = board.file(RUNBOOKS);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, board.json(RUNBOOKS));
        let first = text.lines().nth(1).unwrap();
        assert!(first.contains("\"annotations\""), "keys are in order: {first}");
    }
}
