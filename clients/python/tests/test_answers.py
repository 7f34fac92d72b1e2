"""What a call makes of answers that are no node's, come in pieces, or say whether they may be asked for again."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import httpx
import pytest

import duetime
from duetime import Duetime, NewMessage, Topic

PROBLEM = {"content-type": "application/problem+json"}
PLACED = {"id": "a", "outcome": "scheduled", "due_at": 2_000_000_000_000, "shard": 0}


def answering(*answers: httpx.Response, retry_for: float = 9) -> tuple[Topic, list[float]]:
    """A topic at a server that gives these answers, the last one for ever, and when it was asked."""
    left, asked = list(answers), list[float]()

    def answer(_: httpx.Request) -> httpx.Response:
        asked.append(time.monotonic())
        return left.pop(0) if len(left) > 1 else left[0]

    http = httpx.Client(transport=httpx.MockTransport(answer))
    return Duetime("http://node", retry_for=retry_for, http=http).topic("orders"), asked


def problem(status: int, code: str, **more: Any) -> httpx.Response:
    return httpx.Response(status, headers=PROBLEM, json={"status": status, "code": code, "detail": "x", **more})


CALLS: list[Callable[[Topic], object]] = [
    lambda topic: topic.enqueue("x"),
    lambda topic: topic.enqueue_many([NewMessage("x")]),
    lambda topic: topic.cancel("a"),
    lambda topic: topic.reschedule("a", delay="1s"),
    lambda topic: topic.create(),
    lambda topic: topic.delete(),
    lambda topic: topic.get("a"),
    lambda topic: topic.watermark(),
    lambda topic: topic.claim(),
    lambda topic: topic.ack(["a"]),
]
FOREIGN = [
    httpx.Response(401, json={"message": "Unauthorized"}),
    httpx.Response(404, json={"message": "Not Found"}),
    httpx.Response(500, json={"message": "An unexpected error occurred"}),
    httpx.Response(302, headers={"location": "/login"}, json={}),
    httpx.Response(200, json={"status": "ok"}),
    httpx.Response(200, json={"results": [None]}),
    httpx.Response(200, json=[]),
    httpx.Response(200, json=None),
    httpx.Response(400, headers=PROBLEM, json=None),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", FOREIGN)
def test_an_answer_in_json_that_is_no_nodes_is_no_success(
    call: Callable[[Topic], object], answer: httpx.Response
) -> None:
    topic, asked = answering(answer)
    with pytest.raises(duetime.ForeignAnswer, match="is the address right|one result for each"):
        call(topic)
    assert len(asked) == 1


def test_the_word_of_the_node_decides_whether_a_request_is_sent_again() -> None:
    topic, asked = answering(problem(503, "shard_lost", retryable=False))
    with pytest.raises(duetime.ApiError) as refused:
        topic.enqueue("x")
    assert len(asked) == 1 and not refused.value.retryable
    topic, asked = answering(problem(507, "of_a_newer_node", retryable=True), httpx.Response(200, json=PLACED))
    assert topic.enqueue("x").outcome == "scheduled" and len(asked) == 2


def test_the_word_of_the_node_decides_whether_an_item_is_sent_again() -> None:
    def failed(code: str, retryable: bool) -> httpx.Response:
        return httpx.Response(200, json={"results": [{"error": {"code": code, "detail": "x", "retryable": retryable}}]})

    done = httpx.Response(200, json={"results": [PLACED]})
    topic, asked = answering(failed("of_a_newer_node", True), done)
    assert isinstance(topic.enqueue_many([NewMessage("x")])[0], duetime.Enqueued) and len(asked) == 2
    topic, asked = answering(failed("busy", False), done)
    result = topic.enqueue_many([NewMessage("x")])[0]
    assert isinstance(result, duetime.ItemError) and not result.retryable and len(asked) == 1


def test_a_consumer_waits_out_each_503_whoever_cures_it() -> None:
    topic, asked = answering(problem(503, "shard_lost", retryable=False), problem(403, "forbidden"))
    with pytest.raises(duetime.ApiError, match="forbidden"):
        topic.consume(lambda _: None)
    assert len(asked) == 2


@pytest.mark.parametrize("given", ["1", "date", "date without Date"])
def test_a_balancer_that_is_asked_too_often_says_when_to_come_back(given: str) -> None:
    now = time.time() - (1000 if given == "date" else 0)
    after = "1" if given == "1" else formatdate(now + 2, usegmt=True)
    headers = {"retry-after": after, **({"date": formatdate(now, usegmt=True)} if given == "date" else {})}
    busy = httpx.Response(429, headers=headers, text="slow down")
    topic, asked = answering(busy, httpx.Response(200, json=PLACED))
    assert topic.enqueue("x").outcome == "scheduled"
    assert len(asked) == 2 and asked[1] - asked[0] > 0.9


@contextmanager
def serving(*answers: list[bytes], pause: float = 0.0) -> Iterator[str]:
    """The address of a server that sends these answers, one for each connection, with a pause before each piece."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for pieces in answers:
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    try:
                        for piece in pieces:
                            time.sleep(pause)
                            connection.sendall(piece)
                    except OSError:
                        # The client gave it up.
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_answer_that_comes_in_pieces_has_no_more_time_than_another(kind: str) -> None:
    pieces = [HEAD + b"\r\n", *[b" "] * 20]
    with serving(pieces, pause=0.4) as url:
        began = time.monotonic()
        with pytest.raises(duetime.NoAnswer) as lost:
            if kind == "sync":
                Duetime(url, timeout=1, retry_for=0).topic("orders").enqueue("x")
            else:
                asyncio.run(duetime.AsyncDuetime(url, timeout=1, retry_for=0).topic("orders").enqueue("x"))
        assert lost.value.maybe_done and time.monotonic() - began < 2


def test_a_body_that_was_damaged_is_an_answer_that_was_lost() -> None:
    damaged = HEAD + b"content-encoding: gzip\r\ncontent-length: 7\r\n\r\n\x1f\x8bdamag"
    with serving([damaged]) as url, pytest.raises(duetime.NoAnswer) as lost:
        Duetime(url, retry_for=0).topic("orders").enqueue("x")
    assert lost.value.maybe_done
