"""Consumers of both kinds: heartbeats, settlements, lost claims, stops, restarts, and a change of the shard count."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from rig import Consumer, Pause, Rig, until

import duetime
from duetime import NewMessage

both = pytest.mark.parametrize("kind", ["sync", "async"])


def enqueue(rig: Rig, count: int) -> set[str]:
    results = rig.beside.enqueue_many([NewMessage({"n": number}, id=f"m-{number}") for number in range(count)])
    assert all(isinstance(result, duetime.Enqueued) for result in results)
    return {f"m-{number}" for number in range(count)}


def is_empty(rig: Rig) -> bool:
    info = rig.beside.info()
    return info.scheduled + info.in_flight + info.dead == 0


@both
def test_what_is_due_is_handled_once_and_no_more_is_claimed_than_slots_are_free(rig: Rig, kind: str) -> None:
    rig.create()
    wanted, handled, lock, held, most = enqueue(rig, 60), list[str](), threading.Lock(), 0, 0

    async def handle(delivery: Any, pause: Pause) -> None:
        nonlocal held, most
        with lock:
            held += 1
            most = max(most, held)
        await pause(0.02)
        with lock:
            held -= 1
            handled.append(delivery.id)
        assert delivery.json()["n"] == int(delivery.id[2:]) and delivery.attempt == 1

    with Consumer(kind, rig, handle, concurrency=7):
        until(lambda: is_empty(rig), "all are acked")
    assert sorted(handled) == sorted(wanted) and 1 < most <= 7
    assert all(body["max"] <= 7 for body in rig.bodies("/claim"))


@both
def test_a_long_handler_keeps_its_claim(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 2)
    attempts: list[int] = []

    async def handle(delivery: Any, pause: Pause) -> None:
        attempts.append(delivery.attempt)
        await pause(10.0)
        assert not delivery.is_lost

    # The first beat is cut off; the next one is in time.
    rig.fault("cut", "/extend")
    with Consumer(kind, rig, handle, visibility=6.0) as consumer:
        until(lambda: is_empty(rig), "both are acked")
    assert attempts == [1, 1] and consumer.lost == []
    assert len(rig.requests("/extend")) >= 3


@both
def test_an_ack_waits_for_the_extension_that_is_under_way(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 1)
    verdicts: list[str] = []

    async def handle(delivery: Any, pause: Pause) -> None:
        while not rig.requests("/extend"):
            await pause(0.01)
        verdicts.append(await delivery.ack())

    rig.fault("delay_answer", "/extend", seconds=0.4)
    with Consumer(kind, rig, handle, visibility=6.0) as consumer:
        until(lambda: is_empty(rig), "it is acked")
    assert verdicts == ["ok"] and consumer.lost == []
    assert rig.bodies("/ack")[0]["receipts"] != rig.bodies("/extend")[0]["receipts"]


@both
def test_a_handler_that_raises_is_a_nack_with_its_reason(rig: Rig, kind: str) -> None:
    rig.create(retry={"max_attempts": 1})
    enqueue(rig, 1)

    async def handle(delivery: Any, pause: Pause) -> None:
        raise RuntimeError("no such order")

    with Consumer(kind, rig, handle):
        until(lambda: rig.beside.info().dead == 1, "it is a dead letter")
    message = rig.beside.get("m-0")
    assert message is not None and message.death is not None
    assert "RuntimeError: no such order" in message.death.reason


@both
def test_a_reason_that_is_not_unicode_or_cannot_be_had_is_a_nack_all_the_same(rig: Rig, kind: str) -> None:
    rig.create(retry={"max_attempts": 1})
    enqueue(rig, 2)

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    async def handle(delivery: Any, pause: Pause) -> None:
        # Half of a pair, and both halves of one.
        raise RuntimeError("half \ud83d, whole \ud83d\ude00") if delivery.id == "m-0" else Mute

    with Consumer(kind, rig, handle):
        until(lambda: rig.beside.info().dead == 2, "they are dead letters")
    reasons = [message.death.reason for id in ("m-0", "m-1") if (message := rig.beside.get(id)) and message.death]
    assert "half \ufffd, whole \U0001f600" in reasons[0] and "Mute" in reasons[1]


@both
def test_a_nack_with_a_delay_is_not_undone_by_a_beat(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 1)
    verdicts: list[str] = []

    async def handle(delivery: Any, pause: Pause) -> None:
        verdicts.append(await delivery.nack(delay="1h", reason="not yet"))
        await pause(4.5)

    with Consumer(kind, rig, handle, visibility=9.0) as consumer:
        until(lambda: verdicts, "it is nacked")
    message = rig.beside.get("m-0")
    assert message is not None and message.state == "scheduled" and consumer.lost == []
    assert verdicts == ["ok"] and rig.requests("/extend") == [] and rig.requests("/ack") == []


def waits_for_its_end(ends: list[str], begun: threading.Event | None = None) -> Any:
    async def handle(delivery: Any, pause: Pause) -> None:
        if begun is not None:
            begun.set()
        try:
            while not delivery.is_lost:
                await pause(0.05)
            ends.append("looked")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    return handle


@both
def test_a_handler_of_a_message_that_is_cancelled_is_stopped(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 1)
    ends: list[str] = []
    begun = threading.Event()
    with Consumer(kind, rig, waits_for_its_end(ends, begun), visibility=2.4) as consumer:
        until(begun.is_set, "its handler has begun")
        assert rig.beside.cancel("m-0").outcome == "in_flight"
        until(lambda: ends, "the handler ends")
    assert consumer.lost == ["cancelled"]
    assert ends == ["looked" if kind == "sync" else "cancelled"]
    assert rig.requests("/ack") == [] and rig.requests("/nack") == []


@both
def test_a_handler_whose_claim_runs_out_is_stopped(rig: Rig, kind: str) -> None:
    rig.create(retry={"initial": "1h", "max": "1h"})
    enqueue(rig, 1)
    ends: list[str] = []
    rig.fault("cut", "/extend", times=1000)
    with Consumer(kind, rig, waits_for_its_end(ends), visibility=1.8) as consumer:
        until(lambda: ends, "the handler ends")
        until(lambda: consumer.lost, "it is said")
    assert consumer.lost == ["expired"] and len(rig.requests("/extend")) > 1
    assert rig.requests("/ack") == [] and rig.requests("/nack") == []


@both
def test_what_comes_after_its_claim_is_over_is_lost_and_not_handled(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 1)
    handled: list[str] = []

    async def handle(delivery: Any, pause: Pause) -> None:
        handled.append(delivery.id)

    rig.fault("delay_answer", "/claim", seconds=1.5)
    with Consumer(kind, rig, handle, visibility=1.2) as consumer:
        until(lambda: is_empty(rig), "it is acked")
    assert handled == ["m-0"] and consumer.lost == ["expired"]
    assert len(rig.requests("/release")) == 1


@both
def test_what_falls_due_late_in_a_claim_that_waits_longer_than_its_visibility_is_kept(rig: Rig, kind: str) -> None:
    rig.create()
    rig.beside.enqueue(id="late", delay="6s")
    attempts: list[int] = []

    async def handle(delivery: Any, pause: Pause) -> None:
        attempts.append(delivery.attempt)
        await pause(0.5)

    with Consumer(kind, rig, handle, visibility=4.0, wait=20.0) as consumer:
        until(lambda: attempts and is_empty(rig), "it is acked")
    assert attempts == [1] and consumer.lost == []


@both
def test_a_consumer_that_has_a_name_says_it_in_its_claims(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 2)

    async def handle(delivery: Any, pause: Pause) -> None:
        await pause(0.1)

    with Consumer(kind, rig, handle, concurrency=1, consumer="worker-1"):
        until(lambda: is_empty(rig), "both are acked")
    assert {body["consumer"] for body in rig.bodies("/claim")} == {"worker-1"}
    rig.topic.claim()
    assert "consumer" not in rig.bodies("/claim")[-1]


def test_a_claim_over_several_topics_says_whose_messages_it_has_and_which_topics_failed(rig: Rig) -> None:
    rig.create()
    enqueue(rig, 2)
    topics = {rig.name: 1, f"{rig.name}-none": 1000}
    messages: list[duetime.ClaimedMessage] = []
    failed: list[duetime.ClaimFailure] = []
    while len(messages) < 2 or not failed:
        ack = [message.receipt for message in messages[-1:]]
        claimed = rig.node.claim_any(topics, 1, wait=0.1, visibility="5m", ack=ack, consumer="worker-1")
        outcomes = [one.outcome for one in claimed.results]  # type: ignore[union-attr]
        assert len(outcomes) == len(ack) and set(outcomes) <= {"ok", "already"}
        assert claimed.topic in (rig.name, None)
        messages += claimed.messages
        failed += claimed.failed
    assert {one.code for one in failed} == {"unknown_topic"} and not failed[0].retryable
    acked = rig.node.claim_any(topics, ack=[messages[-1].receipt, "nobody's"])
    assert isinstance(acked.results[1], duetime.ItemError) and acked.results[1].code == "invalid_receipt"
    settled = rig.topic.ack([message.receipt for message in messages])
    assert [one.outcome for one in settled] == ["already", "already"]  # type: ignore[union-attr]


def test_a_claim_that_asks_for_no_time_hides_a_message_for_as_long_as_it_says(rig: Rig) -> None:
    rig.create()
    rig.beside.enqueue("film", id="film", visibility_timeout=timedelta(hours=2))
    found = rig.beside.get("film")
    assert found is not None and found.visibility_timeout == "2h"
    [message] = rig.beside.claim(wait=10)
    assert message.deadline is not None
    assert message.deadline > datetime.now(timezone.utc) + timedelta(hours=1)
    [extended] = rig.beside.extend([message.receipt])
    assert isinstance(extended, duetime.Settled)
    found = rig.beside.get("film")
    assert found is not None and found.visible_at > datetime.now(timezone.utc) + timedelta(hours=1)


@both
def test_an_ack_that_comes_after_a_cancel_says_so(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 1)

    async def handle(delivery: Any, pause: Pause) -> None:
        assert rig.beside.cancel(delivery.id).outcome == "in_flight"

    with Consumer(kind, rig, handle) as consumer:
        until(lambda: consumer.lost, "the cancel is seen")
    assert consumer.lost == ["cancelled"]


@both
def test_what_ends_while_no_slot_is_free_is_acked_with_the_next_claim(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 5)

    async def handle(delivery: Any, pause: Pause) -> None:
        # The next claim waits for a slot by then.
        await pause(0.2)

    with Consumer(kind, rig, handle, concurrency=1) as consumer:
        until(lambda: is_empty(rig), "all are acked")
    acked = [receipt for body in rig.bodies("/claim") for receipt in body.get("ack", [])]
    alone = [receipt for body in rig.bodies("/ack") for receipt in body["receipts"]]
    assert len(acked) >= 3 and len({*acked, *alone}) == len(acked) + len(alone) == 5 and consumer.lost == []


@both
def test_an_ack_does_not_wait_behind_a_claim_that_waits(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 1)

    async def handle(delivery: Any, pause: Pause) -> None:
        while len(rig.requests("/claim")) < 2:
            await pause(0.05)

    with Consumer(kind, rig, handle, concurrency=2, wait=8.0):
        until(lambda: is_empty(rig), "it is acked")
        assert len(rig.requests("/claim")) == 2 and len(rig.requests("/ack")) == 1


@both
def test_an_ack_whose_claim_has_no_answer_is_sent_by_itself(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 2)
    faults = ["cut", "cut_answer"]

    async def handle(delivery: Any, pause: Pause) -> None:
        rig.fault(faults.pop(0), "/claim")
        await pause(0.2)

    with Consumer(kind, rig, handle, concurrency=1) as consumer:
        until(lambda: is_empty(rig), "both are acked")
    with_claim = [receipt for body in rig.bodies("/claim") for receipt in body.get("ack", [])]
    by_itself = [receipt for body in rig.bodies("/ack") for receipt in body["receipts"]]
    assert len(with_claim) == 2 and with_claim == by_itself and consumer.lost == []


@both
@pytest.mark.parametrize(("path", "concurrency"), [("/claim", 1), ("/ack", 2)])
def test_an_ack_that_hangs_alone_or_with_a_claim_is_sent_again_in_time(
    rig: Rig, kind: str, path: str, concurrency: int
) -> None:
    rig.create()
    enqueue(rig, 1)
    begun: list[float] = []

    async def handle(delivery: Any, pause: Pause) -> None:
        begun.append(time.monotonic())
        rig.fault("delay", path, seconds=20)
        await pause(0.2)

    with Consumer(kind, rig, handle, concurrency=concurrency, visibility=6.0, wait=0.2) as consumer:
        until(lambda: is_empty(rig), "it is acked")
        assert time.monotonic() - begun[0] < 6.0
    assert len(begun) == 1 and consumer.lost == []


@both
def test_a_cancel_is_seen_at_once_by_an_ack_that_goes_with_a_claim_that_would_wait(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 1)

    async def handle(delivery: Any, pause: Pause) -> None:
        await pause(0.2)
        assert rig.beside.cancel(delivery.id).outcome == "in_flight"

    with Consumer(kind, rig, handle, concurrency=1, wait=50.0) as consumer:
        until(lambda: consumer.lost, "the cancel is seen")
        consumer.stop()
        # What ends the claim that waits by now.
        rig.beside.enqueue("late", id="late")
    assert consumer.lost == ["cancelled"] and rig.requests("/ack") == []
    # Where such a claim is lost, the ack is sent by itself before the visibility ends: 30 s.
    assert [body["wait"] for body in rig.bodies("/claim") if "ack" in body] == ["5000ms"]


@both
def test_a_stop_lets_handlers_end_and_releases_what_is_claimed_after_it(rig: Rig, kind: str) -> None:
    rig.create(shards=1)
    enqueue(rig, 1)
    begun, ended = threading.Event(), threading.Event()

    async def handle(delivery: Any, pause: Pause) -> None:
        begun.set()
        await pause(0.5)
        ended.set()

    with Consumer(kind, rig, handle, concurrency=2, wait=3.0) as consumer:
        until(begun.is_set, "the handler begins")
        until(lambda: len(rig.requests("/claim")) == 2, "the next claim waits")
        consumer.stop()
        rig.beside.enqueue("late", id="late")
        consumer.join()
    late = rig.beside.get("late")
    assert ended.is_set() and rig.beside.get("m-0") is None
    assert late is not None and (late.state, late.attempts) == ("scheduled", 0)
    assert len(rig.requests("/release")) == 1


@both
def test_what_is_not_done_in_the_time_for_a_stop_is_released_and_keeps_its_attempt(rig: Rig, kind: str) -> None:
    rig.create()
    enqueue(rig, 1)
    ends: list[str] = []
    begun = threading.Event()
    with Consumer(kind, rig, waits_for_its_end(ends, begun), grace=0.2, wait=0.2) as consumer:
        # What is claimed and not begun at the stop is released without its handler.
        until(begun.is_set, "its handler has begun")
    message = rig.beside.get("m-0")
    assert message is not None and (message.state, message.attempts) == ("scheduled", 0)
    assert ends == ["looked" if kind == "sync" else "cancelled"] and consumer.lost == []


@both
def test_a_consumer_goes_on_when_its_node_is_busy_or_restarts(rig: Rig, kind: str) -> None:
    rig.create()
    handled: set[str] = set()

    async def handle(delivery: Any, pause: Pause) -> None:
        await pause(0.01)
        handled.add(delivery.id)

    headers = {"content-type": "application/problem+json"}
    rig.fault("answer", "/claim", status=503, headers=headers, body={"code": "busy"})
    with Consumer(kind, rig, handle, visibility=2.0):
        wanted = enqueue(rig, 50)
        until(lambda: len(handled) > 5, "some are handled")
        rig.node_does("restart")
        wanted |= {f"later-{number}" for number in range(20)}
        for number in range(20):
            rig.topic.enqueue("x", id=f"later-{number}")
        until(lambda: wanted <= handled and is_empty(rig), "all are handled")


@both
def test_nothing_is_lost_or_handled_twice_while_the_shard_count_changes(rig: Rig, kind: str) -> None:
    rig.create()
    handled: list[str] = []

    async def handle(delivery: Any, pause: Pause) -> None:
        handled.append(delivery.id)

    with Consumer(kind, rig, handle, concurrency=20):
        wanted = set[str]()
        for number in range(150):
            if number == 50:
                rig.beside.create(shards=5)
            assert rig.topic.enqueue({"n": number}, id=f"m-{number}", delay="300ms").outcome == "scheduled"
            wanted.add(f"m-{number}")
        until(lambda: wanted <= set(handled) and is_empty(rig), "all are handled")
    assert sorted(handled) == sorted(wanted) and rig.beside.info().shard_count == 5


@both
def test_an_error_that_no_pause_cures_ends_the_consumer(rig: Rig, kind: str) -> None:
    async def handle(delivery: Any, pause: Pause) -> None:
        raise AssertionError("there is no topic")

    with pytest.raises(duetime.ApiError) as refused, Consumer(kind, rig, handle) as consumer:
        consumer.join()
    assert refused.value.code == "unknown_topic"


@both
def test_a_message_delivered_at_most_once_has_nothing_to_settle(rig: Rig, kind: str) -> None:
    rig.create(delivery="at-most-once")
    enqueue(rig, 3)
    handled: list[str] = []

    async def handle(delivery: Any, pause: Pause) -> None:
        handled.append(await delivery.ack())

    with Consumer(kind, rig, handle):
        until(lambda: len(handled) == 3, "all are handled")
    assert handled == ["ok"] * 3 and rig.requests("/ack") == []


def test_a_consumer_whose_task_is_cancelled_releases_what_it_holds(rig: Rig) -> None:
    rig.create()
    enqueue(rig, 2)
    handle = waits_for_its_end([])

    async def run() -> None:
        async with duetime.AsyncDuetime(os.environ["DUETIME_URL"]) as node:
            topic = node.topic(rig.name)
            consuming = asyncio.create_task(topic.consume(lambda each: handle(each, asyncio.sleep), wait=2))
            await asyncio.to_thread(until, lambda: rig.beside.info().in_flight == 2, "both are claimed")
            await asyncio.to_thread(until, lambda: len(rig.requests("/claim")) > 1, "the next claim waits")
            consuming.cancel()
            rig.beside.enqueue("late", id="late")
            with pytest.raises(asyncio.CancelledError):
                await consuming

    asyncio.run(run())
    messages = [rig.beside.get(id) for id in ("m-0", "m-1", "late")]
    assert [message and (message.state, message.attempts) for message in messages] == [("scheduled", 0)] * 3
