"""The Chromium in which pages are looked at: by tests, by benches/console and by deploy/pictures."""

import contextlib

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
# It asks nobody but the page's own server, and runs where there is neither a graphics card nor a user of its own.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]


@contextlib.contextmanager
def chromium():
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
