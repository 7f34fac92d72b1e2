#!/usr/bin/env python3
"""A quick topic beside a hundred slow ones that share its webhook: how late its messages arrive.

benches/shared_webhook.py PROGRAM [--slow 100] [--messages 2000]
"""

import argparse
import asyncio
import json
import sys
import time
import urllib.request

import servers

# How long a slow answer takes, and how far apart the messages of the quick topic are.
SLOW_S = 5
APART_S = 0.01

late = []
slow_posts = 0
# Message ids of the quick topic, each of which may come once.
came = set()


async def answer(reader, writer):
    """One connection of the node, until its end."""
    global slow_posts
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            now = time.time() * 1000
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            await reader.readexactly(int(headers.get("content-length", 0)))
            if "/slow" in lines[0]:
                slow_posts += 1
                await asyncio.sleep(SLOW_S)
            elif "/quick" in lines[0]:
                late.append(now - int(headers["duetime-due-at"]))
                came.add(headers["duetime-id"])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        writer.close()


def ask(port, method, path, body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


async def quick(port, count, name):
    """Sends the quick topic's messages at a steady pace, from a thread, and waits for all."""
    late.clear()
    came.clear()
    begin = time.monotonic()
    for n in range(count):
        message = {"id": f"{name}-{n}", "due_at": int(time.time() * 1000) + 100, "payload": "x"}
        await asyncio.to_thread(ask, port, "POST", "/v1/topics/quick/messages", message)
        await asyncio.sleep(max(0, begin + (n + 1) * APART_S - time.monotonic()))
    end = time.monotonic() + 60
    while len(came) < count and time.monotonic() < end:
        await asyncio.sleep(0.1)
    found = sorted(late)
    at = servers.quantiles(found, p50=0.5, p99=0.99, max=0.99999)
    return {"sent": count, "came": len(came), "twice": len(found) - len(came), "earliest": round(found[0], 1), **at}


async def measure(given):
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    hook = server.sockets[0].getsockname()[1]
    settings = f'[sinks.hook]\ntype = "http"\nurl = "http://127.0.0.1:{hook}"\nallow = ["127.0.0.1"]\n'
    with servers.node(given.program, settings) as (port, _):
        await asyncio.to_thread(ask, port, "PUT", "/v1/topics/quick", {"shards": 4, "sink": {"name": "hook", "path": "/quick"}})
        print(json.dumps({"slow topics": 0, **await quick(port, given.messages, "alone")}), flush=True)
        for n in range(given.slow):
            topic = {"shards": 1, "sink": {"name": "hook", "path": "/slow"}}
            await asyncio.to_thread(ask, port, "PUT", f"/v1/topics/slow-{n}", topic)
            messages = [{"id": f"m{m}", "delay": 0, "payload": "x"} for m in range(100)]
            await asyncio.to_thread(ask, port, "POST", f"/v1/topics/slow-{n}/messages", messages)
        await asyncio.sleep(2)
        before = slow_posts
        measured = await quick(port, given.messages, "beside")
        print(json.dumps({"slow topics": given.slow, **measured, "slow posts meanwhile": slow_posts - before}))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("program")
    arguments.add_argument("--slow", type=int, default=100)
    arguments.add_argument("--messages", type=int, default=2_000)
    asyncio.run(measure(arguments.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
