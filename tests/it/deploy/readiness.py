"""What `/readyz` says while one of three masters is paused or gone, a sink is down, and then while all masters are gone.

Whatever harms a part leaves each node in the Service, with what it found; what harms all of it does not.
"""

import json
import os
import signal
import socket
import time
import urllib.error

from lab import FOLDER, ROOT, Child, Node, ask, free_port, run, until

HOLDS_S = 3
"""For so long it is asked again and again: longer than what is silent is waited for."""


def server():
    port = free_port()
    folder = os.path.join(FOLDER, f"redis-{port}")
    os.makedirs(folder)
    one = Child(f"redis-{port}", [
        "redis-server", "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-node-timeout", "60000",
        "--cluster-require-full-coverage", "no", "--maxmemory-policy", "noeviction", "--save", "",
    ], cwd=folder)
    one.port = port
    until(lambda: run("redis-cli", "-p", port, "ping").strip() == "PONG", one.name)
    return one


redis = [server() for _ in range(3)]
run(os.path.join(ROOT, "deploy/redis/cluster"), 0, *(f"127.0.0.1:{one.port}" for one in redis))
with socket.socket() as nobody:
    nobody.bind(("127.0.0.1", 0))
    dead_port = nobody.getsockname()[1]
config = os.path.join(FOLDER, "duetime.toml")
with open(config, "w") as file:
    file.write(f'[sinks.hook]\ntype = "http"\nurl = "http://127.0.0.1:{dead_port}/"\nallow = ["127.0.0.1"]\n')
store = "redis-cluster://" + ",".join(f"127.0.0.1:{one.port}" for one in redis)
nodes = [Node(f"node-{n}", ["--config", config, "--store", store, "--ownership", "round-robin"]) for n in (1, 2)]


def ready(node):
    try:
        return 200, ask(node.url, "GET", "/readyz")
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def holds(servers, sinks, issue):
    """Each node serves all the time, and soon says this of its dependencies."""
    end = time.monotonic() + HOLDS_S
    while time.monotonic() < end:
        for node in nodes:
            status, said = ready(node)
            assert status == 200, (node.name, said)
        time.sleep(0.2)
    for node in nodes:
        def says(node=node):
            status, said = ready(node)
            assert status == 200, (node.name, said)
            found = said["found"]
            return found["servers"] == servers and found["sinks"] == sinks and any(issue in one for one in said["issues"])

        until(says, f"{node.name} says {servers}, {sinks}, {issue}: {ready(node)}")


for topic in ("orders", "hooks"):
    ask(nodes[0].url, "PUT", f"/v1/topics/{topic}", {"shards": 12, **({"sink": {"name": "hook"}} if topic == "hooks" else {})})
until(lambda: all(len(ask(node.url, "GET", "/v1/topics")["topics"]) == 2 for node in nodes), "topics are known")
for node in nodes:
    until(lambda node=node: ready(node)[1]["found"]["servers"] == "3 of 3 answer", node.name)

ask(nodes[0].url, "POST", "/v1/topics/hooks/messages", [{"id": f"m-{n}"} for n in range(200)])
down = "these take nothing: hook"
holds("3 of 3 answer", down, "hook")
# The one that has the catalog is among them.
for one in redis:
    one.process.send_signal(signal.SIGSTOP)
    holds("2 of 3 answer", down, "1 of 3 servers of the store do not answer")
    one.process.send_signal(signal.SIGCONT)
    for node in nodes:
        until(lambda node=node: ready(node)[1]["found"]["servers"] == "3 of 3 answer", node.name)
redis[0].end(signal.SIGKILL)
holds("2 of 3 answer", down, "1 of 3 servers of the store do not answer")
for one in redis[1:]:
    one.end(signal.SIGKILL)
for node in nodes:
    until(lambda node=node: ready(node)[0] == 503, f"{node.name} is taken out")
    status, said = ready(node)
    assert status == 503 and said["found"]["servers"] == "0 of 3 answer", said
    assert said["code"] == "store_unavailable" and said["found"]["store"] == "does not serve, see detail", said
