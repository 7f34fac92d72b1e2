"""A handler that does its work once, however often the message comes: it remembers delivery ids."""

import sqlite3
from collections.abc import Callable

SCHEMA = "CREATE TABLE IF NOT EXISTS handled (delivery_id TEXT PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP)"


def once(db: sqlite3.Connection, delivery_id: str, work: Callable[[sqlite3.Connection], None]) -> bool:
    """True if the work was done now. `delivery_id`: `delivery.message.delivery_id`, or what `verify` returns."""
    with db:  # One transaction: the work and the id are stored together, or neither.
        row = db.execute("INSERT OR IGNORE INTO handled (delivery_id) VALUES (?)", [delivery_id])
        if row.rowcount == 0:
            return False
        work(db)
    return True
