#!/usr/bin/env python3
"""A load of orders for deploy/try: each is enqueued with a timeout, most are paid and cancelled, the rest are claimed.

Says every ten seconds what happened. Ends after --seconds (0: never) and then waits for what is still due; its status is
not 0 if an order was early, was delivered although its cancel was acknowledged, or did not come. Nothing but Python's own library.
"""

import argparse
import json
import random
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

TIMEOUT_S = 10.0
"""An order's time to be paid."""
PAID = 0.95
PER_SECOND = 50
HERD_EVERY_S = 300
HERD = 20_000
BATCH = 500
REQUEST_TIMEOUT_S = 30
GRACE_S = 60
"""How long after its end the load waits for what is due."""


class Load:
    def __init__(self, nodes):
        self.nodes = nodes
        self.lock = threading.Lock()
        self.due = {}
        self.cancelled = set()
        self.unsure = set()
        self.counts = dict.fromkeys(("enqueued", "cancelled", "delivered", "late", "early", "after_cancel", "twice", "errors"), 0)
        self.done = set()
        self.ending = threading.Event()

    def call(self, path, body):
        """Asks one node after the other: each of them can do all."""
        start = random.randrange(len(self.nodes))
        for turn in range(len(self.nodes) * 10):
            node = self.nodes[(start + turn) % len(self.nodes)]
            request = urllib.request.Request(
                f"{node}/v1/topics/orders/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                    return json.load(answer)
            except (urllib.error.URLError, OSError, ValueError):
                with self.lock:
                    self.counts["errors"] += 1
                time.sleep(0.1)
        return None

    def enqueue(self, ids, due):
        for at in range(0, len(ids), BATCH):
            part = ids[at : at + BATCH]
            with self.lock:
                self.due.update(dict.fromkeys(part, due))
            answer = self.call("messages", [{"id": id, "due_at": int(due * 1000)} for id in part])
            with self.lock:
                if answer is None:
                    self.unsure.update(part)
                else:
                    self.counts["enqueued"] += len(part)

    def cancel(self, ids):
        for at in range(0, len(ids), BATCH):
            part = ids[at : at + BATCH]
            answer = self.call("cancel", {"ids": part})
            outcomes = (answer or {}).get("results", [])
            with self.lock:
                for item in outcomes:
                    if item.get("outcome") == "cancelled":
                        self.cancelled.add(item["id"])
                        self.counts["cancelled"] += 1
                if answer is None:
                    self.unsure.update(part)

    def produce(self):
        number, next_herd = 0, time.time() + 20
        while not self.ending.is_set():
            begun = time.time()
            ids = [f"order-{int(begun)}-{number + n}" for n in range(PER_SECOND)]
            number += PER_SECOND
            self.enqueue(ids, begun + TIMEOUT_S)
            threading.Timer(
                random.uniform(1, TIMEOUT_S * 0.7), self.cancel, [[id for id in ids if random.random() < PAID]]
            ).start()
            if begun >= next_herd:
                next_herd = begun + HERD_EVERY_S
                self.enqueue([f"herd-{int(begun)}-{n}" for n in range(HERD)], begun + TIMEOUT_S)
            self.ending.wait(max(0.0, 1.0 - (time.time() - begun)))

    def consume(self, until_empty):
        while not until_empty.is_set():
            claim = self.call("claim", {"max": 256, "wait": "1s"})
            messages = (claim or {}).get("messages", [])
            now = time.time()
            if not messages:
                continue
            with self.lock:
                for message in messages:
                    id, due = message["id"], self.due.get(message["id"])
                    if due is None:
                        continue
                    self.counts["delivered"] += 1
                    self.counts["early"] += now < due - 0.001
                    self.counts["late"] += now > due + 1.0
                    self.counts["after_cancel"] += id in self.cancelled
                    self.counts["twice"] += id in self.done
                    self.done.add(id)
            self.call("ack", {"receipts": [message["receipt"] for message in messages]})

    def missing(self):
        with self.lock:
            return [id for id in self.due if id not in self.done and id not in self.cancelled and id not in self.unsure]

    def say(self, what=""):
        with self.lock:
            counts = dict(self.counts)
        print(what + ", ".join(f"{name} {count:,}" for name, count in counts.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", required=True, help="addresses of nodes, with spaces between them")
    parser.add_argument("--seconds", type=float, default=0)
    args = parser.parse_args()
    load = Load(args.nodes.split())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    empty = threading.Event()
    threading.Thread(target=load.produce, daemon=True).start()
    for _ in range(4):
        threading.Thread(target=load.consume, args=[empty], daemon=True).start()
    begun = time.time()
    while not args.seconds or time.time() - begun < args.seconds:
        time.sleep(10 if not args.seconds else min(10, max(0.1, begun + args.seconds - time.time())))
        load.say(time.strftime("%H:%M:%S  "))
    load.ending.set()
    until = time.time() + TIMEOUT_S + GRACE_S
    while load.missing() and time.time() < until:
        time.sleep(0.5)
    empty.set()
    load.say("in all: ")
    missing = load.missing()
    print(f"missing {len(missing)} {missing[:5]}")
    sys.exit(bool(missing or load.counts["early"] or load.counts["after_cancel"]))


main()
