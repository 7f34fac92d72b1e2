"""Orders that are closed if they are not paid in time. Duetime calls POST /due for each check that is due.

    DUETIME_URL=http://127.0.0.1:3830 WEBHOOK_SECRET=whsec_… uvicorn app:app --port 8000

The node has a sink `shop` with `url = "http://…:8000/due"` and the same secret; see ../README.md.
"""

import json
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duetime import AsyncDuetime, DuetimeError, InvalidSignature, verify
from fastapi import FastAPI, HTTPException, Request

TIMEOUT = os.environ.get("ORDER_TIMEOUT", "30m")
# Several, with spaces between them, while one is changed.
SECRETS = os.environ["WEBHOOK_SECRET"].split()

db = sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"), isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # retry_for: a customer's request waits no longer than this for a node that is away.
    async with AsyncDuetime(os.environ["DUETIME_URL"], token=os.environ.get("DUETIME_TOKEN"), retry_for=3) as duetime:
        app.state.checks = duetime.topic("shop-orders")
        await app.state.checks.create(sink={"name": "shop"})
        yield


app = FastAPI(lifespan=lifespan)


def change(order: str, state: str) -> None:
    """Changes an order that is open, and no other: a second call, or a late one, does nothing."""
    db.execute("UPDATE orders SET state = ? WHERE id = ? AND state = 'open'", [state, order])


@app.get("/orders/{order}")
async def show(order: str) -> dict[str, str]:
    row = db.execute("SELECT state FROM orders WHERE id = ?", [order]).fetchone()
    if row is None:
        raise HTTPException(404)
    return {"order": order, "state": row[0]}


@app.put("/orders/{order}")
async def place(order: str) -> dict[str, str]:
    # The check first: a check without its order does nothing, an order without a check stays open. Without an answer
    # of the node this request fails and is repeated; then the check is a `duplicate`.
    await app.state.checks.enqueue({"order": order}, id=order, delay=TIMEOUT)
    db.execute("INSERT OR IGNORE INTO orders VALUES (?, 'open')", [order])
    return await show(order)


@app.post("/orders/{order}/payment")
async def pay(order: str) -> dict[str, str]:
    change(order, "paid")
    now = await show(order)
    if now["state"] != "paid":
        raise HTTPException(409, "the order is closed")
    try:
        await app.state.checks.cancel(order)
    except DuetimeError as error:
        # The record is what counts: the check finds the order paid.
        logging.warning("the check of %s is not cancelled: %s", order, error)
    return now


@app.post("/due", status_code=204)
async def due(request: Request) -> None:
    body = await request.body()
    try:
        verify(body, request.headers, SECRETS)
    except InvalidSignature as error:
        raise HTTPException(401, str(error)) from None
    change(json.loads(body)["order"], "closed")
