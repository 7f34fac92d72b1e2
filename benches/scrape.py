#!/usr/bin/env python3
"""A node with many topics, and how long a scrape of its metrics takes over HTTP.

benches/scrape.py PROGRAM [--topics 1000] [--shards 8] [--scrapes 301]

Started with `chrt -f 5` both are before whatever else the machine does, so that the longest is that of the node.

Then, how long others wait: a small request again and again, alone and while two processes scrape without a pause.
"""

import argparse
import http.client
import json
import multiprocessing
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
# Between two small requests.
OTHERS_PAUSE_S = 0.001


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


def shares(took):
    took.sort()
    return {name: round(took[int(len(took) * part)], 2) for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 0.99999))}


def scrape_on(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        ask(connection, "GET", "/metrics")


def others(connection, asked):
    took = []
    for _ in range(asked):
        begin = time.monotonic()
        ask(connection, "GET", "/healthz")
        took.append((time.monotonic() - begin) * 1000)
        time.sleep(OTHERS_PAUSE_S)
    return shares(took)


def beside(connection, port, asked):
    alone = others(connection, asked)
    scrapers = [multiprocessing.Process(target=scrape_on, args=(port,), daemon=True) for _ in range(2)]
    for one in scrapers:
        one.start()
    time.sleep(PAUSE_S * 20)
    print(json.dumps({"small requests": asked, "alone, ms": alone, "beside scrapes, ms": others(connection, asked)}))
    for one in scrapers:
        one.kill()


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
    at = shares(took)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    print(json.dumps({"topics": given.topics, "series": series, "bytes": len(text), **at, "processor ms": round(cost, 1)}))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("--topics", type=int, default=1000)
    arguments.add_argument("--shards", type=int, default=8)
    arguments.add_argument("--scrapes", type=int, default=301)
    arguments.add_argument("--small", type=int, default=3000, help="small requests, alone and again beside scrapes")
    given = arguments.parse_args()
    with servers.Pair(os.path.abspath(given.program), "embedded") as pair:
        connection = http.client.HTTPConnection("127.0.0.1", pair.port)
        measure(connection, pair.node.pid, given)
        beside(connection, pair.port, given.small)


if __name__ == "__main__":
    sys.exit(main())
