"""What the console offers to a token that may only look, and to an administrator's: python rights.py URL"""

import sys

from playwright.sync_api import expect

from browser import chromium

SEEN_WITHIN_MS = 20_000


def main():
    url = sys.argv[1].rstrip("/")
    with chromium() as browser:
        for secret, offered in [("looks-0123456789abcdef", 0), ("ops-0123456789abcdef", 1)]:
            page = browser.new_context().new_page()
            page.set_default_timeout(SEEN_WITHIN_MS)
            page.goto(f"{url}/#/")
            page.get_by_label("Token").fill(secret)
            page.get_by_role("button", name="Use it").click()
            expect(page.locator("main")).to_contain_text("mails", timeout=SEEN_WITHIN_MS)
            expect(page.get_by_role("link", name="Try it")).to_have_count(offered, timeout=SEEN_WITHIN_MS)
            page.goto(f"{url}/#/topic/mails")
            expect(page.locator("main")).to_contain_text("Settings", timeout=SEEN_WITHIN_MS)
            expect(page.get_by_role("button", name="Delete this topic …")).to_have_count(offered, timeout=SEEN_WITHIN_MS)
            expect(page.get_by_role("button", name="Pause …")).to_have_count(offered, timeout=SEEN_WITHIN_MS)
            if offered:
                page.get_by_role("button", name="Pause …").click()
                expect(page.get_by_role("dialog")).to_contain_text("duetime pause mails")
                page.get_by_role("button", name="Pause it").click()
                expect(page.locator("main")).to_contain_text("This topic is paused", timeout=SEEN_WITHIN_MS)
                page.get_by_role("button", name="Resume …").click()
                page.get_by_role("button", name="Resume it").click()
                expect(page.get_by_role("button", name="Pause …")).to_be_visible(timeout=SEEN_WITHIN_MS)
    print("each token is offered what it may do")


main()
