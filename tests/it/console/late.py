"""Each late topic says why, as far as the nodes know: python late.py URL

The node has a sink `partner` that nobody answers for. What one node cannot bring about is put into its answers.
"""

import sys
import threading
import time

from playwright.sync_api import expect

from browser import asking, chromium, put, window_in

# Rates are there when the node has counted twice.
SEEN_WITHIN_MS = 60_000


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url)
    settings = {
        "well": {},
        "nobody": {},
        "gone": {},
        "failing": {"retry": {"initial": "1s", "max": "1s", "max_attempts": 99}},
        "slow": {},
        "held": {},
        "calls": {"sink": {"name": "partner"}},
        "limited": {"sink": {"name": "out"}, "rate_limit": {"per_second": 0.02}},
    }
    for topic, fields in settings.items():
        api("PUT", f"/v1/topics/{topic}", {"shards": 1, **fields})
    api("POST", "/v1/topics/held/pause", {"reason": "the shop moves"})
    for topic in settings:
        if topic != "well":
            api("POST", f"/v1/topics/{topic}/messages", [{"id": f"{topic}-{n}"} for n in range(9)])

    api("POST", "/v1/topics/slow/messages", [{"id": f"more-{n}"} for n in range(900)])

    # Consumers, of which one fails always and one is slow: rates are of what they do all along.
    def consumers():
        while True:
            time.sleep(0.5)
            for topic, how in (("slow", "ack"), ("failing", "nack")):
                taken = api("POST", f"/v1/topics/{topic}/claim", {"max": 2, "wait": "1s"})["messages"]
                api("POST", f"/v1/topics/{topic}/{how}", {"receipts": [one["receipt"] for one in taken]})

    threading.Thread(target=consumers, daemon=True).start()

    with chromium() as browser:
        def window(place):
            page = window_in(browser.new_context(viewport={"width": 1280, "height": 860}), SEEN_WITHIN_MS)
            page.goto(f"{url}/#/{place}")
            return page

        page = window("")

        def row(topic):
            return page.locator("tbody tr").filter(has=page.get_by_role("link", name=topic, exact=True))

        for topic, word in {
            "nobody": "no consumers", "failing": "retries", "slow": "slow consumers", "held": "paused",
            "calls": "sink down", "limited": "rate limit",
        }.items():
            expect(row(topic).locator("td").first).to_contain_text(word)
        assert row("well").locator(".tag").count() == 0
        wide = page.evaluate("document.querySelector('.scroll').scrollWidth - document.querySelector('.scroll').clientWidth")
        assert wide <= 0, f"the columns of Now are {wide} px wider than the page"

        # One sentence on the topic's own screen, and none where nothing is late.
        line = page.locator("p.why")
        for topic, sentence in {
            "nobody": "no consumer has claimed anything of it in the last",
            "failing": "most deliveries fail:",
            "slow": "consumers are slower than what fell due:",
            "held": "it is paused since",
            "calls": "the sink partner is down",
            "limited": "its rate limit of 1.2/min is reached",
        }.items():
            page.goto(f"{url}/#/topic/{topic}")
            expect(line).to_contain_text("Why late?")
            expect(line).to_contain_text(sentence)
        expect(line).to_have_count(1)
        # And where something can be done about it.
        expect(line.get_by_role("link")).to_have_count(0)
        page.goto(f"{url}/#/topic/calls")
        line.get_by_role("link", name="Look at the sink").click()
        expect(page.get_by_role("heading", name="Sinks")).to_be_visible()
        page.goto(f"{url}/#/topic/well")
        expect(page.locator("main")).to_contain_text("Settings")
        expect(line).to_have_count(0)
        # A claim that nobody ends is said too, and what explains nothing is not made up.
        api("POST", "/v1/topics/nobody/claim", {"max": 3})
        page.goto(f"{url}/#/topic/nobody")
        expect(line).to_contain_text("consumers hold 3 messages and have acked none in the last")

        # Of what was late just now, the cause of now is said.
        page.goto(f"{url}/#/slo")
        expect(page.get_by_role("region", name="late steps").locator("tbody tr", has_text="slow").first).to_contain_text("slow consumers")
        page.goto(f"{url}/#/topic/nobody")

        # A shard that no node scans.
        put(page, "**/v1/nodes", lambda read: read["nodes"][0].update(topics={}))
        expect(line).to_contain_text("1 of its 1 shard has no owner: no node scans it.")
        page.unroute("**/v1/nodes")

        # Lateness that the node keeps for many topics together is that of none of them.
        together = {"of_rest": True, "late_p50_ms": 90_000.0, "late_p99_ms": 90_000.0, "deliveries_total": 9, "late_total": 9}
        put(page, "**/v1/rates?scope=cluster", lambda read: [one.update(together) for one in read["topics"] if one["topic"] == "well"])
        page.goto(f"{url}/#/topic/well")
        expect(page.locator("main")).to_contain_text("Beyond 256 topics lateness is not kept by topic.")
        expect(line).to_have_count(0)
        page.unroute("**/v1/rates?scope=cluster")

        # Where the rates do not come, the rest goes on.
        page.route("**/v1/rates?scope=cluster", lambda route: route.abort())
        page.goto("about:blank")
        page.goto(f"{url}/#/nodes")
        expect(page.locator("main")).to_contain_text("Shares by")
        expect(page.locator("footer")).to_contain_text("live")
        page.unroute("**/v1/rates?scope=cluster")

        # A sink that takes less than what fell due.
        def slower(read):
            for topic in read["topics"]:
                if topic["topic"] == "limited":
                    topic["delivered"] = 0.01
            next(sink for sink in read["sinks"] if sink["sink"] == "out")["call_p99_ms"] = 1200

        page.goto(f"{url}/#/topic/limited")
        put(page, "**/v1/rates?scope=cluster", slower)
        expect(line).to_contain_text("the sink out is slower than what fell due")
        expect(line).to_contain_text("a call of it takes 1.2 s (p99)")
        page.unroute("**/v1/rates?scope=cluster")

        # Another node scans it: this one does not know.
        def another(read):
            read["nodes"].append({**read["nodes"][0], "id": "other", "mode": "round-robin", "topics": {}})

        put(page, "**/v1/nodes", another)
        put(page, "**/v1/rates?scope=cluster", lambda read: [one.update(delivered=0.0) for one in read["topics"]])
        expect(line).to_contain_text("not known: what this node sees does not explain it;")
        page.goto(f"{url}/#/topic/gone")
        expect(line).to_contain_text("consumers are gone, or slow at another one; 9 messages are due")
    print("each says why")


main()
