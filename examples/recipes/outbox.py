"""An outbox in PostgreSQL: an order and its check are stored in one transaction, and a relay sends the checks.

    DUETIME_URL=http://127.0.0.1:3830 DATABASE=postgresql:///shop python outbox.py

Tables: outbox.sql. Needs psycopg 3.
"""

import os
import time
from itertools import groupby

import psycopg
from duetime import Duetime, ItemError, NewMessage, Topic

BATCH = 500
PAUSE_S = 0.5
#: Any number, the same in each relay: one at a time sends, or a cancel could overtake its check.
LOCK = 382_042


def place(db: psycopg.Connection, order: str) -> None:
    with db.transaction():
        db.execute("INSERT INTO orders VALUES (%s, 'open')", [order])
        db.execute(
            "INSERT INTO outbox (message_id, due_at, payload)"
            " VALUES (%s, now() + interval '30 minutes', jsonb_build_object('order', %s::text))",
            [order, order],
        )


def pay(db: psycopg.Connection, order: str) -> bool:
    with db.transaction():
        paid = db.execute("UPDATE orders SET state = 'paid' WHERE id = %s AND state = 'open'", [order]).rowcount == 1
        if paid:
            db.execute("INSERT INTO outbox (message_id) VALUES (%s)", [order])
    return paid


def relay(db: psycopg.Connection, checks: Topic) -> int:
    """Sends a batch and returns how many rows are done.

    If it dies after sending, the batch is sent again: a check that waits is a `duplicate`, one that was delivered
    comes again, and finds its order closed or paid.
    """
    with db.transaction():
        if not db.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK]).fetchone()[0]:
            return 0
        rows = db.execute(
            "SELECT position, message_id, due_at, payload FROM outbox WHERE error IS NULL ORDER BY position LIMIT %s",
            [BATCH],
        ).fetchall()
        done = []
        for is_cancel, group in groupby(rows, lambda row: row[2] is None):
            part = list(group)
            if is_cancel:
                results = checks.cancel_many([id for _, id, _, _ in part])
            else:
                results = checks.enqueue_many([NewMessage(payload, id=id, due_at=at) for _, id, at, payload in part])
            for (position, *_), result in zip(part, results, strict=True):
                if not isinstance(result, ItemError):
                    done.append(position)
                elif not result.retryable:
                    # Refused for good: kept for a person to see, and out of the way of the others.
                    db.execute("UPDATE outbox SET error = %s WHERE position = %s", [result.detail, position])
        db.execute("DELETE FROM outbox WHERE position = ANY(%s)", [done])
    return len(done)


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as db, Duetime(os.environ["DUETIME_URL"]) as duetime:
        topic = duetime.topic("orders")
        topic.create()
        while True:
            if relay(db, topic) == 0:
                time.sleep(PAUSE_S)
