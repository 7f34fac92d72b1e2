#!/usr/bin/env python3
"""Memory of Redis for the same delayed messages in BullMQ and in Duetime: same ids, payloads and due times.

benches/peers/bullmq_memory.py PROGRAM NODE_MODULES [MESSAGES]

NODE_MODULES is a folder made by `npm install bullmq ioredis`. Each has a redis-server of its own, empty at the start.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

BATCH = 1000
START_MAX_S = 30
FILL = """
import { createRequire } from "node:module";
const require = createRequire(process.argv[2] + "/");
const { Queue } = require("bullmq");
const queue = new Queue("orders", { connection: { port: Number(process.argv[3]) } });
let text = "";
for await (const part of process.stdin) text += part;
const jobs = text.trim().split("\\n").map(JSON.parse);
for (let at = 0; at < jobs.length; at += %d) {
  const part = jobs.slice(at, at + %d);
  const delay = (job) => job.due_at - Date.now();
  await queue.addBulk(
    part.map((job) => ({ name: "close", data: job.payload, opts: { jobId: job.id, delay: delay(job), attempts: 5 } })),
  );
}
await queue.close();
""" % (BATCH, BATCH)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def until(done):
    end = time.monotonic() + START_MAX_S
    while not done():
        if time.monotonic() > end:
            sys.exit("a server did not start")
        time.sleep(0.05)


def redis(port, *words):
    return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True).stdout


def used(port):
    return int(redis(port, "info", "memory").split("used_memory:")[1].split()[0])


def is_ready(url):
    try:
        return urllib.request.urlopen(f"{url}/readyz", timeout=2).status == 200
    except OSError:
        return False


def measure(folder, fill):
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", folder]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(lambda: "PONG" in redis(port, "ping"))
        before = used(port)
        fill(port)
        return used(port) - before
    finally:
        server.kill()
        server.wait()


def main():
    program, modules = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 50_000
    first = int(time.time() * 1000) + 3_600_000
    lines = "".join(
        json.dumps({"id": f"order-{n}", "due_at": first + n * 10, "payload": {"order": n, "shop": "x" * 30}}) + "\n"
        for n in range(count)
    )
    folder = tempfile.mkdtemp(prefix="duetime-memory-")

    def bullmq(port):
        script = pathlib.Path(folder) / "fill.mjs"
        script.write_text(FILL)
        subprocess.run(["node", script, modules, str(port)], input=lines, text=True, check=True)

    def duetime(port):
        url = f"http://127.0.0.1:{free_port()}"
        store = ["--store", f"redis://127.0.0.1:{port}", "--listen", url.removeprefix("http://")]
        node = subprocess.Popen([program, "serve", *store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: is_ready(url))
            to = {"env": {**os.environ, "DUETIME_NODE": url}, "check": True, "stdout": subprocess.DEVNULL}
            subprocess.run([program, "topic", "create", "orders"], **to)
            subprocess.run([program, "import", "orders", "-"], input=lines, text=True, **to)
        finally:
            node.kill()
            node.wait()

    version = json.loads((pathlib.Path(modules) / "node_modules/bullmq/package.json").read_text())["version"]
    server = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout.split(" sha")[0]
    print(f"{count} messages; {server}")
    for name, fill in ((f"BullMQ {version}", bullmq), ("Duetime", duetime)):
        print(f"{name}: {measure(folder, fill) / count:.0f} bytes a message")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
