#!/usr/bin/env python3
"""Records what other systems write into Redis, as lines of JSON that `tests/it/cli/importing.rs` puts into a Redis.

tests/it/cli/recorded/record.py PEERS [NAME…]

PEERS is a folder with `node` (npm install bullmq ioredis) and `venv` (pip install 'celery[redis]' rq); Sidekiq is
Debian's ruby-sidekiq. Each system has a redis-server of its own, and writes NAME.json beside this file. A first line says
who wrote it; each other one is a key: its name, type and content, bytes as Latin-1.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
DUE_S = 1_924_992_000  # 2031-01-01T00:00:00Z
PASSING_S = 12

BULLMQ = """
const { createRequire } = require("node:module");
const from = createRequire(process.argv[2] + "/node/node_modules/");
const { Queue } = from("bullmq");
(async () => {
  const queue = new Queue("mails", { connection: { port: Number(process.argv[3]) } });
  for (let n = 0; n < 5; n++) {
    const delay = %d * 1000 + n * 1001 - Date.now();
    await queue.add("welcome", { to: `user-${n}`, text: "héllo" }, { jobId: `mail-${n}`, delay, timestamp: Date.now() });
  }
  await queue.add("now", { to: "user-now" }, { jobId: "mail-now" });
  await queue.close();
})();
""" % DUE_S

SIDEKIQ = """
require "sidekiq"
Sidekiq.configure_client { |config| config.redis = { url: ENV["REDIS_URL"] } }
Sidekiq.configure_server { |config| config.redis = { url: ENV["REDIS_URL"] } }
class Mail
  include Sidekiq::Worker
  sidekiq_options queue: "mails"
  def perform(n); raise "no address"; end
end
if ARGV[0] == "fill" || ENV["FILL"]
  5.times { |n| Mail.perform_at(%d + n + 0.25, n) }
  Mail.perform_async(9)
end
""" % DUE_S

CELERY = """
import datetime, os, sys
from celery import Celery
app = Celery("shop", broker=os.environ["REDIS_URL"])
@app.task
def mail(to): pass
if __name__ == "__main__":
    zone = datetime.timezone.utc
    for n in range(int(sys.argv[1]), int(sys.argv[2])):
        mail.apply_async((f"user-{n}",), eta=datetime.datetime.fromtimestamp(%d + n, zone), task_id=f"mail-{n}")
""" % DUE_S

RQ = """
import datetime, os
from redis import Redis
from rq import Queue
queue = Queue("mails", connection=Redis.from_url(os.environ["REDIS_URL"]))
zone = datetime.timezone.utc
for n in range(5):
    queue.enqueue_at(datetime.datetime.fromtimestamp(%d + n, zone), "shop.mail", f"user-{n}", job_id=f"mail-{n}")
queue.enqueue("shop.mail", "user-now", job_id="mail-now")
""" % DUE_S


def run(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


def bullmq(peers, port, folder, env):
    (folder / "fill.cjs").write_text(BULLMQ)
    run("node", str(folder / "fill.cjs"), str(peers), str(port))
    return "bullmq " + json.loads((peers / "node/node_modules/bullmq/package.json").read_text())["version"]


def sidekiq(peers, port, folder, env):
    (folder / "mail.rb").write_text(SIDEKIQ)
    run("ruby", str(folder / "mail.rb"), "fill", env=env)
    # The job that is due fails, and is in the set `retry` then.
    worker = subprocess.Popen(["sidekiq", "-q", "mails", "-r", str(folder / "mail.rb"), "-t", "1"], env=env)
    time.sleep(PASSING_S)
    worker.terminate()
    worker.wait()
    return "sidekiq " + run("ruby", "-e", 'require "sidekiq"; print Sidekiq::VERSION')


def celery(peers, port, folder, env):
    python = str(peers / "venv/bin/python")
    (folder / "shop.py").write_text(CELERY)
    run(python, "shop.py", "0", "3", env=env, cwd=folder)
    worker = [python, "-m", "celery", "-A", "shop", "worker", "--pool=solo", "--without-mingle", "--without-gossip"]
    worker = subprocess.Popen(worker, env=env, cwd=folder)
    time.sleep(PASSING_S)
    # Killed, so that it does not put back what it holds; two more come while no worker is there.
    worker.kill()
    worker.wait()
    run(python, "shop.py", "3", "5", env=env, cwd=folder)
    return "celery " + run(python, "-c", 'import celery, kombu; print(celery.__version__, "kombu", kombu.__version__)')


def rq(peers, port, folder, env):
    python = str(peers / "venv/bin/python")
    (folder / "shop.py").write_text("def mail(to): pass\n")
    (folder / "fill.py").write_text(RQ)
    run(python, "fill.py", env=env, cwd=folder)
    return "rq " + run(python, "-c", "import rq; print(rq.VERSION)")


def dumped(client, key):
    kind = client.type(key).decode()
    text = lambda value: value.decode("latin-1")
    if kind == "zset":
        content = [[text(member), repr(score)] for member, score in client.zrange(key, 0, -1, withscores=True)]
    elif kind == "hash":
        content = [[text(name), text(value)] for name, value in sorted(client.hgetall(key).items())]
    elif kind == "list":
        content = [text(value) for value in client.lrange(key, 0, -1)]
    elif kind == "string":
        content = text(client.get(key))
    else:
        return None
    return {"key": text(key), "type": kind, "content": content}


def record(name, fill, peers):
    import redis

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        server = ["redis-server", "--port", str(port), "--save", "", "--dir", temporary]
        server = subprocess.Popen(server, stdout=subprocess.DEVNULL)
        try:
            client = redis.Redis(port=port)
            while True:
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.1)
            env = {**os.environ, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
            origin = " ".join(fill(peers, port, folder, env).split())
            lines = [{"origin": origin, "made_by": f"record.py PEERS {name}"}]
            lines += filter(None, (dumped(client, key) for key in sorted(client.keys())))
        finally:
            server.terminate()
            server.wait()
    (HERE / f"{name}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def main():
    peers, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    all_of_them = {"bullmq": bullmq, "sidekiq": sidekiq, "celery": celery, "rq": rq}
    for name in names or all_of_them:
        record(name, all_of_them[name], peers)


main()
