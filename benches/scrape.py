#!/usr/bin/env python3
"""A node with many topics, and how long a scrape of its metrics takes over HTTP.

benches/scrape.py PROGRAM [--topics 1000] [--shards 8] [--scrapes 301]

Started with `chrt -f 5` both are before whatever else the machine does, so that the longest is that of the node.
"""

import argparse
import http.client
import json
import os
import sys
import time

import servers

# Due messages that each topic is given.
MESSAGES = 8
# Until the surveys have seen them.
SETTLE_S = 3
# Between two scrapes.
PAUSE_S = 0.01


def processor_s(process):
    used = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
    return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")


def ask(connection, method, path, body=None):
    headers = {"content-type": "application/json"} if body is not None else {}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status < 300, text
    return text


def measure(connection, process, given):
    for n in range(given.topics):
        topic = f"/v1/topics/a-topic-of-this-name-{n}"
        ask(connection, "PUT", topic, {"shards": given.shards})
        ask(connection, "POST", f"{topic}/messages", [{"id": f"{n}", "delay": 0} for n in range(MESSAGES)])
    time.sleep(SETTLE_S)
    took, before = [], processor_s(process)
    for _ in range(given.scrapes):
        begin = time.monotonic()
        text = ask(connection, "GET", "/metrics")
        took.append((time.monotonic() - begin) * 1000)
        time.sleep(PAUSE_S)
    cost = (processor_s(process) - before) / given.scrapes * 1000
    took.sort()
    at = servers.quantiles(took, p50=0.5, p90=0.9, p99=0.99, max=0.99999)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    print(json.dumps({"topics": given.topics, "series": series, "bytes": len(text), **at, "processor ms": round(cost, 1)}))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("--topics", type=int, default=1000)
    arguments.add_argument("--shards", type=int, default=8)
    arguments.add_argument("--scrapes", type=int, default=301)
    given = arguments.parse_args()
    with servers.node(given.program) as (port, node):
        measure(http.client.HTTPConnection("127.0.0.1", port), node.pid, given)


if __name__ == "__main__":
    sys.exit(main())
