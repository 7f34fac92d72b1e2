#!/usr/bin/env python3
"""Twenty thousand connections that send nothing, and how long `/healthz` takes meanwhile.

benches/silent_connections.py PROGRAM [--silent 20000] [--connections 8192]

What opens the connections runs at an ordinary priority: started with `chrt -f 5`, the node and the one that asks are before it,
as if the others were on machines of their own. Else they take the processors from the node, which then is not measured.
"""

import argparse
import json
import multiprocessing
import os
import resource
import socket
import sys
import threading
import time

import servers

# Addresses that the connections come from, so that the bound over all is reached and not only that of one address.
ADDRESSES = 16
# Processes that hold them: one may have fewer files open.
HOLDERS = 4
# How often /healthz is asked, and for how long once all connections are open.
EVERY_S = 0.002
AFTER_S = 10


def health(port):
    """Milliseconds, on a connection of its own."""
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    return (time.monotonic() - begin) * 1000


def overflows():
    """Connections that this machine did not take because the queue of those to be accepted was full."""
    names, values = [line.split() for line in open("/proc/net/netstat") if line.startswith("TcpExt:")]
    return int(dict(zip(names, values))["ListenOverflows"])


def hold(port, count, first, are_open):
    """Opens connections and keeps them."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    held = []
    for n in range(first, first + count):
        connection = socket.socket()
        connection.bind((f"127.0.{1 + n % ADDRESSES}.1", 0))
        connection.connect(("127.0.0.1", port))
        held.append(connection)
    are_open.release()
    time.sleep(10 * AFTER_S)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("program")
    arguments.add_argument("--silent", type=int, default=20_000)
    arguments.add_argument("--connections", type=int, default=8_192, help="node.connections")
    given = arguments.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    settings = f"[node]\nconnections = {given.connections}\nconnections_per_address = {given.connections}\n"
    took, refused, stop, are_open = [], [], threading.Event(), multiprocessing.Semaphore(0)

    def ask(port):
        while not stop.is_set():
            try:
                took.append(health(port))
            except (OSError, AssertionError):
                refused.append(port)
            time.sleep(EVERY_S)

    with servers.node(given.program, settings) as (port, node):
        asking = threading.Thread(target=ask, args=[port])
        asking.start()
        begin, before = time.monotonic(), overflows()
        for n in range(HOLDERS):
            holder = multiprocessing.Process(target=hold, args=(port, given.silent // HOLDERS, n, are_open), daemon=True)
            holder.start()
        for _ in range(HOLDERS):
            are_open.acquire()
        opened = time.monotonic() - begin
        time.sleep(AFTER_S)
        stop.set()
        asking.join()
        status = open(f"/proc/{node.pid}/status").read()
        memory = next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    took.sort()
    at = servers.quantiles(took, p50=0.5, p99=0.99, max=0.99999)
    measured = {"silent": given.silent, "node.connections": given.connections, "opened in s": round(opened, 1)}
    counted = {"refused": len(refused), "queue was full": overflows() - before}
    print(json.dumps({**measured, "asked": len(took), **at, **counted, "most MiB of the node": memory}))


if __name__ == "__main__":
    sys.exit(main())
