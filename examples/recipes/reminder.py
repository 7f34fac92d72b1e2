"""Reminds of an unpaid order every day, three times at most: each message enqueues its successor."""

from collections.abc import Callable
from datetime import timedelta

from duetime import Delivery, Topic

DAY = timedelta(days=1)
REMINDERS = 3


def reminder_id(order: str, number: int) -> str:
    return f"{order}/reminder-{number}"


def begin(reminders: Topic, order: str) -> None:
    reminders.enqueue({"order": order, "number": 1}, id=reminder_id(order, 1), delay=DAY)


def remind(
    reminders: Topic, delivery: Delivery, is_open: Callable[[str], bool], send: Callable[[str, int], None]
) -> None:
    order, number = delivery.json()["order"], delivery.json()["number"]
    if not is_open(order):
        return
    if number < REMINDERS:
        # Before the mail, and with an id of its own: if this message comes twice, its successor is a `duplicate`.
        # A day after the due time, not after now: a late delivery moves no later one.
        successor = {"order": order, "number": number + 1}
        reminders.enqueue(successor, id=reminder_id(order, number + 1), due_at=delivery.message.due_at + DAY)
    send(order, number)


def end(reminders: Topic, order: str) -> None:
    """The order is paid: one of these waits. One that is being sent may leave a successor, which finds it paid."""
    reminders.cancel_many([reminder_id(order, number) for number in range(1, REMINDERS + 1)])
