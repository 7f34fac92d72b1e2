"""Several nodes behind a balancer: figures of all of them, a chip for each, and what is missing: python fleet.py URL OTHER"""

import itertools
import re
import sys
import time

from playwright.sync_api import expect

from browser import asked, asking, chromium, until, window_in

SEEN_WITHIN_MS = 30_000
STEADY_S = 12
# Enough for a node to know what it can deliver.
MANY = 1000


def main():
    urls = [url.rstrip("/") for url in sys.argv[1:3]]
    for url, count in zip(urls, (5, 7)):
        api = asking(url)
        api("PUT", "/v1/topics/orders", {"shards": 4})
        api("POST", "/v1/topics/orders/messages", [{"delay": "1h"} for _ in range(count)])

    with chromium() as browser:
        page = window_in(browser.new_context(), SEEN_WITHIN_MS)
        # Each request goes to the next node, as behind a balancer.
        turns = itertools.cycle(urls)
        balanced = lambda: page.route(
            "**/v1/**", lambda route: route.continue_(url=next(turns) + route.request.url[len(urls[0]):])
        )
        balanced()
        page.goto(f"{urls[0]}/#/topic/orders")
        chips = page.get_by_role("group", name="Figures of")
        taken = page.locator("main").get_by_text(re.compile(r"\d+ taken in"))
        all_nodes = chips.get_by_role("button", name="2 nodes")
        expect(all_nodes).to_have_attribute("aria-pressed", "true")
        expect(taken).to_contain_text("12 taken in")
        expect(page.locator("main")).to_contain_text("all 2 nodes")
        # Whoever answers, it is the same.
        end = time.monotonic() + STEADY_S
        while time.monotonic() < end:
            assert "12 taken in" in taken.inner_text(), taken.inner_text()
            assert chips.get_by_role("button").all_inner_texts() == ["2 nodes", "first", "second"]
            page.wait_for_timeout(100)

        # Who scans a shard another node says otherwise in a moment.
        page.goto(f"{urls[0]}/#/shards/orders")
        expect(page.locator("main")).to_contain_text("2 nodes in turns (round-robin).")
        page.goto(f"{urls[0]}/#/topic/orders")

        # A chip narrows it to one node, on each screen, until it is taken back.
        for name, count in (("first", "5"), ("second", "7")):
            chips.get_by_role("button", name=name).click()
            expect(chips.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
            expect(taken).to_contain_text(f"{count} taken in")
            expect(page.locator("main")).to_contain_text(f"node {name}")
        page.goto(f"{urls[0]}/#/audit")
        rows = page.get_by_role("region", name="audit log").locator("tbody tr")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("second")
        all_nodes.click()
        expect(rows).to_have_count(2)

        # Of a node that is silent it is said that its figures are missing, and the others are shown.
        asked("pause second")
        page.unroute("**/v1/**")
        page.goto(f"{urls[0]}/#/topic/orders")
        expect(page.locator("main")).to_contain_text("The figures of second are missing: it did not answer within 2 s.")
        expect(taken).to_contain_text("5 taken in")
        expect(page.locator("main")).to_contain_text("1 of 2 nodes")
        asked("go on")
        expect(taken).to_contain_text("12 taken in")

        # What can be delivered is what the node knows that delivered most, whoever is asked.
        first, nodes = asking(urls[0]), [asking(url) for url in urls]
        first("PUT", "/v1/topics/slips", {"shards": 2})
        capacities = lambda scope: [api("GET", f"/v1/topics/slips/forecast?scope={scope}").get("capacity") for api in nodes]

        def delivered():
            first("POST", "/v1/topics/slips/messages", [{} for _ in range(MANY)])
            while first("GET", "/v1/topics/slips")["due"]:
                claimed = first("POST", "/v1/topics/slips/claim", {"max": 256, "wait": "1s"})["messages"]
                first("POST", "/v1/topics/slips/ack", {"receipts": [one["receipt"] for one in claimed]})
            return capacities("node")[0]

        until(page, delivered, "the first node knows what can be delivered")
        agreed = lambda some: None not in some and len(set(some)) == 1
        until(page, lambda: agreed(capacities("cluster")), "both nodes know what can be delivered, and the same")
        assert capacities("node")[1] is None, capacities("node")
        balanced()
        page.goto(f"{urls[0]}/#/forecast/slips")
        expect(page.locator("main")).to_contain_text("nothing of this is late")
        end = time.monotonic() + STEADY_S
        while time.monotonic() < end:
            assert "is not known" not in page.locator("main").inner_text(), page.locator("main").inner_text()
            page.wait_for_timeout(100)
    print("the figures are those of the fleet")


main()
