"""`deploy/try`: its mailer goes down, the console's node and Alertmanager say so, and a signal ends all of it."""

import atexit
import contextlib
import os
import signal
import time

from lab import PROGRAM, ROOT, Child, ask, can_listen, free_port, until

ALERT_WITHIN_S = 300
"""The mailer is down after a minute, the alert waits for two, and Alertmanager for ten seconds."""
PORTS = 45


def free_ports():
    """The first of as many ports as the trial takes, and their neighbours of Redis Cluster."""
    while True:
        first = free_port()
        if all(can_listen(first + n) for n in range(PORTS)):
            return first


first = free_ports()
node, alertmanager, prometheus = (f"http://127.0.0.1:{first + n}" for n in (0, 31, 30))
# In a group of its own, of which nothing is left whatever fails here.
trial = Child("trial", ["setsid", os.path.join(ROOT, "deploy/try")], env={"DUETIME": PROGRAM, "DUETIME_TRY_PORT": str(first)})


@atexit.register
def end_all():
    with contextlib.suppress(ProcessLookupError):
        os.killpg(trial.process.pid, signal.SIGKILL)


until(lambda: "Ctrl-C ends all of it." in trial.output(), "it runs")
for page in (f"{node}/", f"{prometheus}/alerts", f"{alertmanager}/"):
    assert page in trial.output(), (page, trial.output())


def within(ready, what):
    end = time.monotonic() + ALERT_WITHIN_S
    while time.monotonic() < end:
        answer = ready()
        if answer:
            return answer
        time.sleep(0.5)
    raise TimeoutError(f"{what}: not within {ALERT_WITHIN_S} s\n{trial.output()[-2000:]}")


def issue():
    return ask(node, "GET", "/v1/topics/mails/sink?scope=cluster").get("issue")


within(lambda: (issue() or {}).get("state") == "down", "the sink is down")
assert "the mailer is down" in trial.output()


def alerts(**labels):
    active = ask(alertmanager, "GET", "/api/v2/alerts")
    return [alert for alert in active if labels.items() <= alert["labels"].items()]


within(lambda: alerts(alertname="DuetimeSinkDown", sink="mailer"), "somebody is called")
# On a busy machine the herd of the orders may be late, which is another matter.
assert not alerts(topic="mails"), alerts()
within(lambda: "the mailer is up again" in trial.output() and not issue(), "the sink is up again")
for counted in ("early", "after_cancel", "twice", "errors"):
    assert f"{counted} 0" in trial.output().splitlines()[-1], trial.output()[-500:]
assert trial.end() == 130, trial.output()[-2000:]
assert all(can_listen(first + n) for n in (0, 1, 2, 10, 15, 20, 30, 31)), "something of it runs on"
