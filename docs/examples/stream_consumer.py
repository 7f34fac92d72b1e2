#!/usr/bin/env python3
"""A consumer of a topic that is handed over in place: reads the streams of all its shards as a group.

    python3 stream_consumer.py --node http://127.0.0.1:3830 --redis redis://127.0.0.1:6379 --topic orders

Start as many as you like, on any machine: the group shares the entries out. Needs redis-py.
"""

import argparse
import json
import os
import socket
import time
import urllib.request

import redis

BATCH = 100
BLOCK_MS = 1000
# An entry that its consumer has not acked for this long is taken over.
TAKE_OVER_MS = 60_000


def streams_of(node, topic):
    """The streams of the topic, one for each shard. Ask again now and then: the number of shards may change."""
    with urllib.request.urlopen(f"{node}/v1/topics/{topic}/shards") as answer:
        shards = json.load(answer)["shards"]
    return [f"duetime:{{{shard['tag']}}}:{topic}:{shard['index']}:stream" for shard in shards]


def handle(fields):
    """Your work. It may see an entry again if it is killed before the ack."""
    print(fields[b"id"].decode(), fields[b"payload"].decode(errors="replace"), flush=True)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--node", default="http://127.0.0.1:3830")
    ask.add_argument("--redis", default="redis://127.0.0.1:6379")
    ask.add_argument("--topic", required=True)
    ask.add_argument("--group", default="consumers")
    ask.add_argument("--until-idle", type=float, help="end after so many seconds without an entry")
    ask = ask.parse_args()

    server = redis.Redis.from_url(ask.redis)
    me = f"{socket.gethostname()}-{os.getpid()}"
    streams = streams_of(ask.node, ask.topic)
    for stream in streams:
        try:
            server.xgroup_create(stream, ask.group, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
    last = time.monotonic()
    while ask.until_idle is None or time.monotonic() - last < ask.until_idle:
        block = BLOCK_MS if ask.until_idle is None else int(min(BLOCK_MS, ask.until_idle * 1000 / 2))
        found = server.xreadgroup(ask.group, me, {stream: ">" for stream in streams}, count=BATCH, block=block)
        for stream in streams:
            _, left, *_ = server.xautoclaim(stream, ask.group, me, min_idle_time=TAKE_OVER_MS, count=BATCH)
            if left:
                found.append((stream, left))
        for stream, entries in found:
            for _, fields in entries:
                handle(fields)
            done = [entry for entry, _ in entries]
            # Acked and done with: without XDEL the stream keeps it until `max_length` cuts it off.
            server.pipeline().xack(stream, ask.group, *done).xdel(stream, *done).execute()
            last = time.monotonic()


if __name__ == "__main__":
    main()
