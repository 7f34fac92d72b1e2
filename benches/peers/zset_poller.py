"""The delay queue of a hundred blog posts: one ZSET, body in the member, a poller that removes what is due.

Pipelined as far as the design goes: a `ZREM` of its own for each message says who won it. At most once:
what the poller has removed and not yet handled is lost when it dies. Needs redis-py.
"""

import argparse
import json
import threading
import time

import redis

PIPELINE = 1000
POLL_S = 0.1
PAGE = 1000
KEY = b"bench:zset"


def member(n, payload):
    return b"%020d|" % n + payload


class Poller:
    def __init__(self, port):
        self.redis = redis.Redis(port=port)

    def clear(self):
        self.redis.delete(KEY)

    def put(self, first, count, due_ms, payload):
        end = first + count
        for start in range(first, end, PIPELINE):
            pipe = self.redis.pipeline(transaction=False)
            for n in range(start, min(start + PIPELINE, end)):
                pipe.zadd(KEY, {member(n, payload): due_ms(n)})
            pipe.execute()

    def take(self):
        due = self.redis.zrangebyscore(KEY, "-inf", time.time_ns() // 1_000_000, start=0, num=PAGE)
        pipe = self.redis.pipeline(transaction=False)
        for one in due:
            pipe.zrem(KEY, one)
        return [one for one, won in zip(due, pipe.execute()) if won]


def lateness(port, rate, seconds, payload):
    producer, poller = Poller(port), Poller(port)
    count, ahead = rate * seconds, 3000
    begin = time.time_ns() // 1_000_000 + ahead
    due_ms = lambda n: begin + n * 1000 // rate

    def produce():
        sent, start = 0, time.monotonic()
        while sent < count:
            time.sleep(0.005)
            until = min(count, int((time.monotonic() - start) * rate))
            producer.put(sent, until - sent, due_ms, payload)
            sent = until

    thread = threading.Thread(target=produce)
    thread.start()
    late_us = []
    while len(late_us) < count:
        got = poller.take()
        now_us = time.time_ns() // 1000
        late_us += [now_us - due_ms(int(one[:20])) * 1000 for one in got]
        if len(got) < PAGE:
            time.sleep(POLL_S)
    thread.join()
    late_us = sorted(late_us[2 * rate :])
    at = lambda q: round(late_us[min(int(len(late_us) * q), len(late_us) - 1)] / 1000, 3)
    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": at(1.0), "early": sum(us < 0 for us in late_us)}


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--port", type=int, required=True, help="of a Redis server that may be emptied")
    asked.add_argument("--count", type=int, default=300_000)
    asked.add_argument("--rate", type=int, default=2_000)
    asked.add_argument("--seconds", type=int, default=15)
    asked = asked.parse_args()
    payload, poller = bytes(97 + n * 7 % 26 for n in range(100)), Poller(asked.port)
    poller.clear()

    past = time.time_ns() // 1_000_000
    began = time.perf_counter()
    poller.put(0, asked.count, lambda n: past, payload)
    enqueue_s = time.perf_counter() - began

    began, drained = time.perf_counter(), 0
    while drained < asked.count:
        drained += len(poller.take())
    drain_s = time.perf_counter() - began

    late = lateness(asked.port, asked.rate, asked.seconds + 2, payload)
    poller.clear()
    print(json.dumps({
        "peer": "Python + ZSET poller",
        "enqueue_per_s": round(asked.count / enqueue_s),
        "drain_per_s": round(asked.count / drain_s),
        "lateness": late,
    }))


main()
