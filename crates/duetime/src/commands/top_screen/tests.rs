//! What the screen shows, drawn into memory.

use super::*;

/// Topics in the order in which they stand, which the test of the console reads too.
const ORDER: &str = include_str!("../../../../../tests/it/console/order.json");

fn topic(name: &str, due: u64, oldest: Option<i64>) -> Topic {
    serde_json::from_value(serde_json::json!({
        "name": name, "shards": 4, "visibility_timeout": "30s", "retry": {}, "delivery": "at-least-once",
        "max_payload": 10, "scheduled": 7, "due": due, "in_flight": 1, "dead": 3, "shard_count": 4,
        "oldest_due_at": oldest, "sink": {"name": "shop"},
        "sink_issue": {"state": "down", "since": 5, "reason": "refused"},
        "paused": true, "pause": {"since": 7, "by": "ops", "sink": "shop", "reason": "the shop moves"}
    }))
    .unwrap()
}

fn screen() -> Screen {
    let rates = serde_json::from_value(serde_json::json!({
        "node": "n1", "topics": [{ "topic": "orders", "over_ms": 60_000, "scheduled": 100.0, "cancelled": 90.0,
            "delivered": 9.5, "retried": 0.0, "dead": 0.0, "late_p99_ms": 4.0 }],
        "sinks": [{ "sink": "shop", "type": "http", "calls": 3.0, "refused": [{ "kind": "timeout", "count": 2 }] }]
    }));
    let topics = vec![topic("mails", 0, None), topic("orders", 2, Some(1000)), topic("pings", 5, Some(9000))];
    let look = Look { at: 10_000, topics, rates: Some(rates.unwrap()), ..Look::default() };
    Screen::new("http://node".to_owned(), look)
}

fn press(screen: &mut Screen, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            c => KeyCode::Char(c),
        };
        screen.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

fn drawn(screen: &Screen) -> String {
    drawn_in(screen, 160)
}

fn drawn_in(screen: &Screen, width: u16) -> String {
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(width, 24)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    terminal.backend().to_string()
}

fn names(screen: &Screen) -> Vec<String> {
    screen.lines().into_iter().map(|line| line.name).collect()
}

#[test]
fn topics_are_sorted_by_any_column_and_filtered_with_totals_below() {
    let mut screen = screen();
    assert_eq!(names(&screen), ["mails", "orders", "pings"], "all of them need somebody: by name");
    screen.look.topics[0].sink_issue = None;
    assert_eq!(names(&screen), ["orders", "pings", "mails"], "what needs somebody is on top");
    press(&mut screen, "r");
    assert_eq!(names(&screen), ["mails", "pings", "orders"]);
    press(&mut screen, "S");
    assert_eq!(names(&screen), ["mails", "orders", "pings"], "by name");
    let text = drawn(&screen);
    for word in ["3 of 3 topics", "4 ms", "9.0 s", "shop (down)", "9.5", "21"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    press(&mut screen, "/ord\n");
    assert_eq!(names(&screen), ["orders"]);
    assert!(drawn(&screen).contains("1 of 3 topics"));
}

#[test]
fn topics_are_in_the_order_of_the_console() {
    let cases: Vec<serde_json::Value> = serde_json::from_str(ORDER).unwrap();
    let mut screen = screen();
    let at = screen.look.at;
    let made = cases.iter().map(|case| {
        let mut topic = topic(case["name"].as_str().unwrap(), 1, case["waited_ms"].as_i64().map(|ms| at - ms));
        topic.config.paused = case["paused"].as_bool().unwrap_or(false);
        topic.unreachable_shards = usize::from(case["unreachable_shards"].is_u64());
        let issue = |state: &str| serde_json::from_value(serde_json::json!({ "state": state })).unwrap();
        topic.sink_issue = case["sink"].as_str().map(issue);
        topic
    });
    screen.look.topics = made.rev().collect();
    let of_case = |case: &serde_json::Value| {
        serde_json::json!({ "topic": case["name"], "over_ms": 60_000, "scheduled": 0.0, "cancelled": 0.0,
            "delivered": 0.0, "retried": 0.0, "dead": case["dead"].as_f64().unwrap_or(0.0), "late_p99_ms": case["late_p99_ms"],
            "of_rest": case["of_rest"].as_bool().unwrap_or(false) })
    };
    let rates: Vec<_> = cases.iter().map(of_case).collect();
    let read = serde_json::json!({ "node": "n1", "topics": rates, "sinks": [] });
    screen.look.rates = Some(serde_json::from_value(read).unwrap());
    let expected: Vec<_> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names(&screen), expected);
}

#[test]
fn lateness_that_is_kept_of_several_topics_together_is_shown_for_none_of_them() {
    let mut screen = screen();
    screen.look.rates.as_mut().unwrap().topics[0].of_rest = true;
    let text = drawn(&screen);
    assert!(!text.contains("4 ms") && text.contains("9.5"), "{text}");
    press(&mut screen, "/ord\n\n");
    let text = drawn(&screen);
    assert!(text.contains("lateness is not kept by topic") && !text.contains("4 ms"), "{text}");
}

#[test]
fn each_page_is_a_key_away_and_esc_leads_back() {
    let mut screen = screen();
    press(&mut screen, "k");
    let text = drawn(&screen);
    assert!(text.contains("timeout 2") && text.contains("down") && text.contains("Deliveries/s"), "{text}");
    press(&mut screen, "n");
    assert!(drawn(&screen).contains("Address"));
    press(&mut screen, "t");
    screen.press(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
    press(&mut screen, "\n");
    assert_eq!(screen.page, Page::Topic("orders".to_owned()));
    let text = drawn(&screen);
    assert!(text.contains("duetime topic get orders"), "{text}");
    assert!(text.contains("Paused  since") && text.contains("by ops through sink shop: the shop moves"), "{text}");
    let forecast = KeyEvent::new(KeyCode::Char('f'), KeyModifiers::NONE);
    assert_eq!(screen.press(forecast), Asked::Look);
    assert_eq!(screen.page, Page::Forecast("orders".to_owned()));
    let esc = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
    assert_eq!((screen.press(esc), &screen.page), (Asked::Nothing, &Page::Topics));
    assert_eq!((screen.press(esc), &screen.page), (Asked::Nothing, &Page::Topics), "it ends by q alone");
    press(&mut screen, "?");
    let text = drawn_in(&screen, 80);
    assert!(text.contains("back to all topics") && text.contains("First are topics that cannot deliver"), "{text}");
    assert_eq!((screen.press(esc), &screen.page), (Asked::Nothing, &Page::Topics));
}

#[test]
fn no_name_of_a_column_is_cut_in_a_terminal_of_80_characters() {
    let mut screen = screen();
    let wide = drawn(&screen);
    // What burns comes first, as in the console; in a row each is below its own name.
    let cells = &screen.lines()[1].cells;
    let row: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).zip(cells.iter().map(String::as_str)).collect();
    let first = [("Oldest due", "9.0 s"), ("Due", "2"), ("Late, p99", "4 ms"), ("Out/s", "9.5"), ("Dead", "3")];
    assert_eq!(row[1..6], first);
    let rest = [("In flight", "1"), ("Scheduled", "7"), ("Goes to", "shop (down)"), ("In/s", "100")];
    assert_eq!(row[6..10], rest);
    assert_eq!(row[10..], [("Cancelled/s", "90"), ("Late, p50", "–"), ("Budget left", "–"), ("Shards", "4")]);
    for (name, _) in COLUMNS {
        assert!(wide.contains(name), "{name}: {wide}");
    }
    // Whatever is sorted by is there, and what is there has its whole name.
    assert!(drawn_in(&screen, 80).contains("orders: sink down"), "{}", drawn_in(&screen, 80));
    screen.is_sorted = true;
    for (column, (name, _)) in COLUMNS.iter().enumerate() {
        screen.column = column;
        let narrow = drawn_in(&screen, 80);
        assert!(narrow.contains(&format!("{name}↓")), "{name}: {narrow}");
        for at in screen.fitting(78, 0).0 {
            assert!(narrow.contains(COLUMNS[at].0), "{}: {narrow}", COLUMNS[at].0);
        }
        assert!(narrow.contains("Topic") && narrow.contains("Due"), "{narrow}");
        assert!(narrow.contains("q quit"), "{narrow}");
    }
    press(&mut screen, "k");
    let sinks = drawn_in(&screen, 80);
    for name in ["State", "Due", "Deliveries/s", "Call p50", "Call p99", "Refused"] {
        assert!(sinks.contains(name), "{name}: {sinks}");
    }
    press(&mut screen, "n");
    let nodes = drawn_in(&screen, 80);
    assert!(
        ["Node", "State", "Shards", "Since", "Version", "Address"].iter().all(|name| nodes.contains(name)),
        "{nodes}"
    );
}

#[test]
fn the_column_of_topics_is_as_wide_as_the_longest_name_beside_what_says_how_they_are() {
    let mut screen = screen();
    for topic in &mut screen.look.topics {
        (topic.sink_issue, topic.config.paused) = (None, false);
    }
    let of_tenant = |tenant: u32| format!("orders-of-tenant-{tenant}-in-prod");
    screen.look.topics[1].name = of_tenant(17);
    for width in [160, 80] {
        let text = drawn_in(&screen, width);
        assert!(text.contains(&format!("{} ", of_tenant(17))), "{width}: {text}");
        assert!(["Oldest due", "Due", "Late, p99", "Out/s", "Dead"].iter().all(|name| text.contains(name)), "{text}");
    }
    // Every column stays where names leave room for it.
    screen.look.topics[1].name = "o".repeat(20);
    assert!(drawn(&screen).contains("Shards") && drawn(&screen).contains(&"o".repeat(20)), "{}", drawn(&screen));
    // A longer one than there is room for shows both ends, and what it differs in.
    screen.look.topics[1].name = of_tenant(17) + "-of-europe";
    screen.look.topics[2].name = of_tenant(18) + "-of-europe";
    let text = drawn_in(&screen, 80);
    assert!(text.contains("orders-of-tenant-17…") && text.contains("orders-of-tenant-18…"), "{text}");
    assert_eq!(text.matches("of-europe ").count(), 2, "{text}");
}

#[test]
fn what_is_paused_says_why_since_when_and_by_whom_below_topics_and_sinks() {
    let mut screen = screen();
    for page in ["t", "k"] {
        press(&mut screen, page);
        let text = drawn(&screen);
        assert!(text.contains("mails is paused since 1970-01-01T00:00:00.007Z"), "{text}");
        assert!(text.contains("by ops through sink shop: the shop moves"), "{text}");
    }
    screen.look.topics.push(topic("more", 1, None));
    assert!(drawn(&screen).contains("1 topic more paused"), "{}", drawn(&screen));
}

#[test]
fn a_sink_that_is_down_is_said_above_pauses_and_nothing_of_it_is_cut_in_a_narrow_terminal() {
    let mut screen = screen();
    let reason = "a long reason ".repeat(8) + "and its last word";
    screen.look.topics[0].pause.as_mut().unwrap().reason = Some(reason);
    let text = drawn_in(&screen, 80);
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(at("sink shop is down for 3 topics since") < at("mails is paused since"), "{text}");
    assert!(at("mails is paused since") < at("word") && at("word") < at("orders is paused since"), "{text}");
    assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
    assert_eq!(wrapped("none-of-it-is-a-gap 1", 10), ["none-of-it", "-is-a-gap", "1"]);
}

#[test]
fn a_node_that_answers_late_is_slow_and_what_is_shown_is_of_a_time() {
    let mut screen = screen();
    screen.waited = SLOW_AFTER;
    assert!(!drawn(&screen).contains("slow"), "{}", drawn(&screen));
    screen.waited = Duration::from_millis(5600);
    let text = drawn(&screen);
    assert!(text.contains("slow, 5.6 s without an answer; this is from 1970-01-01T00:00:10Z"), "{text}");
    screen.issue = Some("the node does not answer".to_owned());
    assert!(!drawn(&screen).contains("slow"), "{}", drawn(&screen));
}

#[test]
fn the_last_topic_is_chosen_where_those_below_went_away() {
    let mut screen = screen();
    let down = KeyEvent::new(KeyCode::Down, KeyModifiers::NONE);
    screen.press(down);
    screen.press(down);
    screen.look.topics.retain(|topic| topic.name != "mails");
    press(&mut screen, "\n");
    assert_eq!(screen.page, Page::Topic("pings".to_owned()));
    press(&mut screen, "t");
    screen.press(KeyEvent::new(KeyCode::Up, KeyModifiers::NONE));
    press(&mut screen, "\n");
    assert_eq!(screen.page, Page::Topic("orders".to_owned()));
}

#[test]
fn dead_letters_of_long_ago_colour_no_topic_and_new_ones_do() {
    let mut screen = screen();
    screen.look.topics.iter_mut().for_each(|topic| (topic.sink_issue, topic.oldest_due_at) = (None, None));
    assert!(screen.lines().iter().all(|line| line.colour().is_none()), "each has three");
    screen.look.rates.as_mut().unwrap().topics[0].dead = 0.1;
    let colours: Vec<_> = screen.lines().into_iter().map(|line| (line.colour(), line.name)).collect();
    assert_eq!(colours[..2], [(None, "mails".to_owned()), (Some(Color::Yellow), "orders".to_owned())]);
}

#[test]
fn rates_are_those_of_all_nodes_and_a_node_that_is_missing_in_them_is_named() {
    let mut screen = screen();
    assert!(!drawn(&screen).contains("without the rates"), "{}", drawn(&screen));
    let answered = |name: &str, answered| serde_json::json!({ "name": name, "answered": answered });
    let nodes = serde_json::json!([answered("n1", true), answered("n2", false)]);
    screen.look.rates.as_mut().unwrap().nodes = serde_json::from_value(nodes).unwrap();
    assert!(drawn(&screen).contains("without the rates of n2"), "{}", drawn(&screen));
}

#[test]
fn what_is_paused_waits_on_purpose_and_a_budget_is_overdrawn_by_more_than_one_of_a_thousand() {
    let mut screen = screen();
    screen.look.topics.iter_mut().for_each(|topic| topic.sink_issue = None);
    assert!(screen.lines().iter().all(|line| line.severity == 0), "each is paused");
    screen.look.topics[1].config.paused = false;
    assert_eq!(names(&screen), ["orders", "mails", "pings"], "one waits");
    let rates = &mut screen.look.rates.as_mut().unwrap().topics[0];
    (rates.deliveries_total, rates.late_total) = (10_000, 5);
    assert!(drawn(&screen).contains("50 %"), "{}", drawn(&screen));
    screen.look.rates.as_mut().unwrap().topics[0].late_total = 11;
    assert!(drawn(&screen).contains("overdrawn"), "{}", drawn(&screen));
}
