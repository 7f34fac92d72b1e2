#!/usr/bin/env python3
"""One of three masters of a Redis Cluster falls silent and nobody replaces it: how late messages of the other two are.

benches/silent_masters.py PROGRAM [--fault paused|killed|dropped|none] [--master 0] [--nodes 1] [--seconds 16]

Everything runs in a network namespace of its own, so that packets can be dropped; needs root, redis-server, redis-cli,
`unshare`, `ip` and `nft`. Producers, a webhook and consumers are in one process beside the nodes. Messages are enqueued
before and while the master is silent, due at once and up to 12 s later, some of them for the silent master. Started by
`chrt -f 5` all of it is before whatever else the machine does.
"""

import argparse
import http.client
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import servers

# The redis does not miss the master within any run.
NODE_TIMEOUT_MS = 600_000
SHARDS = 12
# Messages of each topic and each of these delays, ahead of their due time, and how often.
AHEAD_MS = [0, 300, 1_500, 2_500, 4_000, 12_000]
EVERY_S = 0.1
# Before the fault, messages are enqueued for so long that all delays are due while it lasts.
BEFORE_S = 14
# Requests that wait for the silent master at most, so that they do not use up the producers.
STUCK_MAX = 16
CONSUMERS = 4
# After the last due time whatever has not come is waited for this long.
GRACE_S = 20
# Topics are served for so long before anything is measured.
SETTLE_S = 3
TOPICS = ["hook", "tasks"]
# When a message came that did not come, ms: after everything else.
NEVER = 1e15
MASK = (1 << 64) - 1


def murmur(data, seed):
    """The first half of murmur3 (x64, 128 bit) of fewer than 16 bytes, which is all that ids need here."""
    assert len(data) < 16

    def mixed(k):
        k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & MASK
        k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & MASK
        return k ^ k >> 33

    def turned(k, by):
        return (k << by | k >> 64 - by) & MASK

    low, high = (int.from_bytes(part, "little") for part in (data[:8], data[8:]))
    a, b = 0x87C37B91114253D5, 0x4CF5AD432745937F
    one = (seed ^ turned(low * a & MASK, 31) * b & MASK) ^ len(data)
    two = (seed ^ turned(high * b & MASK, 33) * a & MASK) ^ len(data)
    one = one + two & MASK
    two = two + one & MASK
    return mixed(one) + mixed(two) & MASK


def shard_of(id, seed):
    key, bucket, at = murmur(id.encode(), seed), -1, 0
    while at < SHARDS:
        bucket, key = at, (key * 2862933555777941757 + 1) & MASK
        at = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket


def redis_cli(port, *args):
    return subprocess.run(["redis-cli", "-p", str(port), *args], capture_output=True, text=True, check=True).stdout


class Redis:
    """Three masters without replicas."""

    def __init__(self, folder):
        self.ports, self.processes = [], {}
        for n in range(3):
            # The bus has the port 10,000 above.
            port = 17_000 + n
            options = ["--port", str(port), "--cluster-enabled", "yes", "--save", "", "--appendonly", "no"]
            options += ["--cluster-config-file", f"{port}.conf", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
            log = open(f"{folder}/redis-{port}.log", "w")
            self.processes[port] = subprocess.Popen(["redis-server", *options, "--dir", folder], stdout=log, stderr=log)
            self.ports.append(port)
        for port in self.ports:
            servers.until_open(port)
        create = ["redis-cli", "--cluster", "create", *(f"127.0.0.1:{port}" for port in self.ports), "--cluster-yes"]
        subprocess.run(create, capture_output=True, check=True)
        while any("cluster_state:ok" not in redis_cli(port, "CLUSTER", "INFO") for port in self.ports):
            time.sleep(servers.LOOK_EVERY_S)
        self.url = "redis-cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.slots = {}
        for line in redis_cli(self.ports[0], "CLUSTER", "NODES").splitlines():
            words = line.split()
            first, _, last = words[8].partition("-")
            self.slots[int(words[1].split("@")[0].split(":")[1])] = range(int(first), int(last or first) + 1)

    def master_of(self, slot):
        return next(port for port, slots in self.slots.items() if slot in slots)

    def begin(self, fault, port):
        if fault == "paused":
            self.processes[port].send_signal(signal.SIGSTOP)
        elif fault == "killed":
            self.processes[port].kill()
        elif fault == "dropped":
            rules = "add table ip cut; add chain ip cut in { type filter hook input priority 0; }; "
            drops = [f"add rule ip cut in tcp {field} {port} drop" for field in ("dport", "sport")]
            subprocess.run(["nft", rules + "; ".join(drops)], check=True)

    def end(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


class Asker:
    """One connection to a node."""

    def __init__(self, port):
        self.port, self.connection = port, None

    def ask(self, method, path, body=None, timeout=30):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = None if body is None else json.dumps(body)
            self.connection.request(method, path, text, {"content-type": "application/json"})
            answer = self.connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise


class Came:
    """When each message was handed over first, ms."""

    def __init__(self):
        self.at, self.lock = {}, threading.Lock()

    def note(self, topic, id):
        now = time.time() * 1000
        with self.lock:
            self.at.setdefault((topic, id), now)


def hook(came):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            came.note("hook", self.headers["duetime-id"])
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def consume(port, came, acks):
    asker = Asker(port)
    while True:
        try:
            status, answer = asker.ask("POST", "/v1/topics/tasks/claim", {"max": 50, "wait": "5s"})
        except (OSError, http.client.HTTPException):
            continue
        if status != 200:
            print(json.dumps({"a consumer was refused": status, "answer": answer}), file=sys.stderr)
            time.sleep(EVERY_S)
            continue
        for message in answer["messages"]:
            came.note("tasks", message["id"])
        if answer["messages"]:
            acks.put([message["receipt"] for message in answer["messages"]])


def acknowledge(port, acks):
    asker = Asker(port)
    while True:
        try:
            asker.ask("POST", "/v1/topics/tasks/ack", {"receipts": acks.get()})
        except (OSError, http.client.HTTPException):
            pass


def put(asker, topic, id, ahead_ms):
    due_at = int(time.time() * 1000) + ahead_ms
    status, answer = asker.ask("POST", f"/v1/topics/{topic}/messages", {"id": id, "due_at": due_at, "payload": "x"})
    assert status < 300, answer
    return due_at


def ids_of(topic, seed, shards, wanted):
    """Ids whose home is in these shards, or is not."""
    return (id for id in (f"{topic[0]}{n}" for n in itertools.count()) if (shard_of(id, seed) in shards) == wanted)


def put_to_silent(port, topic, id, ahead_ms, stuck):
    try:
        put(Asker(port), topic, id, ahead_ms)
    except (OSError, http.client.HTTPException, AssertionError):
        pass
    finally:
        stuck.release()


def start_node(given, folder, n, store, hook_port):
    """A node as (port, process)."""
    port, at = servers.free_port(), f"{folder}/n{n}"
    os.mkdir(at)
    settings = f'[node]\nid = "n{n}"\nlisten = "127.0.0.1:{port}"\n[store]\nurl = "{store.url}"\n'
    settings += f'[ownership]\nmode = "{given.mode}"\n'
    settings += f'[sinks.hook]\ntype = "http"\nurl = "http://127.0.0.1:{hook_port}"\nallow = ["127.0.0.1"]\n'
    with open(f"{at}/duetime.toml", "w") as file:
        file.write(settings)
    log = open(f"{at}/log", "w")
    process = subprocess.Popen([given.program, "serve", "--config", "duetime.toml"], cwd=at, stdout=log, stderr=log)
    servers.until_open(port)
    return port, process


def measure(given, folder):
    store, came, processes = Redis(folder), Came(), []
    try:
        hook_port = hook(came)
        for n in range(given.nodes):
            port, process = start_node(given, folder, n, store, hook_port)
            processes.append((port, process))
        ports = [port for port, _ in processes]
        asker, homes, seeds = Asker(ports[0]), {}, {}
        for topic in TOPICS:
            sink = {"sink": {"name": "hook"}} if topic == "hook" else {}
            status, answer = asker.ask("PUT", f"/v1/topics/{topic}", {"shards": SHARDS, **sink})
            assert status < 300, answer
            _, answer = asker.ask("GET", f"/v1/topics/{topic}/shards")
            seeds[topic] = answer["seed"]
            homes[topic] = {shard["index"]: store.master_of(shard["slot"]) for shard in answer["shards"]}
        time.sleep(SETTLE_S)
        silent = store.ports[given.master]
        spared = {topic: [i for i in range(SHARDS) if homes[topic][i] != silent] for topic in TOPICS}
        ids = {(topic, of): ids_of(topic, seeds[topic], spared[topic], of) for topic in TOPICS for of in (True, False)}
        acks = queue.Queue(10_000)
        for port in ports:
            for _ in range(CONSUMERS):
                threading.Thread(target=consume, args=(port, came, acks), daemon=True).start()
                threading.Thread(target=acknowledge, args=(port, acks), daemon=True).start()
        due, stuck = {}, threading.Semaphore(STUCK_MAX)
        begin, began, next_at, number = time.time(), None, time.monotonic(), 0
        askers = [Asker(port) for port in ports]
        while began is None or time.time() - began < given.seconds:
            if began is None and time.time() - begin >= BEFORE_S:
                store.begin(given.fault, silent)
                began = time.time()
            for topic in TOPICS:
                for ahead_ms in AHEAD_MS:
                    id = next(ids[topic, True])
                    number += 1
                    due[topic, id] = (put(askers[number % len(askers)], topic, id, ahead_ms), ahead_ms)
                if stuck.acquire(blocking=False):
                    at, ahead_ms = ports[number % len(ports)], AHEAD_MS[number // len(AHEAD_MS) % len(AHEAD_MS)]
                    args = (at, topic, next(ids[topic, False]), ahead_ms, stuck)
                    threading.Thread(target=put_to_silent, args=args, daemon=True).start()
            next_at += EVERY_S
            time.sleep(max(0, next_at - time.monotonic()))
        end = time.time() + max(AHEAD_MS) / 1000 + GRACE_S
        while time.time() < end and any(key not in came.at for key in due):
            time.sleep(EVERY_S)
        report(given, due, came, began * 1000)
    finally:
        for _, process in processes:
            process.kill()
            process.wait()
        store.end()


def report(given, due, came, began):
    for topic in TOPICS:
        parts = {"before": lambda at, ahead: at < began}
        parts |= {"while it is silent": lambda at, ahead: at >= began}
        parts |= {f"enqueued {ms} ms ahead": lambda at, ahead, ms=ms: at >= began and ahead == ms for ms in AHEAD_MS}
        for name, belongs in parts.items():
            ours = {id: at for (of, id), (at, ahead) in due.items() if of == topic and belongs(at, ahead)}
            late = sorted(came.at.get((topic, id), NEVER) - at for id, at in ours.items())
            counts = {"messages": len(late), "never": sum((topic, id) not in came.at for id in ours)}
            line = {"fault": given.fault, "master": given.master, "nodes": given.nodes, "topic": topic, "of": name}
            found = servers.quantiles(late, p50=0.5, p90=0.9, p99=0.99, max=0.99999)
            print(json.dumps({**line, **counts, **found}), flush=True)
    if given.each:
        for (topic, id), (at, ahead) in sorted(due.items(), key=lambda one: one[1]):
            late = came.at.get((topic, id), NEVER) - at
            if late > given.each:
                due_s = round((at - began) / 1000, 2)
                line = {"topic": topic, "id": id, "due s after the fault": due_s, "ahead": ahead, "late": round(late)}
                print(json.dumps(line))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("--fault", choices=["paused", "killed", "dropped", "none"], default="paused")
    where = "which of the three: 1 has the turns, 2 the catalog"
    arguments.add_argument("--master", type=int, choices=range(3), default=0, help=where)
    arguments.add_argument("--nodes", type=int, default=1)
    arguments.add_argument("--seconds", type=float, default=16)
    arguments.add_argument("--mode", default="round-robin")
    arguments.add_argument("--each", type=float, help="print each message that is later than this, ms")
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    given.program = os.path.abspath(given.program)
    if not given.inside:
        again = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--inside"]
        sys.exit(subprocess.run(["unshare", "-n", *again]).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    folder = tempfile.mkdtemp()
    try:
        measure(given, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
