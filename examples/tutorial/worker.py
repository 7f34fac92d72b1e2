"""Claims the checks that are due and closes the orders that are still open."""

import signal
import threading

from duetime import Delivery
from shop import checks, close

stop = threading.Event()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stop.set())


def check(delivery: Delivery) -> None:
    order = delivery.json()["order"]
    print(order, "closed" if close(order) else "nothing to do", flush=True)


print("waiting for checks", flush=True)
checks.consume(check, stop=stop)
print("stopped", flush=True)
