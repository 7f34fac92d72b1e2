"""The Redis Cluster of deploy/compose/compose.yaml without Docker: laid out, filled, taken `down`, brought `up`, and all is there.

The commands are those of the file; volumes are folders, and addresses are of the loopback network.
"""

import ipaddress
import os
import signal

import yaml
from lab import FOLDER, ROOT, Child, Node, ask, free_port, run, until

with open(os.path.join(ROOT, "deploy/compose/compose.yaml")) as file:
    compose = yaml.safe_load(file)
services, volumes = compose["services"], compose["volumes"]
members = sorted(name for name in services if name.startswith("redis-"))
assert len(members) == 6, members

# What keeps data has a volume with a name; an anonymous one is new at each `up`.
for name, path in [*((name, "/data") for name in members), ("etcd", "/etcd-data"), ("prometheus", "/prometheus"),
                   ("alertmanager", "/alertmanager"), ("grafana", "/var/lib/grafana")]:
    mounted = [given.split(":") for given in services[name].get("volumes", [])]
    named = [source for source, target, *_ in mounted if target == path and source in volumes]
    assert named == [name], f"{name} has no volume of its own at {path}: {mounted}"
assert "--data-dir /etcd-data" in " ".join(services["etcd"]["command"])
assert "--storage.tsdb.path=/prometheus" in services["prometheus"]["command"]

# The addresses are fixed, in the network, and none that another service may be given.
network = compose["networks"]["default"]["ipam"]["config"][0]
subnet, pool = ipaddress.ip_network(network["subnet"]), ipaddress.ip_network(network["ip_range"])
fixed = [services[name]["networks"]["default"]["ipv4_address"] for name in members]
assert len(set(fixed)) == 6
for address in map(ipaddress.ip_address, fixed):
    assert address in subnet and address not in pool and address != next(subnet.hosts()), address

here = {address: "127" + address[address.index("."):] for address in fixed}
port = free_port(here.values())


def local(text):
    for address, loopback in here.items():
        text = text.replace(f"-h {address}", f"-h {loopback} -p {port}").replace(f"{address}:6379", f"{loopback}:{port}")
    return text


def server(name, address):
    folder = os.path.join(FOLDER, name)
    os.makedirs(folder)
    # In a container the program is alone: its port and its address are the only ones, and the image lets others reach it.
    alone = ["--port", port, "--bind", address, "--bind-source-addr", address, "--protected-mode", "no"]
    return Child(name, [*services[name]["command"], *alone], cwd=folder)


def lay_out():
    script, = services["cluster"]["command"]
    run("sh", "-c", local(script.replace("$$", "$")))


def healthy():
    for address in here.values():
        until(lambda address=address: run("redis-cli", "-h", address, "-p", port, "ping").strip() == "PONG", address)


redis = [server(name, address) for name, address in zip(members, here.values())]
healthy()
lay_out()
store = f"redis-cluster://{','.join(f'{address}:{port}' for address in list(here.values())[:3])}"
node = Node("node", ["--store", store, "--ownership", "solo"])
ask(node.url, "PUT", "/v1/topics/orders", {"shards": 12})
answer = ask(node.url, "POST", "/v1/topics/orders/messages", [{"id": f"m{n}", "delay": "1h"} for n in range(500)])
assert all(result["outcome"] == "scheduled" for result in answer["results"])
layout = sorted(line.split()[0] for line in run("redis-cli", "-h", "127.30.38.10", "-p", port, "cluster", "nodes").splitlines())

for how in (signal.SIGTERM, signal.SIGKILL):
    assert node.end() == 0
    for one in redis:
        one.end(how)
    for one in redis:
        one.start()
    healthy()
    lay_out()
    node.start()
    node.ready()
    known = run("redis-cli", "-h", "127.30.38.10", "-p", port, "cluster", "nodes").splitlines()
    assert sorted(line.split()[0] for line in known) == layout, "another cluster was laid out"
    there = ask(node.url, "GET", "/v1/topics/orders")["scheduled"]
    assert there == 500, f"{there} of 500 messages are there after {how!r}"
