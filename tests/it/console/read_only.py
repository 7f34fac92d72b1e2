"""A console that is read-only offers no change: python read_only.py URL"""

import sys

from playwright.sync_api import expect

from browser import asking, chromium, window_in

SEEN_WITHIN_MS = 20_000
# Buttons that change nothing: of tables, of filters, and of what is shown.
LOOKS = ("Export as NDJSON", "Find", "Search", "Show", "next minute", "next hour", "next day", "next week", "0", "1", "Keys",
         "Commands", "One by one", "All of them one by one", "Close this list", "Read again", "All columns")
SCREENS = {"": "Rates and lateness", "topic/orders": "Settings", "messages/orders": "2 messages", "message/orders/a": "may be claimed", "shards/orders": "Scanned by", "message/orders/dead": "Redrive and purge: this console", "dead/orders": "1 dead letter, 1 reason", "dead/orders?all=yes": "1 attempt; ", "forecast/orders": "due in the", "sinks": "Topics with a sink", "nodes": "Shares by", "audit": "1 entry", "slo": "Budgets"}


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url)

    api("PUT", "/v1/topics/orders", {"shards": 2})
    api("POST", "/v1/topics/orders/messages", {"id": "dead"})
    dead = api("POST", "/v1/topics/orders/claim", {"wait": "10s"})["messages"][0]
    api("POST", "/v1/topics/orders/nack", {"receipts": [dead["receipt"]], "dead": True, "reason": "broken"})
    api("POST", "/v1/topics/orders/messages", [{"id": "a", "delay": "1h"}, {"id": "b", "delay": "1h"}])
    with chromium() as browser:
        page = window_in(browser.new_context(), SEEN_WITHIN_MS)
        for screen, said in SCREENS.items():
            page.goto(f"{url}/#/{screen}")
            expect(page.locator("main")).to_contain_text(said, timeout=SEEN_WITHIN_MS)
            buttons = page.locator("button:not(th button)").all_inner_texts()
            offered = [text for text in buttons if not text.startswith(LOOKS)]
            assert not offered, f"{screen or 'now'}: {offered}"
            if screen.startswith(("topic/", "message", "shards/", "dead/")):
                expect(page.locator(".barred").first).to_contain_text("this console is read-only")
        expect(page.get_by_role("link", name="Try it")).to_have_count(0)
        page.goto(f"{url}/#/try")
        expect(page.get_by_role("heading", name="Now")).to_be_visible()
    print("nothing is offered that changes anything")


main()
