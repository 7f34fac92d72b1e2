"""Steps that follow each other: each message does its step, then enqueues that of the next one."""

from collections.abc import Callable
from datetime import timedelta

from duetime import Delivery, Topic

#: What is done for an order, and how long after the step before.
STEPS = [("pack", timedelta(0)), ("ship", timedelta(hours=1)), ("ask", timedelta(days=14))]


def create(steps: Topic) -> None:
    """A step that comes again, after a crash, brings its successor once: also where that was delivered meanwhile."""
    steps.create(remember="24h")


def begin(steps: Topic, order: str) -> None:
    enqueue(steps, order, 0)


def enqueue(steps: Topic, order: str, number: int) -> None:
    name, pause = STEPS[number]
    steps.enqueue({"order": order, "step": number}, id=f"{order}/{name}", delay=pause)


def handle(steps: Topic, delivery: Delivery, do: Callable[[str, str], None]) -> None:
    order, number = delivery.json()["order"], delivery.json()["step"]
    do(order, STEPS[number][0])
    if number + 1 < len(STEPS):
        # After the work and before the ack: whoever dies in between gets this step again, and the next one is there.
        enqueue(steps, order, number + 1)


def end(steps: Topic, order: str) -> None:
    """The order is cancelled: the step that waits goes. One that is under way may leave a successor: `do` looks."""
    steps.cancel_many([f"{order}/{name}" for name, _ in STEPS])
