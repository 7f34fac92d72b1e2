#!/usr/bin/env python3
"""A load for deploy/try: orders are enqueued with a timeout, most are paid and cancelled, the rest are claimed; mails go to a
webhook of this program, which is down for three minutes of eight: long enough that DuetimeSinkDown calls, which takes two.

Says every ten seconds what happened. Ends after --seconds (0: never) and then waits for what is still due; its status is
not 0 if something was early, an order was delivered although its cancel was acknowledged, or something did not come. Nothing but
Python's own library.
"""

import argparse
import http.server
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
MAILS_PER_SECOND = 5
HOOK_UP_S, HOOK_DOWN_S, HOOK_FIRST_UP_S = 300, 180, 60
"""The webhook: how long it is up and down in turn, and how long it is up at first."""


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
        self.hook_up = threading.Event()

    def call(self, path, body, topic="orders"):
        """Asks one node after the other: each of them can do all."""
        start = random.randrange(len(self.nodes))
        for turn in range(len(self.nodes) * 10):
            node = self.nodes[(start + turn) % len(self.nodes)]
            request = urllib.request.Request(
                f"{node}/v1/topics/{topic}/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                    return json.load(answer)
            except (urllib.error.URLError, OSError, ValueError):
                with self.lock:
                    self.counts["errors"] += 1
                time.sleep(0.1)
        return None

    def enqueue(self, ids, due, topic="orders"):
        for at in range(0, len(ids), BATCH):
            part = ids[at : at + BATCH]
            with self.lock:
                self.due.update(dict.fromkeys(part, due))
            answer = self.call("messages", [{"id": id, "due_at": int(due * 1000)} for id in part], topic)
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
            self.enqueue([f"mail-{id[6:]}" for id in ids[:MAILS_PER_SECOND]], begun + TIMEOUT_S, "mails")
            if begun >= next_herd:
                next_herd = begun + HERD_EVERY_S
                self.enqueue([f"herd-{int(begun)}-{n}" for n in range(HERD)], begun + TIMEOUT_S)
            self.ending.wait(max(0.0, 1.0 - (time.time() - begun)))

    def came(self, id, now):
        """Counts what was delivered; the caller holds the lock."""
        due = self.due.get(id)
        if due is None:
            return
        self.counts["delivered"] += 1
        self.counts["early"] += now < due - 0.001
        self.counts["late"] += now > due + 1.0
        self.counts["after_cancel"] += id in self.cancelled
        self.counts["twice"] += id in self.done
        self.done.add(id)

    def hook(self, port):
        """A webhook that is up, then down, then up again. At the end of the load it stays up."""
        load = self

        class Hook(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                if not load.hook_up.is_set():
                    self.close_connection = True
                    self.send_response(503)
                else:
                    with load.lock:
                        load.came(self.headers["duetime-id"], time.time())
                    self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Hook)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.hook_up.set()
        up_for = HOOK_FIRST_UP_S
        while not self.ending.wait(up_for):
            print(f"{time.strftime('%H:%M:%S')}  the mailer is down for {HOOK_DOWN_S} s: duetime sink get mails", flush=True)
            self.hook_up.clear()
            self.ending.wait(HOOK_DOWN_S)
            self.hook_up.set()
            print(f"{time.strftime('%H:%M:%S')}  the mailer is up again", flush=True)
            up_for = HOOK_UP_S

    def consume(self, until_empty):
        while not until_empty.is_set():
            claim = self.call("claim", {"max": 256, "wait": "1s"})
            messages = (claim or {}).get("messages", [])
            now = time.time()
            if not messages:
                continue
            with self.lock:
                for message in messages:
                    self.came(message["id"], now)
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
    parser.add_argument("--hook", type=int, required=True, help="the port of the webhook")
    args = parser.parse_args()
    load = Load(args.nodes.split())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    empty = threading.Event()
    threading.Thread(target=load.hook, args=[args.hook], daemon=True).start()
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
