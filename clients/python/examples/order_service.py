"""An order that is not paid in time is closed. The shop's own record decides; Duetime wakes it.

    DUETIME_URL=http://127.0.0.1:3830 python order_service.py
"""

import asyncio
import os

from duetime import AsyncDelivery, AsyncDuetime

TIMEOUT = os.environ.get("ORDER_TIMEOUT", "30m")
orders: dict[str, str] = {}


async def main() -> None:
    stop = asyncio.Event()

    async def check(delivery: AsyncDelivery) -> None:
        order = delivery.json()["order"]
        if orders[order] == "open":
            orders[order] = "closed"
            print(order, "closed", flush=True)
        if "open" not in orders.values():
            stop.set()

    async with AsyncDuetime(os.environ["DUETIME_URL"]) as duetime:
        topic = duetime.topic("orders-python")
        await topic.create(visibility_timeout="30s")
        for order in ("order-1", "order-2", "order-3"):
            orders[order] = "open"
            await topic.enqueue({"order": order}, id=order, delay=TIMEOUT)
        orders["order-2"] = "paid"
        # `in_flight` would mean that the check is under way; it finds the order paid.
        print("order-2 paid, its check", (await topic.cancel("order-2")).outcome)
        await topic.consume(check, concurrency=20, stop=stop)


if __name__ == "__main__":
    asyncio.run(main())
