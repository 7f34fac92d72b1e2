"""The outbox against a real PostgreSQL (`DATABASE`) and a real node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import outbox
import psycopg
import pytest
from duetime import Duetime, Topic


@pytest.fixture(name="db")
def _db() -> Iterator[psycopg.Connection]:
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS orders, outbox")
        db.execute((Path(__file__).parent / "outbox.sql").read_text())
        yield db


@pytest.fixture(name="checks")
def _checks() -> Iterator[Topic]:
    with Duetime(os.environ["DUETIME_DIRECT"]) as duetime:
        topic = duetime.topic("outbox")
        topic.create(shards=4, max_payload="1KiB")
        yield topic
        topic.delete(force=True)


def waiting(db: psycopg.Connection) -> int:
    return db.execute("SELECT count(*) FROM outbox").fetchone()[0]


def test_a_check_is_sent_with_the_due_time_of_its_transaction(db: psycopg.Connection, checks: Topic) -> None:
    outbox.place(db, "order-1")
    db.execute("UPDATE outbox SET due_at = due_at - interval '10 minutes'")  # As if it had waited so long.
    assert outbox.relay(db, checks) == 1
    left = checks.get("order-1").due_at - datetime.now(timezone.utc)
    assert timedelta(minutes=19) < left <= timedelta(minutes=20)
    assert waiting(db) == 0


def test_an_order_that_is_not_stored_has_no_check(db: psycopg.Connection, checks: Topic) -> None:
    outbox.place(db, "order-1")
    with pytest.raises(psycopg.errors.UniqueViolation):
        outbox.place(db, "order-1")
    assert waiting(db) == 1


def test_what_was_paid_before_it_was_sent_leaves_nothing(db: psycopg.Connection, checks: Topic) -> None:
    outbox.place(db, "order-1")
    outbox.place(db, "order-2")
    assert outbox.pay(db, "order-1")
    assert not outbox.pay(db, "order-1")
    assert outbox.relay(db, checks) == 3
    assert checks.get("order-1") is None
    assert checks.get("order-2") is not None


def test_a_batch_that_is_sent_twice_is_stored_once(db: psycopg.Connection, checks: Topic) -> None:
    outbox.place(db, "order-1")
    with pytest.raises(psycopg.errors.RaiseException), db.transaction():
        outbox.relay(db, checks)
        db.execute("DO $$ BEGIN RAISE EXCEPTION 'the relay dies before it commits'; END $$")
    assert (waiting(db), checks.info().scheduled) == (1, 1)
    assert outbox.relay(db, checks) == 1
    assert (waiting(db), checks.info().scheduled) == (0, 1)


def test_two_relays_do_not_send_at_a_time(db: psycopg.Connection, checks: Topic) -> None:
    outbox.place(db, "order-1")
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", [outbox.LOCK])
        assert outbox.relay(db, checks) == 0
    assert outbox.relay(db, checks) == 1


def test_a_message_that_is_refused_for_good_stops_no_other(
    db: psycopg.Connection, checks: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "BATCH", 1)
    outbox.place(db, "x" * 2000)
    outbox.place(db, "order-1")
    assert [outbox.relay(db, checks) for _ in range(3)] == [0, 1, 0]
    assert checks.get("order-1") is not None
    assert "256" in db.execute("SELECT error FROM outbox").fetchone()[0]
