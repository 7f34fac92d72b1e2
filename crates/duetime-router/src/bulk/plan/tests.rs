//! What a plan may act on, whatever nodes end over its pages.

use duetime_core::Memory;

use super::undo::{UNDO_LOST_MS, UNDO_MS, UndoState};
use super::*;

fn plan() -> BulkPlan {
    serde_json::from_value(serde_json::json!({
        "id": "p", "topic": "orders", "life": 1, "action": "cancel", "to": null, "filter": { "prefix": "" },
        "per_second": 10, "created_at": 0, "by": null, "state": "running", "number": 1, "node": null,
        "held_until": 0, "cursor": null, "epoch": 1, "passes": 0, "expected": 4, "counted_all": true,
        "samples": [], "open": 0, "counts": PlanCounts::default(), "failures": [], "trouble": null,
        "started_at": null, "ended_at": null
    }))
    .unwrap()
}

fn ids(names: &[&str]) -> Vec<MessageId> {
    names.iter().map(|name| MessageId::new(name).unwrap()).collect()
}

fn carried_out(plan: &mut BulkPlan, names: &[&str]) {
    plan.open_page(&ids(names));
    plan.close_page();
    names.iter().for_each(|name| plan.record(name, &ItemOutcome::Done));
}

#[test]
fn each_message_has_one_outcome_however_many_nodes_ended_over_its_page() {
    let mut plan = plan();
    carried_out(&mut plan, &["a", "b"]);
    plan.open_page(&ids(&["c", "d", "e"]));
    assert_eq!(plan.acted_on(), 5, "a page that is open counts");
    // Its node ends after `c`: two are met again, and the next node ends over them.
    plan.take("second", 0);
    assert_eq!((plan.counts.unrecorded, plan.acted_on()), (3, 5));
    plan.open_page(&ids(&["d", "e"]));
    assert_eq!((plan.counts.unrecorded, plan.acted_on()), (1, 5));
    plan.take("third", 0);
    assert_eq!((plan.counts.unrecorded, plan.acted_on()), (3, 5));
    carried_out(&mut plan, &["e", "f"]);
    plan.end(PlanState::Done, 0);
    let PlanCounts { done, unrecorded, .. } = plan.counts;
    assert_eq!((done, unrecorded, plan.acted_on()), (4, 2, 6), "c and d took effect unrecorded");
}

#[test]
fn a_plan_that_was_stopped_over_an_open_page_goes_on_with_what_it_lost() {
    let mut plan = plan();
    plan.open_page(&ids(&["a", "b"]));
    plan.end(PlanState::Stopped, 0);
    assert_eq!((plan.counts.unrecorded, plan.open), (2, 0));
    plan.start(1, PlanStart::default()).unwrap();
    plan.take("second", 1);
    carried_out(&mut plan, &["a", "b", "c"]);
    assert_eq!((plan.counts.done, plan.counts.unrecorded), (3, 0));
}

#[test]
fn as_many_are_acted_on_as_were_agreed_to_and_what_was_lost_is_met_again() {
    let mut plan = BulkPlan { at_most: Some(3), ..plan() };
    carried_out(&mut plan, &["a"]);
    assert_eq!(plan.agreed(ids(&["b", "c", "d"])), ids(&["b", "c"]));
    // Its node ends over these two, after `b`; before `c` there is a new one.
    plan.open_page(&ids(&["b", "c"]));
    plan.take("second", 0);
    assert!(!plan.is_used_up(), "c may have to be carried out");
    assert_eq!(plan.agreed(ids(&["new", "c", "d"])), ids(&["c"]));
    carried_out(&mut plan, &["c"]);
    assert_eq!((plan.counts.done, plan.counts.unrecorded, plan.acted_on()), (2, 1, 3));
    assert!(plan.agreed(ids(&["d"])).is_empty());
}

#[test]
fn a_plan_that_cannot_be_taken_back_says_why() {
    let hour = Memory { window: std::time::Duration::from_secs(3600), since: 1, watermark: false };
    let mut plan = BulkPlan { state: PlanState::Planned, ..plan() };
    let why = |plan: &BulkPlan, now: i64| plan.why_not_undo(now).unwrap_or_default();
    assert!(why(&plan, 0).contains("\"undoable\": true"));
    plan.make_undoable(Memory { window: std::time::Duration::from_secs(599), since: 1, watermark: false });
    assert!(why(&plan, 0).contains("\"remember\"") && !plan.keeps());
    plan.keep_at("n1/a");
    assert!(!plan.keeps(), "that is found out when it is planned");
    plan.make_undoable(hour);
    assert!(why(&plan, 0).contains("not started") && plan.keeps());
    plan.state = PlanState::Running;
    plan.take("n1/a", 0);
    assert!(why(&plan, 0).contains("stop it first"));
    plan.offer_undo("n1/a", 1000, &[]);
    plan.end(PlanState::Done, 1000);
    assert!(why(&plan, 1000).contains("was kept"));
    let undo = plan.undo.as_mut().unwrap();
    undo.state = UndoState::Keeping;
    plan.offer_undo("n1/a", 1000, &[5, 61_000, i64::MAX]);
    assert_eq!(plan.why_not_undo(1000 + UNDO_MS - 1), None);
    assert!(plan.ask_undo(1000 + UNDO_MS, None).unwrap_err().contains("ten minutes ago"));
    let undo = plan.undo.clone().unwrap();
    assert_eq!([0, 1000, 1001, 61_000, i64::MAX / 2].map(|now| undo.due_at_once(now)), [1, 1, 2, 2, 2]);
    plan.ask_undo(2000, Some("who")).unwrap();
    plan.ask_undo(1000 + UNDO_MS, Some("another")).unwrap();
    assert_eq!(plan.undo.as_ref().unwrap().by.as_deref(), Some("who"), "asked again, nothing changes");
    assert!(plan.start(3000, PlanStart::default()).unwrap_err().contains("taken back"));
    // What another node kept is lost, and a next life of it knows.
    let asked = plan.undo.as_ref().unwrap();
    assert!(!asked.is_abandoned("n2/a", 2000 + UNDO_LOST_MS) && asked.is_abandoned("n2/a", 2001 + UNDO_LOST_MS));
    assert!(!asked.is_abandoned("n1/a", 2000) && asked.is_abandoned("n1/b", 2000));
    plan.keep_at("n2/a");
    assert_eq!((plan.undo.as_ref().unwrap().kept, plan.keeps()), (0, true));
}
