"""Reads the report of a run of nextest, and fails if a test was tried again for anything but the machine.

    python3 tests/retries.py JUNIT_XML [AGAIN]

A try may fail because the machine was too slow or a port was taken, and then a second one may count. What
excuses a try is written here and nowhere else; `tests/retries_test.py` has an example of each:

- nextest ended it after its time;
- a wait ran out: each of its panics says so (`[time-out]`, written by the test kit, or tokio's `Elapsed`);
- a server could not be started: its port was taken meanwhile, or it was asked before it listened;
- the machine stood still: the test kit wrote `[stall]` and for how long.

A broken promise (crates/duetime-testkit/src/violation.rs) is excused by none of them. Neither is what may be one: an
unequal comparison, words such as lost, early or twice, a process that died.

What is left is a state that was looked for a moment too soon, or a fault that comes now and then. Its names are
written to the file AGAIN as a filter of nextest, and `./test` runs them by themselves, several times, after all
others: each of these runs must pass.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

# crates/duetime-testkit/src/violation.rs, TIMED_OUT.
TIMED_OUT = "[time-out]"
# A tokio time-out that was expected not to run out; what was said before it may have many lines.
ELAPSED = "Elapsed(())"
# The same file: what `violated` begins with.
BROKEN = "a promise is broken"
# crates/duetime-testkit/src/stall.rs: STALLED.
STALLED = re.compile(r"^\[stall\] .*\b(\d+) ms$", re.MULTILINE)
# Another process had the port, whoever it was given to.
PORT_TAKEN = ("Address already in use", "no free port among")
# A server that is about to listen, or one that another test's server was taken for.
NOT_YET_THERE = ("Connection refused", "ConnectionRefused", "Connection reset by peer", "Could not connect to Redis")
STARTS_SERVERS = "crates/duetime-testkit/src/servers/"
# An assertion with such words, or one that compares, may be about a message: it is refused.
MAY_BE_A_PROMISE = re.compile(
    r"^assertion `left|ended|\b(lost|early|too soon|twice|missing|neither|duplicat\w*|wrong|never|damaged|panicked)\b"
)
# What a program in Python ended with.
RAISED = re.compile(r"^\w*Error: .*$", re.MULTILINE)
PANIC = re.compile(r"^thread '.*panicked at (?P<where>.*):\d+:\d+:$", re.MULTILINE)


def panics(text):
    """Where each panic of an output was, and its first lines."""
    for found in PANIC.finditer(text):
        said = text[found.end():].lstrip("\n")
        yield found["where"], said.split("\nstack backtrace:")[0].split("\nnote: ")[0].strip()


def is_excused(where, said):
    """Whether one panic is the machine's."""
    first, last = said.split("\n", 1)[0], said.rsplit("\n", 1)[-1]
    if first.startswith(TIMED_OUT) or ELAPSED in first or ELAPSED in last:
        return True
    # What a server printed before its end is part of what is said.
    if STARTS_SERVERS in where and any(mark in said for mark in PORT_TAKEN):
        return True
    return STARTS_SERVERS in where and any(mark in first for mark in NOT_YET_THERE)


def unexcused(text):
    """What the panics of an output said that are not the machine's."""
    return [said for where, said in panics(text) if not is_excused(where, said)]


def excuse(tried):
    """Why this failed try is no fault of the product's; None where it may be one."""
    if "timeout" in (tried.get("type") or ""):
        return "ended after its time"
    # The same output may be written down more than once.
    text = "\n".join(tried.itertext())
    all_of_it = list(dict.fromkeys(panics(text)))
    if BROKEN in text:
        return None
    if all_of_it and all(is_excused(*one) for one in all_of_it):
        return all_of_it[0][1].splitlines()[0]
    stalls = [int(found[1]) for found in STALLED.finditer(text)]
    if all_of_it and stalls:
        return f"the machine stood still for {max(stalls)} ms"
    return None


def is_asked_again(tried):
    """Whether a failed try without an excuse is about no message, so that runs by itself may tell what it is."""
    text = "\n".join(tried.itertext())
    if BROKEN in text or "abort" in (tried.get("type") or ""):
        return False
    # What follows the first line is often the log of a node, or the end of a program in Python.
    said = [line for one in unexcused(text) for line in (one.split("\n", 1)[0], *RAISED.findall(one))]
    return bool(said) and not any(map(MAY_BE_A_PROMISE.search, said))


def main(path, again=None):
    bad, asked = 0, []
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')} {case.get('name')}"
        for tried in case.iter("flakyFailure"):
            why = excuse(tried)
            if why is not None:
                print(f"tried again {name}: {why}")
                continue
            said = unexcused("\n".join(tried.itertext()))
            said = said[0][:500] if said else tried.get("type")
            if again and is_asked_again(tried):
                asked.append(f"binary_id(={case.get('classname')}) & test(={case.get('name')})")
                print(f"ASKED AGAIN {name}:\n    {said}")
            else:
                bad += 1
                print(f"NOT EXCUSED {name}:\n    {said}")
    if asked:
        with open(again, "w", encoding="utf-8") as file:
            file.write(" | ".join(f"({one})" for one in dict.fromkeys(asked)))
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
