"""Lateness at a plain consumer of Duetime's HTTP API: one thread, one connection, the standard library.

duetime_consumer.py NODE --rate 2000 --seconds 30 --shards 8
"""

import argparse
import http.client
import json
import multiprocessing
import time

# How far ahead messages are due, and how often some are sent.
AHEAD_MS = 1_000
EVERY_S = 0.01


class Node:
    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=90)

    def ask(self, method, path, body=None):
        self.connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text)


def produce(address, topic, rate, count):
    """Each is due at a time of its own, evenly spread."""
    node, sent, start = Node(address), 0, time.time()
    first_due = start * 1000 + AHEAD_MS
    while sent < count:
        until = min(count, int((time.time() - start) * rate) + 1)
        batch = [
            {"id": f"m{n}", "due_at": int(first_due + n * 1000 / rate), "payload": "x" * 100} for n in range(sent, until)
        ]
        if batch:
            results = node.ask("POST", f"/v1/topics/{topic}/messages", batch)["results"]
            assert all(result.get("outcome") == "scheduled" for result in results), results
        sent = until
        time.sleep(EVERY_S)


def consume(address, topic, count):
    """How late each was when its answer was read, in milliseconds."""
    node, late, seen = Node(address), [], set()
    while len(late) < count:
        messages = node.ask("POST", f"/v1/topics/{topic}/claim", {"max": 256, "wait": "10s"})["messages"]
        now = time.time() * 1000
        if not messages:
            raise RuntimeError(f"nothing came for 10 s; {len(late)} of {count} are there")
        late += [now - message["due_at"] for message in messages]
        seen.update(message["id"] for message in messages)
        node.ask("POST", f"/v1/topics/{topic}/ack", {"receipts": [message["receipt"] for message in messages]})
    assert len(seen) == count, f"{len(seen)} different ones of {count}"
    return sorted(late)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("node", help="HOST:PORT")
    arguments.add_argument("--rate", type=int, default=2_000)
    arguments.add_argument("--seconds", type=int, default=30)
    arguments.add_argument("--shards", type=int, default=8)
    given = arguments.parse_args()
    count, topic = given.rate * given.seconds, f"consumer-{given.shards}"
    node = Node(given.node)
    node.ask("PUT", f"/v1/topics/{topic}", {"shards": given.shards})
    producer = multiprocessing.Process(target=produce, args=(given.node, topic, given.rate, count))
    producer.start()
    late = consume(given.node, topic, count)
    producer.join()
    node.ask("DELETE", f"/v1/topics/{topic}?force=true")
    at = {name: round(late[int(len(late) * part)], 1) for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}
    earliest = round(late[0], 1)
    print(json.dumps({"shards": given.shards, "rate": given.rate, "messages": count, **at, "earliest": earliest}))


if __name__ == "__main__":
    main()
