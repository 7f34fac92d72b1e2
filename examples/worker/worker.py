"""A worker that may be stopped, deployed again or killed at any time, and loses nothing by it.

    DUETIME_URL=http://127.0.0.1:3830 python worker.py
"""

import asyncio
import logging
import os
import signal

from duetime import AsyncDelivery, AsyncDuetime

#: How long a handler may take at the stop. The service manager must wait longer than this, and 10 s more: in
#: Kubernetes `terminationGracePeriodSeconds`, in systemd `TimeoutStopSec`.
GRACE_S = 20.0


async def handle(delivery: AsyncDelivery) -> None:
    """Does the work of one message. What it raises is the reason of a nack, and the message comes again."""
    logging.info("begun %s, attempt %d", delivery.id, delivery.attempt)
    await asyncio.sleep(float(delivery.json()["seconds"]))
    logging.info("done %s", delivery.id)


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncDuetime(os.environ["DUETIME_URL"], token=os.environ.get("DUETIME_TOKEN")) as duetime:
        # Each claim is extended while its handler runs. If this process dies, its messages come again 30 s later.
        await duetime.topic("jobs").consume(handle, concurrency=2, visibility=30, grace=GRACE_S, stop=stop)
    logging.info("stopped")


if __name__ == "__main__":
    asyncio.run(main())
