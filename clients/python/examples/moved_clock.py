"""A test that does not wait: the clock of a node for tests is moved ahead.

    duetime serve --test-clock &
    DUETIME_URL=http://127.0.0.1:3830 python moved_clock.py
"""

import os

import httpx

from duetime import Duetime

URL = os.environ["DUETIME_URL"]


def advance(by: str) -> None:
    httpx.post(f"{URL}/v1/test-clock", json={"advance": by}).raise_for_status()


if __name__ == "__main__":
    with Duetime(URL) as duetime:
        topic = duetime.topic("orders-python")
        topic.create()
        topic.enqueue("close it", id="order-1", delay="30m")
        advance("29m")
        print("after 29 minutes:", len(topic.claim()))
        advance("1m")
        # What falls due by a move is there at once; the wait is for a machine that is slow.
        print("after 30 minutes:", len(topic.claim(wait=10)))
