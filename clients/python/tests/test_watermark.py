"""Up to when a topic is done."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import pytest
from rig import rig

import duetime

TIMEOUT_S, WAIT_S = 2.0, 3.0


def test_a_watermark_is_waited_for_longer_than_another_answer_and_says_what_holds_it_back() -> None:
    of = rig(timeout=TIMEOUT_S, retry_for=0)
    of.create(watermark=True)
    of.beside.enqueue("x", id="a")
    (message,) = of.beside.claim(wait=5)
    until = message.due_at + timedelta(milliseconds=1)
    # The time-out of the client would be over before.
    held = of.topic.watermark(until, wait=WAIT_S)
    assert held.held_by is not None
    by = duetime.HeldBy("in_flight", held.held_by.shard, "a", message.due_at, message.deadline)
    assert held == duetime.Watermark(message.due_at, False, by)
    of.beside.ack([message.receipt])

    async def watermarks() -> list[duetime.Watermark]:
        async with duetime.AsyncDuetime(os.environ["DUETIME_URL"]) as node:
            topic = node.topic(of.name)
            return [await topic.watermark(until, wait=timedelta(seconds=30)), await topic.watermark()]

    reached, now = asyncio.run(watermarks())
    assert (reached.reached, reached.held_by) == (True, None)
    assert (now.reached, now.held_by) == (None, None)
    assert until <= reached.watermark <= now.watermark


def test_a_topic_without_a_watermark_refuses_it() -> None:
    of = rig()
    with pytest.raises(duetime.ApiError) as refused:
        of.create().watermark()
    assert (refused.value.status, refused.value.code) == (409, "topic_has_no_watermark")
