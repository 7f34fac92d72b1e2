"""The recipes against a real node, whose messages are made due instead of waited for."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event

import debounce
import once
import pytest
import reminder
import signature
import steps
from duetime import Delivery, Duetime, Topic

EXAMPLES = Path(__file__).resolve().parents[1]


@pytest.fixture(name="topic")
def _topic(request: pytest.FixtureRequest) -> Iterator[Topic]:
    with Duetime(os.environ["DUETIME_DIRECT"]) as duetime:
        topic = duetime.topic(re.sub(r"\W", "-", request.node.name))
        topic.create(shards=4)
        yield topic


def fall_due(topic: Topic, id: str) -> None:
    """Moves a message to now. The code under test enqueued it with the delay of production."""
    assert topic.reschedule(id, delay="0ms").outcome == "rescheduled"


def consume(topic: Topic, handler: object, count: int) -> None:
    """Handles as many messages and stops."""
    stop, left = Event(), [count]

    def counted(delivery: Delivery) -> None:
        handler(delivery)
        left[0] -= 1
        if left[0] == 0:
            stop.set()

    topic.consume(counted, concurrency=1, wait=1, stop=stop)


def due_in(topic: Topic, id: str) -> timedelta:
    return topic.get(id).due_at - datetime.now(timezone.utc)


def test_reminders_follow_each_other_until_the_last(topic: Topic) -> None:
    sent = []
    reminder.begin(topic, "order-1")
    for number in (1, 2, 3):
        assert timedelta(hours=23) < due_in(topic, f"order-1/reminder-{number}") <= timedelta(days=1)
        fall_due(topic, f"order-1/reminder-{number}")
        consume(topic, lambda d: reminder.remind(topic, d, lambda _: True, lambda *what: sent.append(what)), 1)
    assert sent == [("order-1", 1), ("order-1", 2), ("order-1", 3)]
    assert topic.info().scheduled == 0


def test_no_reminder_is_sent_once_the_order_is_paid(topic: Topic) -> None:
    reminder.begin(topic, "order-1")
    fall_due(topic, "order-1/reminder-1")
    consume(topic, lambda d: reminder.remind(topic, d, lambda _: False, pytest.fail), 1)
    assert topic.info().scheduled == 0

    reminder.begin(topic, "order-2")
    reminder.end(topic, "order-2")
    assert topic.info().scheduled == 0


def test_each_step_brings_the_next_one_and_a_step_that_comes_again_brings_none_twice(topic: Topic) -> None:
    done: list[tuple[str, str]] = []

    def run(name: str, again: bool = False) -> None:
        def handle(delivery: Delivery) -> None:
            steps.handle(topic, delivery, lambda *what: done.append(what))
            if again:
                delivery.nack(delay="1h", reason="the ack is lost")

        fall_due(topic, f"order-1/{name}")
        consume(topic, handle, 1)

    steps.create(topic)
    steps.begin(topic, "order-1")
    run("pack", again=True)
    assert timedelta(minutes=59) < due_in(topic, "order-1/ship") <= timedelta(hours=1)
    run("ship")
    run("pack")
    assert topic.get("order-1/ship") is None
    assert topic.info().scheduled == 1
    run("ask")
    assert [name for _, name in done] == ["pack", "ship", "pack", "ask"]
    assert topic.info().scheduled == 0

    steps.begin(topic, "order-2")
    steps.end(topic, "order-2")
    assert topic.info().scheduled == 0


def test_a_signature_is_checked_without_a_client() -> None:
    for case in json.loads((EXAMPLES.parent / "clients/vectors/signatures.json").read_text()):
        body = base64.b64decode(case["body_base64"])
        said = [signature.is_signed(body, case["headers"], secret, case["now"]) for secret in case["secrets"]]
        assert any(said) == case["is_valid"], case["name"]


def test_a_debounced_message_comes_after_the_last_change_and_a_throttled_one_after_the_first(topic: Topic) -> None:
    debounce.after_the_last_change(topic, "last")
    debounce.after_the_first_change(topic, "first")
    before = {id: topic.get(id).due_at for id in ("last", "first")}
    time.sleep(0.01)
    debounce.after_the_last_change(topic, "last")
    debounce.after_the_first_change(topic, "first")
    assert topic.get("last").due_at > before["last"]
    assert topic.get("first").due_at == before["first"]
    assert topic.info().scheduled == 2


def test_one_message_is_due_as_soon_as_the_most_urgent_change_needs_it(topic: Topic) -> None:
    dues = []
    for delay in ("1h", "2h", "10m", "30m"):
        debounce.as_soon_as_the_most_urgent(topic, "lamp", delay)
        dues.append(topic.get("lamp").due_at)
    assert dues[0] == dues[1] > dues[2] == dues[3]
    assert topic.info().scheduled == 1


def test_work_is_done_once_for_each_delivery_id(topic: Topic) -> None:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute(once.SCHEMA)
    db.execute("CREATE TABLE work (what TEXT)")
    done = []

    def handle(delivery: Delivery) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO work VALUES (?)", [delivery.id])

        done.append(once.once(db, delivery.message.delivery_id, work))
        if delivery.attempt == 1:
            delivery.nack(delay="0ms", reason="the answer is lost")

    topic.enqueue("x", id="job")
    consume(topic, handle, 2)
    assert done == [True, False]
    assert db.execute("SELECT what FROM work").fetchall() == [("job",)]

    with pytest.raises(ZeroDivisionError):
        once.once(db, "failed", lambda _: 1 / 0)
    assert once.once(db, "failed", lambda _: None), "work that failed may be done again"


def test_a_worker_that_is_stopped_ends_what_it_began_and_gives_back_the_rest() -> None:
    with Duetime(os.environ["DUETIME_DIRECT"]) as duetime:
        jobs = duetime.topic("jobs")
        jobs.create(shards=4)
        for number in range(6):
            jobs.enqueue({"seconds": 1}, id=f"job-{number}")
        worker = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "worker/worker.py")],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "DUETIME_URL": os.environ["DUETIME_DIRECT"]},
        )  # fmt: skip
        assert worker.stderr is not None
        lines = []
        while len(re.findall("begun", "".join(lines))) < 2:
            lines.append(worker.stderr.readline())
            assert lines[-1], lines
        worker.send_signal(signal.SIGTERM)
        said = "".join(lines) + worker.communicate(timeout=60)[1]
        assert worker.returncode == 0 and "stopped" in said, said
        assert said.count("begun") == said.count("done"), said
        left = [message for number in range(6) if (message := jobs.get(f"job-{number}"))]
        assert len(left) == 6 - said.count("done"), said
        assert {message.attempts for message in left} == {0}
