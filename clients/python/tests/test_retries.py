"""Calls through a network that delays, cuts and repeats, and to a node that restarts."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest
from rig import Rig, rig, until

import duetime
from duetime import NewMessage

PROBLEM = {"content-type": "application/problem+json"}
LATER = "1h"


def busy(**more: Any) -> dict[str, Any]:
    body = {"code": "busy", "detail": "come back", "title": "Service Unavailable", "status": 503}
    return {"status": 503, "headers": {**PROBLEM, "retry-after": "0"}, "body": body, **more}


def test_an_enqueue_whose_answer_is_lost_is_sent_again_and_stored_once(rig: Rig) -> None:
    topic = rig.create()
    rig.fault("cut_answer", "/messages")
    placed = topic.enqueue("x", delay=LATER)
    assert (placed.outcome, placed.repeated) == ("scheduled", True)
    assert len(rig.requests("/messages")) == 2 and topic.info().scheduled == 1


def test_a_lost_answer_to_an_enqueue_with_an_own_id_is_a_duplicate_that_says_so(rig: Rig) -> None:
    topic = rig.create()
    rig.fault("cut_answer", "/messages")
    placed = topic.enqueue("x", id="order-1", delay=LATER)
    assert (placed.outcome, placed.repeated) == ("duplicate", True)
    again = topic.enqueue("y", id="order-1", delay=LATER)
    assert (again.outcome, again.repeated) == ("duplicate", False)


def test_what_the_network_repeats_is_stored_once(rig: Rig) -> None:
    topic = rig.create()
    rig.fault("repeat", "/messages", times=2)
    topic.enqueue("x", delay=LATER)
    topic.enqueue_many([NewMessage(str(number), delay=LATER) for number in range(10)])
    assert topic.info().scheduled == 11


def test_a_connection_that_is_cut_and_a_node_that_is_busy_are_tried_again(rig: Rig) -> None:
    topic = rig.create()
    rig.fault("cut", "/messages")
    rig.fault("answer", "/messages", **busy())
    rig.fault("answer", "/messages", status=502, headers={"content-type": "text/html"}, body={})
    assert topic.enqueue("x", delay=LATER).outcome == "scheduled"
    assert [request.get("fault") for request in rig.requests("/messages")] == ["cut", "answer", "answer", None]


def test_the_last_error_is_raised_when_the_time_for_retries_is_over() -> None:
    with_none = rig(retry_for=0)
    topic = with_none.create()
    with_none.fault("answer", "/messages", **busy())
    with pytest.raises(duetime.ApiError) as refused:
        topic.enqueue("x")
    assert (refused.value.status, refused.value.code, refused.value.retryable) == (503, "busy", True)
    with_none.fault("cut_answer", "/messages")
    with pytest.raises(duetime.NoAnswer) as lost:
        topic.enqueue("x")
    assert lost.value.maybe_done


def test_items_and_then_requests_that_fail_are_sent_again_for_the_time_of_one_call() -> None:
    sent: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(time.monotonic())
        if len(sent) > 1:
            return httpx.Response(503, headers={**PROBLEM, "retry-after": "1"}, json=busy()["body"])
        # Most of the time is over when the item fails, and then the requests fail.
        time.sleep(4.5)
        return httpx.Response(200, json={"results": [{"error": {"code": "busy", "detail": "x", "index": 0}}]})

    node = duetime.Duetime("http://node", retry_for=7.5, http=httpx.Client(transport=httpx.MockTransport(answer)))
    with pytest.raises(duetime.ApiError):
        node.topic("orders").ack(["a"])
    assert time.monotonic() - sent[0] < 10.5


def test_a_claim_that_failed_after_its_acks_says_when_to_come_back(rig: Rig) -> None:
    topic = rig.create()
    body = {"messages": [], "results": [{"outcome": "ok", "id": "a"}], "error": busy()["body"]}
    headers = {"content-type": "application/json", "retry-after": "7"}
    rig.fault("answer", "/claim", status=200, headers=headers, body=body)
    claimed = topic.claim(ack=["a"])
    assert claimed.error is not None and claimed.error.retry_after == 7


def test_a_refusal_is_raised_at_once(rig: Rig) -> None:
    with pytest.raises(duetime.ApiError) as refused:
        rig.topic.enqueue("x")
    assert (refused.value.status, refused.value.code) == (404, "unknown_topic")
    assert len(rig.requests("/messages")) == 1


def test_a_cancel_whose_answer_is_lost_says_that_it_may_have_been_done(rig: Rig) -> None:
    topic = rig.create()
    topic.enqueue("x", id="order-1", delay=LATER)
    rig.fault("cut_answer", "/cancel")
    cancelled = topic.cancel("order-1")
    assert (cancelled.outcome, cancelled.repeated) == ("unknown", True)
    assert topic.cancel("nobody").repeated is False and topic.info().scheduled == 0


def test_an_extension_whose_answer_is_lost_is_sent_again_and_gives_the_receipt_that_settles(rig: Rig) -> None:
    topic = rig.create()
    topic.enqueue("x")
    (message,) = topic.claim(wait=5)
    rig.fault("cut_answer", "/extend")
    (extended,) = topic.extend([message.receipt])
    assert isinstance(extended, duetime.Settled) and extended.outcome == "ok" and extended.receipt
    (acked,) = topic.ack([extended.receipt])
    assert isinstance(acked, duetime.Settled) and acked.outcome == "ok"
    assert len(rig.requests("/extend")) == 2


def test_items_that_failed_for_a_passing_reason_are_sent_again_alone(rig: Rig) -> None:
    topic = rig.create()
    failed = {"id": "b", "error": {"code": "store_unavailable", "detail": "x", "index": 1}}
    refused = {"id": "c", "error": {"code": "invalid_id", "detail": "x", "index": 2, "field": "id"}}
    body = {"results": [{"id": "a", "outcome": "scheduled", "shard": 0}, failed, refused]}
    rig.fault("answer", "/messages", status=200, headers={"content-type": "application/json"}, body=body)
    results = topic.enqueue_many([NewMessage(id=id, delay=LATER) for id in "abc"])
    assert [getattr(result, "outcome", result) for result in results] == [
        "scheduled",
        "scheduled",
        duetime.ItemError("invalid_id", "x", 2, False, "c", "id"),
    ]
    assert [each["id"] for each in rig.bodies("/messages")[1]] == ["b"]


def test_every_request_that_changes_something_says_until_when_it_is_waited_for(rig: Rig) -> None:
    topic = rig.create()
    topic.enqueue("x", id="a", delay=LATER)
    topic.reschedule("a", delay=LATER)
    topic.get("a")
    topic.cancel("a")
    topic.claim()
    topic.delete()
    for request in rig.requests(""):
        assert ("duetime-not-after" in request["headers"]) == (request["method"] != "GET"), request


def test_what_comes_after_its_time_is_not_carried_out() -> None:
    hasty = rig(timeout=0.4, retry_for=0)
    topic = hasty.create()
    hasty.fault("late", "/messages", seconds=1.0)
    with pytest.raises(duetime.NoAnswer):
        topic.enqueue("x", id="a", delay=LATER)
    until(lambda: "status" in hasty.requests("/messages")[0], "the late request is answered")
    assert hasty.requests("/messages")[0]["status"] == 412
    assert hasty.beside.get("a") is None


def test_an_answer_that_is_none_of_a_node_is_named(rig: Rig) -> None:
    rig.fault("answer", "/messages", status=200, headers={"content-type": "text/html"}, body={})
    with pytest.raises(duetime.ForeignAnswer, match="is the address right"):
        rig.create().enqueue("x")


def test_a_stream_goes_in_batches_and_one_bad_message_takes_no_other_along(rig: Rig) -> None:
    topic = rig.create()
    sent: list[int] = []

    def messages() -> Any:
        for number in range(1200):
            sent.append(number)
            yield NewMessage(str(number), id="a\x01" if number == 700 else f"m-{number}", delay=LATER)

    results = topic.enqueue_stream(messages())
    first = next(results)
    assert isinstance(first, duetime.Enqueued) and first.id == "m-0" and len(sent) == 500
    rest = list(results)
    bad = rest[699]
    assert isinstance(bad, duetime.ItemError) and (bad.index, bad.code) == (700, "invalid_id")
    assert [result.id for result in rest if isinstance(result, duetime.Enqueued)] == [
        f"m-{number}" for number in range(1, 1200) if number != 700
    ]
    assert topic.info().scheduled == 1199 and [len(body) for body in rig.bodies("/messages")] == [500, 500, 200]
    # An array is refused whole and early, and not begun after its time; a stream of lines is not.
    assert {each["headers"]["content-type"] for each in rig.requests("/messages")} == {"application/json"}


def test_a_batch_is_no_larger_than_a_node_takes_and_what_is_too_large_alone_takes_no_other_along(rig: Rig) -> None:
    topic = rig.create(max_payload=1_000_000)
    large, small = "x" * 700_000, NewMessage("x", id="small", delay=LATER)
    results = topic.enqueue_many([small, *(NewMessage(large, id=id, delay=LATER) for id in "ab")])
    assert [getattr(result, "id", result) for result in results] == ["small", "a", "b"]
    assert [[each["id"] for each in body] for body in rig.bodies("/messages")] == [["small", "a"], ["b"]]
    body = {"code": "body_too_large", "detail": "too large", "status": 413}
    rig.fault("answer", "/messages", status=413, headers=PROBLEM, body=body)
    results = topic.enqueue_many([NewMessage(large * 2, id="huge", delay=LATER), small])
    assert results[0] == duetime.ItemError("body_too_large", "too large", 0, False, "huge")
    assert isinstance(results[1], duetime.Enqueued) and results[1].outcome == "duplicate"


def test_no_message_is_lost_or_stored_twice_while_the_node_restarts(rig: Rig) -> None:
    topic = rig.create()
    outcomes: list[str] = []

    def enqueue(begin: int) -> None:
        for number in range(begin, begin + 100):
            outcomes.append(topic.enqueue("x", delay=LATER).outcome)
            if number == 20:
                rig.node_does("restart")

    threads = [threading.Thread(target=enqueue, args=[begin]) for begin in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["scheduled"] * 300
    assert rig.beside.info().scheduled == 300
