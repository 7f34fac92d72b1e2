"""What the console offers to a token that may only look, and to an administrator's: python rights.py URL"""

import sys

from playwright.sync_api import expect

from browser import asking, chromium, window_in

SEEN_WITHIN_MS = 20_000
BARRED = {
    "topic/mails": "Change, pause and delete: this token may not; it needs the scope admin.", "shards/mails": "Another number of shards: this token may not",
    "messages/mails": "Acting on all of these: this token may not", "dead/mails": "Redrive and purge: this token may not", "message/mails/later": "Due now, reschedule and cancel: this token may not; it needs the scope produce.",
}


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url, "ops-0123456789abcdef")
    api("POST", "/v1/topics/mails/messages", {"id": "later", "delay": "1h"})
    api("PUT", "/v1/topics/claimed", {"shards": 1})
    api("POST", "/v1/topics/claimed/messages", {"id": "held"})
    with chromium() as browser:
        for secret, offered in [("looks-0123456789abcdef", 0), ("ops-0123456789abcdef", 1)]:
            page = window_in(browser.new_context(), SEEN_WITHIN_MS)
            page.goto(f"{url}/#/")
            # What cannot be sent as a token is not tried.
            page.get_by_label("Token").fill("schlüssel")
            expect(page.get_by_role("alert")).to_contain_text("ASCII only", timeout=SEEN_WITHIN_MS)
            expect(page.get_by_role("button", name="Use it")).to_be_disabled()
            page.get_by_label("Token").fill(secret)
            page.get_by_role("button", name="Use it").click()
            expect(page.locator("main")).to_contain_text("mails", timeout=SEEN_WITHIN_MS)
            expect(page.get_by_role("link", name="Try it")).to_have_count(offered, timeout=SEEN_WITHIN_MS)
            page.goto(f"{url}/#/topic/mails")
            expect(page.locator("main")).to_contain_text("Settings", timeout=SEEN_WITHIN_MS)
            expect(page.get_by_role("button", name="Delete this topic …")).to_have_count(offered, timeout=SEEN_WITHIN_MS)
            expect(page.get_by_role("button", name="Pause …")).to_have_count(offered, timeout=SEEN_WITHIN_MS)
            # Each screen that offers nothing says why.
            for screen, what in BARRED.items():
                page.goto(f"{url}/#/{screen}")
                expect(page.locator("main h1, main h2").first).to_be_visible(timeout=SEEN_WITHIN_MS)
                said = page.locator("main").get_by_text(what)
                expect(said).to_have_count(1 - offered, timeout=SEEN_WITHIN_MS)
            page.goto(f"{url}/#/topic/mails")
            if offered:
                page.get_by_role("button", name="Pause …").click()
                expect(page.get_by_role("dialog")).to_contain_text("duetime pause -- mails")
                page.get_by_role("button", name="Pause it").click()
                expect(page.locator("main")).to_contain_text("This topic is paused", timeout=SEEN_WITHIN_MS)
                page.get_by_role("button", name="Resume …").click()
                page.get_by_role("button", name="Resume it").click()
                expect(page.get_by_role("button", name="Pause …")).to_be_visible(timeout=SEEN_WITHIN_MS)
                # What was typed with a token is gone with it.
                page.goto(f"{url}/#/try")
                page.get_by_label("Payload").fill("for one pair of eyes")
                page.get_by_role("button", name="Forget token").click()
                page.get_by_label("Token").fill(secret)
                page.get_by_role("button", name="Use it").click()
                expect(page.get_by_label("Payload")).to_have_value("close the order", timeout=SEEN_WITHIN_MS)
                # Receipts are not dropped without a word.
                page.get_by_role("combobox", name="Topic").fill("claimed")
                page.get_by_role("button", name="Claim what is due").click()
                expect(page.locator("main")).to_contain_text("yours until", timeout=SEEN_WITHIN_MS)
                page.get_by_role("button", name="Forget token").click()
                expect(page.get_by_role("dialog")).to_contain_text("1 message is claimed on Try it.")
                page.get_by_role("button", name="Leave it").click()
                expect(page.locator("main")).to_contain_text("yours until")
                page.get_by_role("button", name="Forget token").click()
                page.get_by_role("button", name="Forget it").click()
                expect(page.get_by_label("Token")).to_be_visible(timeout=SEEN_WITHIN_MS)
    print("each token is offered what it may do")


main()
