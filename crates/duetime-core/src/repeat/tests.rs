//! Rules of series: what is refused, when the next one falls due, and clocks that are put forward and back.

use super::*;
use crate::units::parse_time;
use proptest::prelude::*;

fn at(text: &str) -> Timestamp {
    parse_time(text).unwrap()
}

fn cron(text: &str, zone: &str) -> RepeatAsk {
    RepeatAsk { cron: Some(text.to_owned()), time_zone: Some(zone.to_owned()), ..RepeatAsk::default() }
}

fn every(seconds: u64) -> RepeatAsk {
    RepeatAsk { every: Some(Duration::from_secs(seconds)), ..RepeatAsk::default() }
}

/// The next due times of a series each of whose messages is settled at its due time.
fn times(ask: &RepeatAsk, now: &str, count: usize) -> Vec<String> {
    let mut repeat = ask.first(None, at(now)).unwrap();
    let mut all = vec![repeat.at.to_string()];
    while all.len() < count
        && let Some(next) = repeat.next(repeat.at, repeat.at)
    {
        all.push(next.at.to_string());
        repeat = next;
    }
    all
}

fn moments(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| at(text).to_string()).collect()
}

#[test]
fn what_is_kept_is_read_again_and_what_somebody_else_wrote_repeats_nothing() {
    let given = Headers::new(vec![("shop".to_owned(), "7".to_owned())]).unwrap();
    let now = at("2026-11-27T12:00:00Z");
    let whole = RepeatAsk {
        until: Some(at("2027-01-01T00:00:00Z")),
        times: Some(3),
        missed: Some(Missed::Once),
        ..cron("0 9 * * MON-FRI", "Europe/Berlin")
    };
    for ask in [every(3_600), whole, cron("*/5 * * * *", "UTC")] {
        let repeat = ask.first(None, now).unwrap();
        let kept = repeat.kept_in(&given);
        assert_eq!((Repeat::of(&kept).as_ref(), kept.len()), (Some(&repeat), 2));
        assert_eq!(repeat.kept_in(&kept).len(), 2, "once");
        assert!(kept.bytes() < crate::limits::OWN_HEADER_BYTES_MAX);
        assert_eq!(kept.delivered().count(), 1, "whoever is handed the message does not see it");
    }
    assert_eq!(Repeat::of(&given), None);
    for strange in
        ["", "at=5", "every=5", "at=5;every=999;start=5", "at=5;every=5;start=5;cron=* * * * *;zone=UTC", "x=1"]
    {
        let headers = Headers::from_stored(vec![(REPEAT.to_owned(), strange.to_owned())]);
        assert_eq!(Repeat::of(&headers), None, "{strange:?}");
    }
}

#[test]
fn a_header_by_which_nothing_would_follow_is_refused_and_one_that_was_kept_is_not() {
    let now = at("2026-11-27T12:00:00Z");
    assert_eq!(Repeat::check(&Headers::default()), Ok(()));
    for ask in [every(3_600), RepeatAsk { times: Some(1), ..every(1) }, cron("0 9 * * MON-FRI", "Europe/Berlin")] {
        let kept = ask.first(None, now).unwrap().kept_in(&Headers::default());
        assert_eq!(Repeat::check(&kept), Ok(()), "{ask:?}");
    }
    for strange in [
        "1h",
        "every=1h",
        "at=5;every=999;start=5",
        "at=5;every=1000;start=-1",
        "at=9223372036854775807;every=1000;start=5",
        "at=5;cron=0 0 30 2 *;zone=UTC",
        "at=5;cron=daily;zone=UTC",
        "at=5;cron=0 9 * * *;zone=Nowhere",
    ] {
        let headers = Headers::new(vec![(REPEAT.to_owned(), strange.to_owned())]).unwrap();
        let refused = Repeat::check(&headers).expect_err(strange);
        assert!(refused.contains("\"duetime-repeat\"") && refused.contains("give \"repeat\""), "{refused}");
    }
}

/// A header that somebody wrote by hand.
#[test]
fn a_time_that_no_store_keeps_ends_a_series() {
    let now = Timestamp::from_millis(5);
    let (least, most) = (i64::MIN, i64::MAX);
    for (at, start) in [(5, most), (5, least), (most, 5), (least, least), (5, LATEST.as_millis() + 1)] {
        let text = format!("at={at};every=1000;start={start}");
        let headers = Headers::from_stored(vec![(REPEAT.to_owned(), text.clone())]);
        assert_eq!(Repeat::of(&headers).unwrap().next(now, now), None, "{text}");
    }
}

#[test]
fn the_first_is_due_when_its_producer_says_or_else_at_the_first_time_of_the_rule() {
    let (now, given) = (at("2026-11-27T12:00:30Z"), at("2026-11-27T12:10:00Z"));
    assert_eq!(every(60).first(None, now).unwrap().at, at("2026-11-27T12:01:30Z"));
    assert_eq!(every(60).first(Some(given), now).unwrap().at, given);
    assert_eq!(cron("0 9 * * *", "UTC").first(None, now).unwrap().at, at("2026-11-28T09:00:00Z"));
    let first = cron("0 9 * * *", "UTC").first(Some(given), now).unwrap();
    assert_eq!(first.at, given);
    assert_eq!(first.next(given, given).unwrap().at, at("2026-11-28T09:00:00Z"));
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_with_its_field() {
    let now = at("2026-11-27T12:00:00Z");
    let berlin = |text: &str| cron(text, "Europe/Berlin");
    let cases = [
        ("every", RepeatAsk::default()),
        ("every", RepeatAsk { every: Some(Duration::from_millis(999)), ..RepeatAsk::default() }),
        ("every", RepeatAsk { every: Some(DUE_AHEAD_MAX + Duration::from_secs(1)), ..RepeatAsk::default() }),
        ("cron", RepeatAsk { cron: Some("* * * * *".to_owned()), ..every(60) }),
        ("time_zone", RepeatAsk { time_zone: Some("UTC".to_owned()), ..every(60) }),
        ("cron", berlin("0 9 * *")),
        ("cron", berlin("0 0 9 * * *")),
        ("cron", berlin("61 * * * *")),
        ("cron", berlin("0 9 * * ;")),
        ("cron", berlin("0 0 30 2 *")),
        ("cron", berlin(&format!("{} * * * *", "0,".repeat(70)))),
        ("time_zone", cron("0 9 * * *", "Europe/Nowhere")),
        ("time_zone", cron("0 9 * * *", "")),
        ("time_zone", cron("0 9 * * *", "../etc/passwd")),
        ("until", RepeatAsk { until: Some(now), ..every(60) }),
        ("times", RepeatAsk { times: Some(0), ..every(60) }),
        ("times", RepeatAsk { times: Some(1 << 32), ..every(60) }),
    ];
    for (field, ask) in cases {
        let error = ask.first(None, now).expect_err("it is refused");
        assert_eq!(error.field, field, "{ask:?}: {error}");
        assert!(
            error.to_string().contains("give") || error.to_string().contains("leave") || field == "cron",
            "{error}"
        );
    }
}

#[test]
fn a_rule_of_cron_that_no_date_matches_is_refused_and_every_other_has_a_time() {
    let never = [
        "0 0 30 2 *",
        "0 0 31 2 *",
        "0 0 30,31 2 *",
        "0 0 30-31 FEB *",
        "0 0 31 4 *",
        "0 0 31 4,6 *",
        "0 0 31 2,4,6,9,11 *",
        "*/5 9-17 31 9 *",
        "0 0 30W 2 *",
        "0 0 31W 11 *",
        "0 0 1-7 * +MON#2",
        "0 0 31 * +MON#1",
        "0 0 30 2 +MON",
        "0 0 28 2 +FRI#5",
        ", * * * *",
        "* , * * *",
        "* * , * *",
        "* * * , *",
        "* * * * ,",
    ];
    for text in never {
        let error = Cron::read(text, "Europe/Berlin").expect_err(text);
        assert_eq!(error.field, "cron", "{text}");
        assert!(error.detail.contains("no time that will ever be; give five fields"), "{text}: {error}");
    }
    let days = ["1", "28", "29", "30", "31", "1,31", "29-31", "*/10", "L", "LW", "15W"];
    let by_day = days.iter().flat_map(|day| ["1", "1,2", "2,3", "*"].map(|months| format!("0 9 {day} {months} *")));
    let others = [
        "* * * * *",
        "*/5 * * * *",
        "0 9 * * MON-FRI",
        "0 0 29 2 *",
        "0 0 28 2 *",
        "0 0 28-31 2 *",
        "0 0 30 4 *",
        "0 0 30 2,4 *",
        "0 0 31 2,3 *",
        // Either field is enough.
        "0 0 30 2 MON",
        "0 0 31 4 */1",
        "0 0 31 4 SUN#5",
        "0 0 31 6 FRIL",
        // Both are needed.
        "0 0 29 2 +MON",
        "0 0 29 2 +FRI#5",
        "0 0 L 2 +FRI#4",
        "0 0 13 * +FRI",
        "0 0 ? * ?",
        "59 23 31 12 *",
        "0 0 * 2 MON#5",
    ];
    for text in others.map(str::to_owned).into_iter().chain(by_day) {
        let rule = Cron::read(&text, "Europe/Berlin").expect(&text);
        assert!(rule.after(at("2026-11-27T12:00:00Z")).is_some(), "{text}");
    }
}

#[test]
fn the_number_and_the_end_of_a_series_are_kept() {
    let thrice = RepeatAsk { times: Some(3), ..every(60) };
    assert_eq!(times(&thrice, "2026-11-27T12:00:00Z", 9).len(), 3);
    let ends = RepeatAsk { until: Some(at("2026-11-27T12:02:00Z")), ..every(60) };
    assert_eq!(
        times(&ends, "2026-11-27T12:00:00Z", 9),
        moments(&["2026-11-27T12:01:00Z", "2026-11-27T12:02:00Z"]),
        "the last one is for the very moment"
    );
}

#[test]
fn times_that_passed_are_left_out_or_come_as_one() {
    let (start, late) = (at("2026-11-27T12:00:00Z"), at("2026-11-27T15:20:00Z"));
    let hourly = every(3_600).first(Some(start), start).unwrap();
    assert_eq!(hourly.next(start, late).unwrap().at, at("2026-11-27T16:00:00Z"));
    assert_eq!(hourly.next(start, start).unwrap().at, at("2026-11-27T13:00:00Z"), "none was missed");
    let once = Repeat { missed: Missed::Once, ..hourly.clone() };
    let next = once.next(start, late).unwrap();
    assert_eq!(next.at, at("2026-11-27T15:00:00Z"), "due at once");
    assert_eq!(next.next(next.at, late).unwrap().at, at("2026-11-27T16:00:00Z"), "then as the rule says");
    assert_eq!(once.next(start, start).unwrap().at, at("2026-11-27T13:00:00Z"), "none was missed");
    let ended = Repeat { until: Some(at("2026-11-27T14:30:00Z")), ..once };
    assert_eq!(ended.next(start, late).unwrap().at, at("2026-11-27T14:00:00Z"), "the last of those that were missed");
    let berlin = RepeatAsk { missed: Some(Missed::Once), ..cron("0 * * * *", "Europe/Berlin") };
    let berlin = berlin.first(Some(start), start).unwrap();
    assert_eq!(berlin.next(start, late).unwrap().at, at("2026-11-27T15:00:00Z"));
}

#[test]
fn a_message_that_was_moved_leaves_the_others_where_the_rule_has_them() {
    let start = at("2026-11-27T12:00:00Z");
    let hourly = every(3_600).first(Some(start), start).unwrap();
    let (early, later) = (at("2026-11-27T11:10:00Z"), at("2026-11-27T14:30:00Z"));
    assert_eq!(hourly.next(early, early).unwrap().at, at("2026-11-27T13:00:00Z"), "its own time does not come again");
    assert_eq!(hourly.next(later, later).unwrap().at, at("2026-11-27T15:00:00Z"), "it stands for those it passed");
}

/// 2026-03-29 02:00 to 03:00 does not exist in Berlin; 2026-10-25 02:00 to 03:00 comes twice.
#[test]
fn where_clocks_are_put_forward_a_time_that_does_not_exist_is_the_first_moment_behind_the_gap() {
    let daily = cron("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        times(&daily, "2026-03-27T12:00:00Z", 3),
        moments(&["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"])
    );
    let twice = cron("0,30 2 * * *", "Europe/Berlin");
    assert_eq!(
        times(&twice, "2026-03-28T12:00:00Z", 2),
        moments(&["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
        "both are that moment"
    );
    let ranges = cron("30 1-3 * * *", "Europe/Berlin");
    assert_eq!(
        times(&ranges, "2026-03-28T12:00:00Z", 3),
        moments(&["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"])
    );
    let hourly = cron("30 * * * *", "Europe/Berlin");
    assert_eq!(
        times(&hourly, "2026-03-29T00:00:00Z", 3),
        moments(&["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"]),
        "each hour goes on"
    );
}

#[test]
fn where_clocks_are_put_back_a_time_that_comes_twice_counts_once() {
    let daily = cron("30 2 * * *", "Europe/Berlin");
    assert_eq!(times(&daily, "2026-10-24T12:00:00Z", 2), moments(&["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]));
    let twice = cron("0,30 2 * * *", "Europe/Berlin");
    assert_eq!(
        times(&twice, "2026-10-24T12:00:00Z", 3),
        moments(&["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z"])
    );
    let rule = Cron::read("0,30 2 * * *", "Europe/Berlin").unwrap();
    assert_eq!(
        rule.last(at("2026-10-25T01:10:00Z")),
        Some(at("2026-10-25T00:30:00Z")),
        "in the second of the two hours"
    );
    assert_eq!(rule.last(at("2026-10-25T00:10:00Z")), Some(at("2026-10-25T00:00:00Z")));
    let hourly = cron("30 * * * *", "Europe/Berlin");
    assert_eq!(
        times(&hourly, "2026-10-25T00:00:00Z", 3),
        moments(&["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]),
        "each hour goes on"
    );
}

#[test]
fn the_same_wall_clock_through_a_year_in_both_halves_of_the_earth() {
    for zone in ["Europe/Berlin", "America/New_York", "Australia/Sydney", "Asia/Kolkata", "America/Santiago"] {
        let days = times(&cron("0 9 * * *", zone), "2026-01-01T00:00:00Z", 366);
        let all: std::collections::BTreeSet<&String> = days.iter().collect();
        assert_eq!((days.len(), all.len()), (366, 366), "{zone}");
    }
}

#[test]
fn who_makes_the_successor_of_a_message_makes_the_same() {
    let start = at("2026-11-27T12:00:00Z");
    let headers = every(60).first(Some(start), start).unwrap().kept_in(&Headers::default());
    let payload = Bytes::from_static(b"x");
    let make = |now| Successor::of((&headers, &payload), (start, Nonce(7)), End::Delivered, now).unwrap();
    assert_eq!(make(start), make(start.plus(Duration::from_secs(59))), "however late within the same turn");
    let next = make(start);
    assert_ne!(next.nonce, Nonce(7));
    let after = Successor::of((&next.headers, &next.payload), (next.due_at, next.nonce), End::Delivered, next.due_at);
    assert_ne!(after.unwrap().nonce, next.nonce);
    let plain = Headers::default();
    assert_eq!(Successor::of((&plain, &payload), (start, Nonce(7)), End::Delivered, start), None);
}

proptest! {
    #[test]
    fn the_next_is_a_later_time_of_the_rule_and_never_before_the_present_where_it_skips(
        every_s in 1u64..100_000, settled_s in 0u64..1_000_000, once: bool,
    ) {
        let start = Timestamp::from_millis(1_800_000_000_000);
        let mut repeat = every(every_s).first(Some(start), start).unwrap();
        repeat.missed = if once { Missed::Once } else { Missed::Skip };
        let now = start.plus(Duration::from_secs(settled_s));
        let next = repeat.next(start, now).unwrap();
        prop_assert!(next.at > start);
        prop_assert_eq!(next.at.since(start).as_secs() % every_s, 0);
        prop_assert!(next.at > now || (once && now.since(next.at).as_secs() < every_s));
    }

    #[test]
    fn what_is_read_of_a_header_is_never_a_panic(text in "[a-z0-9=;*/ -]{0,80}") {
        let headers = Headers::from_stored(vec![(REPEAT.to_owned(), text)]);
        if let Some(repeat) = Repeat::of(&headers) {
            let _ = repeat.next(Timestamp::ZERO, Timestamp::from_millis(1_800_000_000_000));
        }
    }
}
