"""Reads the report of a run of nextest, and fails if a test was tried again for anything but time.

    python3 tests/retries.py JUNIT_XML

A try may fail because a wait ran out, on a machine that stands still for seconds: its panics all say
so (`[time-out]`, written by the test kit, or tokio's `Elapsed`), or nextest ended it. Anything else that
a second try did not show is a fault that comes now and then, and no excuse.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

# crates/duetime-testkit/src/violation.rs, TIMED_OUT; and a tokio time-out that was expected not to run out.
TIMED_OUT = ("[time-out]", "Elapsed(())")
PANIC = re.compile(r"^thread '.*panicked at .*:\d+:\d+:$", re.MULTILINE)


def reasons(text):
    """The first lines of each panic of an output."""
    for found in PANIC.finditer(text):
        said = text[found.end():].lstrip("\n")
        yield said.split("\nstack backtrace:")[0].split("\nnote: ")[0].strip()[:500]


def is_time(said):
    return any(mark in said for mark in TIMED_OUT)


def excuse(tried):
    """Why this failed try is no fault of the product's; None where it may be one."""
    if "timeout" in (tried.get("type") or ""):
        return "ended after its time"
    # The same output may be written down more than once.
    text = "\n".join(tried.itertext())
    said = list(dict.fromkeys(reasons(text)))
    if said and all(is_time(one) for one in said):
        return said[0].splitlines()[0]
    return None


def main(path):
    bad = 0
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')} {case.get('name')}"
        for tried in case.iter("flakyFailure"):
            why = excuse(tried)
            if why is None:
                bad += 1
                said = [one for one in reasons("\n".join(tried.itertext())) if not is_time(one)]
                said = said[0] if said else tried.get("type")
                print(f"NOT EXCUSED {name}:\n    {said}")
            else:
                print(f"tried again {name}: {why}")
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
