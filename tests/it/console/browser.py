"""The Chromium in which pages are looked at, by tests, by benches/console and by deploy/pictures, and the API behind them."""

import contextlib
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

from playwright.sync_api import TimeoutError as RanOut
from playwright.sync_api import expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
# It asks nobody but the page's own server, and runs where there is neither a graphics card nor a user of its own.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]
# Printed when what a page should show was waited for in vain: console.rs looks for it.
RAN_OUT = "A WAIT OF THE PAGE RAN OUT"
LISTENS = """() => { window.said = []; new MutationObserver((seen) => seen.forEach(({ target }) => {
    const one = target instanceof Element ? target : target.parentElement;
    if (one?.closest('[role=status], [role=alert], [aria-live]')) window.said.push(one.textContent);
})).observe(document, { childList: true, characterData: true, subtree: true }); }"""
FOUND = "axe.run().then(({ violations }) => violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' ')))"


@contextlib.contextmanager
def chromium():
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        except (RanOut, AssertionError) as ended:
            # What `expect` says of its wait is an AssertionError.
            if isinstance(ended, RanOut) or "Call log:" in str(ended):
                print(RAN_OUT, file=sys.stderr)
            raise
        finally:
            browser.close()


def window_in(context, within_ms):
    """A page that waits so long for what it should show, as `expect` does; what it throws ends the script."""
    expect.set_options(timeout=within_ms)
    page = context.new_page()
    page.set_default_timeout(within_ms)
    page.on("pageerror", lambda error: sys.exit(f"error: {error}"))
    return page


def pages_in(browser, within_ms):
    """A function that opens a page as `window_in` does, in a context of its own with the options it is given."""
    return lambda **options: window_in(browser.new_context(**options), within_ms)


def listen(page):
    """From now on `window.said` has each text that a screen reader would say by itself."""
    page.evaluate(LISTENS)


def axe(page, what):
    """Fails with what axe finds. It is no part of the page, whose context must have its policy off."""
    # Who draws pictures alone does without it.
    import axe_playwright_python

    page.evaluate(pathlib.Path(axe_playwright_python.__file__).parent.joinpath("axe.min.js").read_text())
    found = page.evaluate(FOUND)
    assert not found, f"{what}: {found}"


def asked(what):
    """Asks who started the script to bring `what` about, and waits for that."""
    print(what, flush=True)
    assert sys.stdin.readline().strip() == "done"


def until(page, holds, what, within_ms=30_000):
    """Waits until `holds` says so, while the page goes on; fails with `what`."""
    end = time.monotonic() + within_ms / 1000
    while not holds():
        if time.monotonic() > end:
            raise RanOut(what)
        page.wait_for_timeout(100)


def look_further(page, text, within_ms=20_000):
    """Looks further until the page has this text: a node that is busy ends a look early."""
    further = page.get_by_role("button", name="Search further")

    def has_text():
        if text in page.locator("main").text_content():
            return True
        if further.is_visible() and further.is_enabled():
            further.click()
        return False

    until(page, has_text, f"the page has {text}", within_ms)


def put(page, path, change):
    """Changes what the node answers to requests of this path."""

    def answered(route):
        answer = route.fetch()
        read = answer.json()
        change(read)
        route.fulfill(response=answer, json=read)

    page.route(path, answered)


def close(page):
    # An answer that is being changed when its page goes is no fault.
    page.unroute_all(behavior="ignoreErrors")
    page.context.close()


def asking(url, token=None, refusals=False):
    """A function that asks the node at `url` and gives what it answered, JSON read; with `refusals` the status before it."""
    url = url.rstrip("/")
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}

    def api(method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = urllib.request.urlopen(urllib.request.Request(url + path, data, headers, method=method))
        except urllib.error.HTTPError as refused:
            if not refusals:
                raise
            answer = refused
        with answer:
            text = answer.read().decode()
            read = json.loads(text) if answer.headers["content-type"].startswith("application/") else text
            return (answer.status, read) if refusals else read

    return api
