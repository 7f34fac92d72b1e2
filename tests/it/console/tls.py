"""The console over TLS, at an address of its own: python tls.py URL"""

import sys

from playwright.sync_api import expect

from browser import chromium

SEEN_WITHIN_MS = 20_000


def main():
    url = sys.argv[1].rstrip("/")
    with chromium() as browser:
        # Whose certificate it is, is looked at by another client.
        page = browser.new_context(ignore_https_errors=True).new_page()
        faults = []
        page.on("console", lambda message: message.type in ("error", "warning") and faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: not request.url.startswith((url, "data:")) and faults.append(f"elsewhere: {request.url}"))
        answer = page.goto(f"{url}/#/")
        assert answer.security_details()["protocol"].startswith("TLS"), answer.security_details()
        assert page.evaluate("isSecureContext")
        expect(page.locator("footer")).to_contain_text("live", timeout=SEEN_WITHIN_MS)
        expect(page.locator("main")).to_contain_text("No topic yet", timeout=SEEN_WITHIN_MS)
        assert not faults, faults
    print("the console is there over TLS")


main()
