"""beanstalkd with its binlog, pipelined on one connection. Its delays are whole seconds."""

import argparse
import json
import socket
import threading
import time

PIPELINE = 64
DELAY_S = 3


class Beanstalk:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read = self.socket.makefile("rb", 1 << 20)

    def put(self, bodies, delay_s):
        """So many puts in one write; every answer is read."""
        self.socket.sendall(b"".join(b"put 0 %d 60 %d\r\n%s\r\n" % (delay_s, len(b), b) for b in bodies))
        for _ in bodies:
            line = self.read.readline()
            if not line.startswith(b"INSERTED"):
                raise RuntimeError(line)

    def reserve(self, n):
        self.socket.sendall(b"reserve\r\n" * n)

    def reserved(self):
        """The next job, as id and body; answers to deletes are passed over."""
        while True:
            line = self.read.readline()
            if line.startswith(b"RESERVED"):
                _, job, size = line.split()
                return job, self.read.read(int(size) + 2)[:-2]
            if not line.startswith(b"DELETED"):
                raise RuntimeError(line)


def body(n, payload):
    return b"%020d|" % n + payload


def drain(port, count):
    worker = Beanstalk(port)
    worker.reserve(PIPELINE)
    for _ in range(0, count, PIPELINE):
        jobs = [worker.reserved()[0] for _ in range(min(PIPELINE, count))]
        count -= len(jobs)
        again = min(PIPELINE, count)
        worker.socket.sendall(b"".join(b"delete %s\r\n" % job for job in jobs) + b"reserve\r\n" * again)


def lateness(port, rate, seconds, payload):
    producer, worker = Beanstalk(port), Beanstalk(port)
    count = rate * seconds

    def produce():
        sent, start = 0, time.monotonic()
        while sent < count:
            time.sleep(0.005)
            until = min(count, int((time.monotonic() - start) * rate))
            # The due time is counted from before the put is sent: beanstalkd counts from a little later.
            due_us = time.time_ns() // 1000 + DELAY_S * 1_000_000
            if until > sent:
                producer.put([body(due_us, payload)] * (until - sent), DELAY_S)
            sent = until

    thread = threading.Thread(target=produce)
    thread.start()
    late_us = []
    worker.reserve(PIPELINE)
    while len(late_us) < count:
        job, what = worker.reserved()
        late_us.append(time.time_ns() // 1000 - int(what[:20]))
        worker.socket.sendall(b"delete %s\r\nreserve\r\n" % job)
    thread.join()
    late_us = sorted(late_us[2 * rate :])
    at = lambda q: round(late_us[min(int(len(late_us) * q), len(late_us) - 1)] / 1000, 3)
    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": at(1.0), "early": sum(us < 0 for us in late_us)}


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--port", type=int, required=True)
    asked.add_argument("--count", type=int, default=300_000)
    asked.add_argument("--rate", type=int, default=2_000)
    asked.add_argument("--seconds", type=int, default=15)
    asked = asked.parse_args()
    payload, producer = bytes(97 + n * 7 % 26 for n in range(100)), Beanstalk(asked.port)

    began = time.perf_counter()
    for start in range(0, asked.count, PIPELINE):
        producer.put([body(n, payload) for n in range(start, min(start + PIPELINE, asked.count))], 0)
    enqueue_s = time.perf_counter() - began

    began = time.perf_counter()
    drain(asked.port, asked.count)
    drain_s = time.perf_counter() - began

    print(json.dumps({
        "peer": "beanstalkd",
        "enqueue_per_s": round(asked.count / enqueue_s),
        "drain_per_s": round(asked.count / drain_s),
        "lateness": lateness(asked.port, asked.rate, asked.seconds + 2, payload),
    }))


main()
