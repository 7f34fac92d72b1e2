"""Servers that a measurement starts for itself, on free ports of this machine."""

import asyncio
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

TICK = os.sysconf("SC_CLK_TCK")

# How often, and how many times, is looked whether a server listens.
LOOK_EVERY_S = 0.05
LOOKS_MAX = 600


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until_open(port):
    """Waits until somebody listens; a node does once it is ready."""
    for _ in range(LOOKS_MAX):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(LOOK_EVERY_S)
    raise SystemExit(f"nobody listens on port {port}")


def processor_us(process):
    if process is None:
        return 0
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000 / TICK


class Pair:
    """A node, and its redis-server unless its store is embedded, until the end of the block."""

    def __init__(self, program, store, settings=""):
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if store == "redis" else None)
        self.port, self.program, redis = free_port(), program, free_port()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder.name}
        self.redis = None
        if store == "redis":
            self.redis = subprocess.Popen(["redis-server", "--port", str(redis), "--save", ""], **quiet)
            until_open(redis)
        (pathlib.Path(self.folder.name) / "duetime.toml").write_text(settings)
        url = f"redis://127.0.0.1:{redis}" if self.redis else "embedded:data"
        serve = [program, "serve", "--config", "duetime.toml", "--store", url, "--listen", f"127.0.0.1:{self.port}"]
        self.node = subprocess.Popen(serve, **quiet)

    def __enter__(self):
        until_open(self.port)
        return self

    def __exit__(self, *_):
        self.node.send_signal(signal.SIGTERM)
        self.node.wait()
        if self.redis:
            self.redis.kill()
            self.redis.wait()
        self.folder.cleanup()

    def spent(self):
        return processor_us(self.node), processor_us(self.redis)

    def bench(self, *words):
        command = [self.program, "bench", *words, "--node", f"http://127.0.0.1:{self.port}"]
        before = self.spent()
        subprocess.run(command, check=True, cwd=self.folder.name, stdout=subprocess.DEVNULL)
        return [b - a for a, b in zip(before, self.spent())]

    def ask(self, method, path, body):
        url, head = f"http://127.0.0.1:{self.port}{path}", {"content-type": "application/json"}
        asked = urllib.request.Request(url, json.dumps(body).encode(), head, method=method)
        with urllib.request.urlopen(asked) as answer:
            return json.load(answer)


def fill(first, count):
    return [{"id": f"order-{first + n:014}", "payload": "x" * 100} for n in range(count)]


class Receiver(threading.Thread):
    """Answers webhooks in a thread of its own, and counts them."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count, self.port, self.ready = 0, None, threading.Event()
        self.start()
        self.ready.wait()

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await server.serve_forever()

    async def answer(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                names = head.lower().partition(b"content-length:")[2]
                await reader.readexactly(int(names.split(b"\r\n")[0]) if names else 0)
                self.count += 1
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
