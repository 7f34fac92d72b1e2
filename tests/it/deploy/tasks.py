"""The tasks of docs/OPERATIONS.md that change Redis, etcd, passwords and certificates, by the commands of the page, beside a load.

Three masters, three replicas, two etcds and three nodes; every address of the page is one of the loopback network here. Each
message that was acknowledged has to come, to a consumer or to a webhook, and none before its time. How late they came is printed, and
not judged (benches/runs has such a table). The arguments say which tasks: `slots`, `servers`, `owners`, in
this order, for the new servers of `slots` are of the version before the upgrade. `certificates` is run alone, for its nodes speak TLS and
the addresses of the other tasks are those of nodes without.
"""

import http.client
import http.server
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time

from lab import FOLDER, PROGRAM, ROOT, Child, Failed, ask, free_port, run, until

NETWORK = "127.31.0."
REDIS = [f"{NETWORK}{n}" for n in range(11, 19)]
NODES = [f"{NETWORK}{n}" for n in range(21, 24)]
redis_port, node_port, etcd_port = free_port(REDIS), free_port(NODES), free_port([f"{NETWORK}31", f"{NETWORK}41"])
ETCDCTL = {"ETCDCTL_ENDPOINTS": f"http://{NETWORK}41:{etcd_port}", "ETCDCTL_USER": "root:root-password-of-etcd"}
DELAY_S = 2
BATCH = 20
EVERY_S = 0.25
LEASE_S = 5
SETTLES_S = 6
"""How long the load goes on after a task, before it is looked at."""
TASK_S_MAX = 600
OLD, NEW = "change-me", "new-password"
"""Of the user `duetime`: that of deploy/redis/duetime.acl, and the next one."""
OLD_OF_REPLICAS = "change-me-as-well"
LINKED = "connected_slaves:[1-9]|master_link_status:up"
TLS = "certificates" in sys.argv
OLD_DAYS, NEW_DAYS = 10, 300
"""How long the certificates of nodes are good for."""
os.environ["REDISCLI_AUTH"] = "change-me-too"

with open(os.path.join(ROOT, "docs/OPERATIONS.md")) as page:
    SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", page.read(), re.MULTILINE))


def commands(section):
    """The blocks of commands of a section, in this network."""
    blocks = re.findall(r"^```sh\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)
    ports = {"6379": redis_port, "3830": node_port, "2379": etcd_port}
    local = [re.sub(r"\b(6379|3830|2379)\b", lambda found: str(ports[found[0]]), block) for block in blocks]
    return [block.replace("10.0.0.", NETWORK) for block in local]


class Redis(Child):
    def __init__(self, address):
        self.address = address
        folder = os.path.join(FOLDER, address)
        os.makedirs(folder)
        for name in ("redis.conf", "cluster.conf", "duetime.acl"):
            shutil.copy(os.path.join(ROOT, "deploy/redis", name), folder)
        super().__init__(address, [
            "redis-server", "cluster.conf", "--port", redis_port, "--bind", address, "--bind-source-addr", address,
            "--aclfile", "duetime.acl", "--maxmemory", "1gb",
        ], cwd=folder)

    def cli(self, *args):
        return run("redis-cli", "--user", "admin", "-h", self.address, "-p", redis_port, *args)

    def answers(self):
        until(lambda: self.cli("ping").strip() == "PONG", self.address)


class Server:
    """A host with a node."""

    def __init__(self, address):
        self.address, self.url = address, f"{'https' if TLS else 'http'}://{address}:{node_port}"
        folder = os.path.join(FOLDER, address)
        os.makedirs(folder)
        members = ",".join(f"{one}:{redis_port}" for one in REDIS[:3])
        self.write("redis-url", f"redis-cluster://duetime:{OLD}@{members}\n")
        tls = ""
        if TLS:
            certify(folder, address, OLD_DAYS)
            tls = f'tls = {{ cert = "{folder}/cert.pem", key = "{folder}/key.pem" }}\npeer_tls = {{ ca_file = "{AUTHORITY}" }}'
        self.write("duetime.toml", f"""[node]
id = "{address}"
listen = "{address}:{node_port}"
{tls}

[store]
url = {{ file = "{folder}/redis-url" }}

[ownership]
mode = "etcd"
etcd = ["http://{NETWORK}31:{etcd_port}"]
lease_ttl = "{LEASE_S}s"

[sinks.hook]
type = "http"
url = "http://127.0.0.1:{HOOK.server_address[1]}/"
allow = ["127.0.0.1"]
""")
        self.child = Child(f"node-{address}", [PROGRAM, "serve", "--config", os.path.join(folder, "duetime.toml")])

    def write(self, name, text):
        path = os.path.join(FOLDER, self.address, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o600)

    def restart(self):
        assert self.child.end() == 0, self.child.output()[-3000:]
        self.child.start()


def openssl(*args):
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *args)


def certify(folder, address, days):
    """A certificate for the address and its key, of the authority that all trust."""
    os.makedirs(folder, exist_ok=True)
    openssl("-subj", "/CN=node", "-addext", f"subjectAltName=IP:{address}", "-addext", "basicConstraints=critical,CA:FALSE",
            "-days", days, "-CA", AUTHORITY, "-CAkey", f"{AUTHORITY}.key", "-out", f"{folder}/cert.pem", "-keyout", f"{folder}/key.pem")


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        load.came("hooks", self.headers["duetime-id"])
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Hosts(http.server.BaseHTTPRequestHandler):
    """What `ssh HOST systemctl restart SERVICE` of the commands ends at."""

    def do_GET(self):
        _, host, service = self.path.split("/")
        try:
            if service == "duetime":
                nodes[host].restart()
            else:
                redis[host].end()
                redis[host].args[0] = UPGRADED
                redis[host].start()
                redis[host].answers()
            self.send_response(200)
        except Exception as error:  # whatever it is, the command fails
            self.send_error(500, str(error)[:200])
        self.end_headers()

    def log_message(self, *_):
        pass


def tools():
    """A folder with the commands that reach other hosts."""
    folder = os.path.join(FOLDER, "bin")
    os.makedirs(folder)
    os.symlink(os.path.abspath(PROGRAM), os.path.join(folder, "duetime"))
    ssh = f"""#!/bin/sh
host=$1; shift
HOST=$host exec sh -c "$(printf '%s' "$*" | sed "s#/etc/duetime#{FOLDER}/$host#g")"
"""
    systemctl = f"""#!/bin/sh
[ "$1" = restart ] && exec curl -fsS -o /dev/null http://127.0.0.1:{hosts.server_address[1]}/$HOST/$2
"""
    redis_cli = f"""#!/bin/sh
exec {shutil.which("redis-cli")} --user admin "$@"
"""
    for name, text in (("ssh", ssh), ("systemctl", systemctl), ("redis-cli", redis_cli)):
        path = os.path.join(folder, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return folder


class Load:
    """Messages to a topic that is consumed and to one with a webhook."""

    def __init__(self):
        self.lock, self.ending, self.due, self.late, self.again, self.refused = threading.Lock(), False, {}, [], 0, 0
        self.early = []

    def begin(self):
        self.threads = [threading.Thread(target=loop, daemon=True) for loop in (self.produce, self.consume, self.consume)]
        for thread in self.threads:
            thread.start()

    def produce(self):
        number = 0
        while not self.ending:
            began = time.time()
            for topic in ("orders", "hooks"):
                ids = [f"{topic}-{number + n}" for n in range(BATCH)]
                due = int((began + DELAY_S) * 1000)
                try:
                    answer = ask(list(nodes.values())[number % 3].url, "POST", f"/v1/topics/{topic}/messages",
                                 [{"id": id, "due_at": due, "payload": "x" * 100} for id in ids])
                except OSError:  # the node was restarted: another one takes the next
                    continue
                with self.lock:
                    for result in answer["results"]:
                        if result["outcome"] == "scheduled":
                            self.due.setdefault(result["id"], due)
                        else:
                            self.refused += 1
            number += BATCH
            time.sleep(max(0.0, EVERY_S - (time.time() - began)))

    def consume(self):
        turn = 0
        while not self.ending or self.missing():
            turn += 1
            url = list(nodes.values())[turn % 3].url
            try:
                messages = ask(url, "POST", "/v1/topics/orders/claim", {"max": 256, "wait": "500ms"})["messages"]
                for message in messages:
                    self.came("orders", message["id"], message["due_at"])
                if messages:
                    self.ack([one["receipt"] for one in messages], turn)
            except OSError:
                time.sleep(0.05)

    def ack(self, receipts, turn):
        """At one node or, where that is restarted, at the next."""
        for again in range(len(NODES)):
            try:
                return ask(list(nodes.values())[(turn + again) % 3].url, "POST", "/v1/topics/orders/ack", {"receipts": receipts})
            except OSError:
                continue

    def came(self, topic, id, due=None):
        now = time.time()
        with self.lock:
            known = self.due.get(id, due)
            if id in self.due and known is None:
                self.again += 1
                return
            self.due[id] = None
            if known is not None:
                self.late.append((now, topic, now * 1000 - known))
                if now * 1000 < known - 1:
                    self.early.append(id)

    def missing(self):
        with self.lock:
            return [id for id, due in self.due.items() if due is not None]


def row(name, began, ended):
    cells = [f"{name}", f"{ended - began:.0f} s"]
    for topic in ("orders", "hooks"):
        late = sorted(ms for at, which, ms in load.late if which == topic and began <= at <= time.time())
        cells += [f"{late[len(late) // 2]:.0f} / {late[len(late) * 99 // 100]:.0f} / {late[-1]:.0f}" if late else "–"]
    print("| " + " | ".join(cells) + " |", flush=True)


def task(name, *blocks, **variables):
    environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", **variables}
    began = time.time()
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], capture_output=True, text=True, env=environment, timeout=TASK_S_MAX
        )
        if done.returncode:
            raise Failed(f"{name}: {done.returncode}\n{block}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    ended = time.time()
    time.sleep(SETTLES_S)
    row(name, began, ended)


def serving():
    """All nodes see each other."""
    until(lambda: len(ask(first, "GET", "/v1/nodes")["nodes"]) == len(NODES), "the nodes see each other")


UPGRADED = os.path.join(os.environ["DUETIME_TEST_SERVERS"], "redis-8.2")
HOOK = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
hosts = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hosts)
for server in (HOOK, hosts):
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
bin = tools()
AUTHORITY = os.path.join(FOLDER, "authority.pem")
if TLS:
    openssl("-subj", "/CN=authority of a test", "-days", NEW_DAYS, "-out", AUTHORITY, "-keyout", f"{AUTHORITY}.key")
    os.environ.update({"SSL_CERT_FILE": AUTHORITY, "CURL_CA_BUNDLE": AUTHORITY})
load = Load()
redis = {address: Redis(address) for address in REDIS}
for one in redis.values():
    one.answers()
run(os.path.join(ROOT, "deploy/redis/cluster"), 1, *(f"{address}:{redis_port}" for address in REDIS[:6]))


def pairs():
    """The replica of each master, which redis-cli chose: the page's command gets these."""
    lines = [line.split() for line in redis[REDIS[0]].cli("cluster", "nodes").splitlines()]
    address = {line[0]: line[1].split(":")[0] for line in lines}
    found = [f"{address[line[3]]} {address[line[0]]}" for line in lines if "slave" in line[2]]
    assert len(found) == 3, lines
    return "\n".join(found)


for last in (31, 41):
    address = f"{NETWORK}{last}"
    client, peer = f"http://{address}:{etcd_port}", f"http://{address}:{etcd_port + 10000}"
    Child(f"etcd-{last}", [
        "etcd", "--data-dir", os.path.join(FOLDER, f"etcd-{last}"), "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
    ])
    until(lambda client=client: json.loads(run("curl", "-fsS", f"{client}/health"))["health"] == "true", client)
nodes = {address: Server(address) for address in NODES}
for node in nodes.values():
    until(lambda node=node: ask(node.url, "GET", "/readyz")["status"] == "ready", node.address)
first = nodes[NODES[0]].url
ask(first, "PUT", "/v1/topics/orders", {"shards": 12})
ask(first, "PUT", "/v1/topics/hooks", {"shards": 12, "sink": {"name": "hook"}})
until(lambda: all(len(ask(node.url, "GET", "/v1/topics")["topics"]) == 2 for node in nodes.values()), "topics are known")
load.begin()



def slots():
    task("add a master and its replica", *commands("Add a Redis master"))
    members = redis[REDIS[0]].cli("cluster", "nodes")
    assert re.search(rf"{re.escape(REDIS[6])}:\S+ (myself,)?master .*connected \d", members), members
    task("take them away", *commands("Take a Redis master away"))
    members = redis[REDIS[0]].cli("cluster", "nodes")
    assert REDIS[6] not in members and REDIS[7] not in members, members


def servers():
    upgrade, = commands("Upgrade Redis")
    task("upgrade Redis 7.0 to 8.2", re.sub(r"(?<=<<PAIRS\n).*?(?=\nPAIRS)", pairs(), upgrade, flags=re.DOTALL))
    versions = {re.search(r"redis_version:(\S+)", redis[address].cli("info", "server"))[1] for address in REDIS[:6]}
    assert len(versions) == 1 and versions.pop().startswith("8."), versions
    *password, give, show, cut, remove = commands("Rotate another secret")[:7]
    members = ",".join(f"{one}:{redis_port}" for one in REDIS[:3])
    url = f"redis-cluster://duetime:{NEW}@{members}"
    task("another password of Redis", *password, old_password=OLD, new_password=NEW, new_url=url)
    for old, answer in ((OLD, "WRONGPASS"), (NEW, "PONG")):
        asked = ["redis-cli", "-h", REDIS[0], "-p", str(redis_port), "--user", "duetime", "--pass", old, "ping"]
        said = subprocess.run(asked, capture_output=True, text=True)
        assert answer in said.stdout + said.stderr, said
    task("another password of replicas", give, show, cut, remove, old_password=OLD_OF_REPLICAS, new_password=NEW)
    # Links that are made anew are so by the new one.
    for address in REDIS[:6]:
        redis[address].cli("client", "kill", "type", "replica")
    time.sleep(1)
    for address in REDIS[:6]:
        until(lambda address=address: re.search(LINKED, redis[address].cli("info", "replication")), f"{address} has its link")


def owners():
    move, shows_nodes = commands("Move to another etcd")
    task("another etcd", move)
    serving()
    proven(shows_nodes, [f"/nodes/{address}" for address in NODES])
    to_round_robin, is_round_robin, to_etcd, is_etcd = commands("Change between etcd and round-robin")
    task("etcd to round-robin", to_round_robin)
    serving()
    proven(is_round_robin)
    task("round-robin to etcd", to_etcd)
    serving()
    proven(is_etcd)
    ask_for_passwords()
    password = commands("Rotate another secret")[7:]
    task("another password of etcd", *password, new_password=NEW, ETCDCTL_API="3", **ETCDCTL)
    serving()
    # A user that is gone authenticates nobody: each node is at etcd by the new one.
    users = run("etcdctl", "user", "list", env={**os.environ, "ETCDCTL_API": "3", **ETCDCTL}).split()
    assert users == ["duetime-2", "root"], users
    for node in nodes.values():
        up = '\nduetime_ownership_up{mode="etcd"} 1\n'
        until(lambda node=node: up in run("curl", "-fsS", f"{node.url}/metrics"), f"{node.address} is at etcd")


def certificates():
    """While one node finds rubbish first, which changes nothing, and a connection to each is open all the time."""
    write, shown = commands("Rotate a certificate")
    for address in NODES:
        certify(os.path.join(FOLDER, "new", address), address, NEW_DAYS)
    broken = nodes[NODES[0]]
    broken.write("key.pem", "rubbish")
    taken = "\nduetime_config_last_reload_successful "
    until(lambda: f"{taken}0\n" in run("curl", "-fsS", f"{broken.url}/metrics"), "the bad file is noticed")
    os.chdir(FOLDER)
    old = run("bash", "-euo", "pipefail", "-c", shown)
    kept = [http.client.HTTPSConnection(address, node_port, timeout=10) for address in NODES]
    for one in kept:
        one.connect()
        one.auto_open = False
    task("new certificates", write)
    for node in nodes.values():
        until(lambda node=node: f"{taken}1\n" in run("curl", "-fsS", f"{node.url}/metrics"), f"{node.address} has it")
    for one in kept:
        one.request("GET", "/readyz")
        assert one.getresponse().status == 200
    ends = [line for line in run("bash", "-euo", "pipefail", "-c", shown).splitlines() if line.startswith("notAfter=")]
    assert len(ends) == len(NODES) and not any(end in old for end in ends), (old, ends)


def proven(block, has=()):
    """The page's check of a task goes well, and prints all of `has`."""
    def holds():
        printed = run("bash", "-euo", "pipefail", "-c", block)
        return all(what in printed for what in has)

    until(holds, block)


def ask_for_passwords():
    """The second etcd asks who is there, and the nodes say it."""
    def etcdctl(*args):
        run("etcdctl", *args, env={**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": ETCDCTL["ETCDCTL_ENDPOINTS"]})

    for args in (
        ["user", "add", ETCDCTL["ETCDCTL_USER"]], ["user", "grant-role", "root", "root"], ["role", "add", "duetime"],
        ["role", "grant-permission", "duetime", "readwrite", "--prefix=true", "/duetime/"],
        ["user", "add", f"duetime:{OLD}"], ["user", "grant-role", "duetime", "duetime"], ["auth", "enable"],
    ):
        etcdctl(*args)
    for node in nodes.values():
        node.write("etcd-password", OLD)
        path = os.path.join(FOLDER, node.address)
        with open(os.path.join(path, "duetime.toml")) as file:
            text = file.read()
        user = f'etcd_user = "duetime"\netcd_password = {{ file = "{path}/etcd-password" }}\netcd = ['
        node.write("duetime.toml", text.replace("etcd = [", user))
        node.restart()
        until(lambda node=node: ask(node.url, "GET", "/readyz")["status"] == "ready", node.address)
    serving()
    # Leases that could not be given back run out.
    time.sleep(LEASE_S + SETTLES_S)


try:
    print("| task | took | consumers | webhook |\n|---|---|---|---|")
    task("nothing", "sleep 5")
    for group in sys.argv[1:]:
        {"slots": slots, "servers": servers, "owners": owners, "certificates": certificates}[group]()
finally:
    load.ending = True
    for thread in load.threads:
        thread.join(60)
until(lambda: not load.missing(), f"what was acknowledged comes; missing {load.missing()[:5]}")
assert not load.early, load.early
print(f"\n{len(load.late)} messages came, each that was acknowledged; {load.again} came again, {load.refused} were not taken at first.")
