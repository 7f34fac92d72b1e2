#!/usr/bin/env python3
"""A consumer of a topic that is delivered in place: reads the streams of all its shards as a group.

    python3 stream_consumer.py --node http://127.0.0.1:3830 --redis redis://127.0.0.1:6379 --topic orders

Start as many as you like, on any machine: the group shares the entries out. With --cluster the address is that of any
node of a Redis Cluster. The shard count may change meanwhile, or while no consumer runs: the shards are asked for again
every few seconds, and a stream that no shard has any more is read until it is empty. Needs redis-py.
"""

import argparse
import json
import os
import socket
import time
import urllib.request

import redis

# Most entries of one stream at a time.
BATCH = 100
# With nothing to read, how long until the streams are read again.
IDLE_S = 0.1
# How often the shards are asked for, and entries of consumers that are gone are looked for.
SHARDS_EVERY_S = 3
# An entry that its consumer has not acked for this long is taken over.
TAKE_OVER_MS = 60_000


def streams_of(node, topic):
    """The keys of the topic's streams: one for each shard, and those of shards that it has no more."""
    request = urllib.request.Request(f"{node}/v1/topics/{topic}/shards")
    if token := os.environ.get("DUETIME_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        shape = json.load(answer)
    return [shard["stream"] for shard in shape["shards"]], shape.get("retired_streams", [])


def handle(fields):
    """Your work. It may see an entry again if it is killed before the ack."""
    print(fields[b"id"].decode(), fields[b"payload"].decode(errors="replace"), flush=True)


def join(server, stream, group):
    """Makes the group, unless it is there; from the beginning, so that nothing delivered before is left out."""
    try:
        server.xgroup_create(stream, group, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def take(server, stream, group, me, take_over):
    """Handles what one stream has for us, and returns how much that was. One stream a call: in a cluster each has a slot
    of its own."""
    found = server.xreadgroup(group, me, {stream: ">"}, count=BATCH) or []
    entries = [entry for _, some in found for entry in some]
    if take_over:
        _, left, *_ = server.xautoclaim(stream, group, me, min_idle_time=TAKE_OVER_MS, count=BATCH)
        entries += [(entry, fields) for entry, fields in left if fields]
    for entry, fields in entries:
        handle(fields)
        # Acked and done with: without XDEL the stream keeps it until `max_length` cuts it off.
        server.xack(stream, group, entry)
        server.xdel(stream, entry)
    return len(entries)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--node", default="http://127.0.0.1:3830")
    ask.add_argument("--redis", default="redis://127.0.0.1:6379")
    ask.add_argument("--cluster", action="store_true", help="the address is that of a node of a Redis Cluster")
    ask.add_argument("--topic", required=True)
    ask.add_argument("--group", default="consumers")
    ask = ask.parse_args()

    server = (redis.RedisCluster if ask.cluster else redis.Redis).from_url(ask.redis)
    me = f"{socket.gethostname()}-{os.getpid()}"
    streams, current, retired, asked_at = [], [], [], None
    while True:
        due = asked_at is None or time.monotonic() - asked_at > SHARDS_EVERY_S
        if due:
            try:
                (current, retired), asked_at = streams_of(ask.node, ask.topic), time.monotonic()
            except OSError as error:
                # The node may be restarting; the streams are there without it.
                print(f"cannot ask for the shards: {error}", flush=True)
                asked_at = time.monotonic()
            for stream in current + [one for one in retired if server.xlen(one)]:
                if stream not in streams:
                    join(server, stream, ask.group)
                    streams.append(stream)
        count = 0
        for stream in list(streams):
            got = take(server, stream, ask.group, me, take_over=due)
            count += got
            # Of a shard that is no more, and empty: nothing is appended to it until a shard has this number again.
            if stream not in current and not got and server.xlen(stream) == 0:
                streams.remove(stream)
        if not count:
            time.sleep(IDLE_S)


if __name__ == "__main__":
    main()
