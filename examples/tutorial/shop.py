"""A shop: orders in a file of SQLite and, for each, a check in Duetime.

    python3 shop.py place ORDER | pay ORDER | list
"""

import os
import sqlite3
import sys

from duetime import Duetime

TIMEOUT = os.environ.get("ORDER_TIMEOUT", "5s")

db = sqlite3.connect("shop.db", isolation_level=None, check_same_thread=False)
db.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)")
checks = Duetime("http://127.0.0.1:3830").topic("orders")


def place(order: str) -> str:
    # The check first: a check without its order does nothing, an order without a check stays open.
    checks.enqueue({"order": order}, id=order, delay=TIMEOUT)
    db.execute("INSERT OR IGNORE INTO orders VALUES (?, 'open')", [order])
    return "placed"


def pay(order: str) -> str:
    # The record first: it decides. The cancel only saves the check.
    if not change(order, "paid"):
        return "not open, so not paid"
    return f"paid, its check: {checks.cancel(order).outcome}"


def close(order: str) -> bool:
    """Closes an order that is still open. A second call for the same order changes nothing."""
    return change(order, "closed")


def change(order: str, state: str) -> bool:
    return db.execute("UPDATE orders SET state = ? WHERE id = ? AND state = 'open'", [state, order]).rowcount == 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["place", order]:
            print(order, place(order))
        case ["pay", order]:
            print(order, pay(order))
        case ["list"]:
            for order, state in db.execute("SELECT id, state FROM orders ORDER BY id"):
                print(order, state)
        case _:
            sys.exit(__doc__)
