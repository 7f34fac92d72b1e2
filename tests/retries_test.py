"""What excuses a second try, and what does not: `python3 tests/retries_test.py`, part of ./test."""

import contextlib
import io
import tempfile
import unittest
from xml.sax.saxutils import escape

import retries

TEST = "tests/it/fleet.rs"
SERVERS = retries.STARTS_SERVERS + "redis.rs"


def panic(said, where=TEST):
    return f"\nthread 'fleet::a_test' (123) panicked at {where}:10:5:\n{said}\nstack backtrace:\n   0: __rustc::rust_begin_unwind\n"


def judged(output, kind="test failure with exit code 101", again=None):
    """The status of a run in which one test passed at its second try, and what is said of the first."""
    report = (
        '<?xml version="1.0"?><testsuites><testsuite name="duetime-tests::it">'
        '<testcase name="fleet::a_test" classname="duetime-tests::it">'
        f'<flakyFailure type="{kind}" message=""><system-err>{escape(output)}</system-err></flakyFailure>'
        "</testcase></testsuite></testsuites>"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(report)
        file.flush()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = retries.main(file.name, again)
    return status, said.getvalue()


class Excused(unittest.TestCase):
    def excused(self, output, because, **more):
        status, said = judged(output, **more)
        self.assertEqual(status, 0, said)
        self.assertIn(because, said)

    def test_ended_by_nextest(self):
        self.excused("", "ended after its time", kind="test timeout")

    def test_a_wait_that_ran_out(self):
        self.excused(panic("[time-out] 3 are missing"), "3 are missing")
        self.excused(panic('called `Result::unwrap()` on an `Err` value: Elapsed(())'), "Elapsed")
        self.excused(panic("the log:\\nINFO a line\\n: Elapsed(())"), "the log")
        self.excused(panic("[time-out] a") + panic("[time-out] b"), "a")

    def test_a_server_whose_port_was_taken(self):
        log = "redis does not serve:\n# Warning: Could not create server TCP listening socket *:21001: bind: Address already in use"
        self.excused(panic(log, SERVERS), "redis does not serve")
        self.excused(panic("no free port among 10000..30000", SERVERS), "no free port")
        node = "the node ended:\nerror: listening on 127.0.0.1:17000: Address already in use (os error 98)"
        self.excused(panic(node, retries.STARTS_SERVERS + "node.rs"), "the node ended")

    def test_a_server_that_was_asked_before_it_listened(self):
        said = "Could not connect to Redis at 127.0.0.1:21001: Connection refused"
        self.excused(panic(said, SERVERS), "Connection refused")

    def test_a_machine_that_stood_still(self):
        output = "[stall] the machine stood still for 730 ms\n[stall] the machine stood still for 2150 ms\n"
        self.excused(output + panic("assertion failed: drained < usual * 3"), "2150 ms")


class NotExcused(unittest.TestCase):
    def refused(self, output, because, **more):
        status, said = judged(output, **more)
        self.assertEqual(status, 1, said)
        self.assertIn("NOT EXCUSED", said)
        self.assertIn(because, said)

    def test_a_wrong_answer(self):
        self.refused(panic("assertion `left == right` failed\n  left: 1\n right: 2"), "left == right")

    def test_a_wrong_answer_beside_a_wait_that_ran_out(self):
        self.refused(panic("[time-out] late") + panic("it is there twice"), "it is there twice")

    def test_a_mark_that_is_not_the_test_kit_s(self):
        output = "a log line with [time-out] and [stall] in it\n"
        self.refused(output + panic("wrong payload:\nthe node said [time-out]"), "wrong payload")

    def test_a_node_that_ended_by_itself(self):
        node = "the node ended:\nthread 'main' panicked: index out of bounds"
        self.refused(panic(node, retries.STARTS_SERVERS + "node.rs"), "the node ended")

    def test_a_connection_that_is_refused_in_the_middle_of_a_test(self):
        self.refused(panic("the answer: Connection refused (os error 111)"), "Connection refused")

    def test_a_process_that_died_without_a_panic(self):
        self.refused("", "test abort", kind="test abort with signal 11")
        self.refused("[stall] the machine stood still for 900 ms\n", "test abort", kind="test abort with signal 11")

    def test_a_broken_promise_whatever_else_was_the_matter(self):
        promise = panic("a promise is broken: I1: orders/m1: acknowledged, and neither delivered nor there")
        self.refused(promise, "a promise is broken")
        self.refused("[stall] the machine stood still for 9000 ms\n" + promise, "a promise is broken")
        self.refused(promise + panic("[time-out] late"), "a promise is broken")


class AskedAgain(unittest.TestCase):
    def filter_of(self, output, **more):
        with tempfile.NamedTemporaryFile("r", suffix=".filter") as again:
            status, said = judged(output, again=again.name, **more)
            return status, said, again.read()

    def test_a_state_that_was_looked_for_too_soon_is_run_by_itself(self):
        status, said, asked = self.filter_of(panic("it keeps the others"))
        self.assertEqual(status, 0, said)
        self.assertIn("ASKED AGAIN", said)
        self.assertEqual(asked, "(binary_id(=duetime-tests::it) & test(=fleet::a_test))")

    def test_what_may_be_about_a_message_is_not(self):
        for bad in ["assertion `left == right` failed\n left: 1\nright: 2", "o-17 was lost", "o-17 came twice",
                    "the node ended:\nerror", "a promise is broken: I1", "3 ms early",
                    "Traceback (most recent call last):\n  File \"x.py\"\nAssertionError: o-17 was lost\n"]:
            status, said, asked = self.filter_of(panic(bad))
            self.assertEqual((status, asked), (1, ""), said)
        self.assertEqual(self.filter_of("", kind="test abort with signal 11")[0], 1)

    def test_one_that_may_be_counts_among_others(self):
        self.assertEqual(self.filter_of(panic("it keeps the others") + panic("o-17 was lost"))[0], 1)


class Quiet(unittest.TestCase):
    def test_a_run_without_second_tries_says_nothing(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write("<testsuites><testsuite><testcase name='a' classname='b'/></testsuite></testsuites>")
            file.flush()
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                self.assertEqual(retries.main(file.name), 0)
        self.assertEqual(said.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
