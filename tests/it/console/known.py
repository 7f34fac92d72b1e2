"""What is wrong is said with what to do, and what is not known is not made up: python known.py URL

The node has a sink `partner` that nobody answers for. What one node cannot bring about is put into its answers.
"""

import re
import sys
import time

from playwright.sync_api import expect

from browser import asking, chromium, close, pages_in, put

# Rates are there when the node has counted twice.
SEEN_WITHIN_MS = 60_000
EVICTS = "redis at 10.0.0.1:6379 may evict messages: maxmemory-policy is allkeys-lru; set it: redis-cli CONFIG SET maxmemory-policy noeviction"
AWAY = "etcd does not answer"
EMPTIED = "topic_emptied: the store was emptied: topics are gone: 7 messages; bring its data back from a copy"
MINUTES_2_MS = 120_000
SLOW_S = 3


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url)
    for topic, fields in {"nobody": {}, "forgotten": {}, "calls": {"sink": {"name": "partner"}}, "letters": {}}.items():
        api("PUT", f"/v1/topics/{topic}", {"shards": 1, **fields})
        api("POST", f"/v1/topics/{topic}/messages", [{"id": f"{topic}-{n}"} for n in range(3)])
    taken = api("POST", "/v1/topics/letters/claim", {"max": 3})["messages"]
    api("POST", "/v1/topics/letters/nack", {"receipts": [one["receipt"] for one in taken], "dead": True, "reason": "closed"})

    with chromium() as browser:
        page_of = pages_in(browser, SEEN_WITHIN_MS)

        # What the node knows to be wrong is said on the page, with what to do, in the title, and to who cannot see it.
        page = page_of(viewport={"width": 1280, "height": 860})
        issues = []
        said = lambda: [{"node": node, "issue": issue} for issue in issues for node in ("node-1", "node-2")[:1 + (issue is AWAY)]]
        put(page, "**/v1/issues?**", lambda read: read.update(issues=said()))
        page.goto(f"{url}/#/")
        banner = page.locator(".banner.trouble")
        expect(banner).to_have_count(1)
        expect(page).to_have_title("(1!) Now · Duetime")
        # What is there when the page is loaded neither begins nor ends.
        page.wait_for_timeout(3000)
        expect(page.get_by_role("status", name="what began and ended")).to_have_text("")
        issues += [EVICTS]
        expect(banner).to_have_count(2)
        expect(page).to_have_title("(2!) Now · Duetime")
        # What endangers messages is above what only waits.
        expect(banner.first).to_contain_text("may evict messages: maxmemory-policy is allkeys-lru; set it: redis-cli CONFIG SET")
        expect(page.get_by_role("status", name="what began and ended")).to_contain_text("Began: redis at 10.0.0.1")
        # Three at most are said at once.
        issues += [AWAY, EMPTIED]
        more = page.locator("details.more")
        expect(more).to_contain_text("and 1 more")
        assert page.locator(".banner.trouble:visible").count() == 3
        # What several nodes say is one sentence.
        expect(banner.nth(1)).to_contain_text("Nodes node-1, node-2 say: ")
        expect(banner.nth(2)).to_contain_text("says: the store was emptied: topics are gone")
        # The number of messages changes: that is no other trouble.
        spoken = page.get_by_role("status", name="what began and ended").inner_text()
        issues[2] = EMPTIED.replace("7", "9")
        expect(banner.nth(2)).to_contain_text("9 messages")
        assert page.get_by_role("status", name="what began and ended").inner_text() == spoken
        issues.clear()
        expect(banner).to_have_count(1)

        # Topics that nobody claims are one trouble, once they have waited for long.
        assert "Nobody claims" not in page.locator("main").inner_text()
        page.route("**/v1/events", lambda route: route.abort())

        def older(read):
            for topic in read["topics"]:
                if topic["name"] in ("nobody", "forgotten"):
                    topic["oldest_due_at"] -= MINUTES_2_MS

        put(page, "**/v1/topics", older)
        page.reload()
        nobody = page.locator(".banner.trouble.bad", has_text="Nobody claims")
        expect(nobody).to_contain_text("Nobody claims messages of 2 topics (")
        expect(nobody).to_contain_text("6 messages wait, the oldest 2 min")
        expect(nobody).to_contain_text("Start their consumers, or give them a sink.")
        expect(page).to_have_title("(2!) Now · Duetime")
        # A sink that is down with nothing behind it is said to be so; what it refused and is deferred is not nothing.
        idle = lambda read: [one.update(due=0) for one in read["topics"] if one["name"] == "calls"]
        put(page, "**/v1/topics", idle)
        expect(page.locator(".banner.trouble.bad", has_text="partner")).to_contain_text("what was deferred waits, the oldest ")
        gone = lambda read: [one.update(due=0) or one.pop("oldest_due_at", 0) for one in read["topics"] if one["name"] == "calls"]
        put(page, "**/v1/topics", gone)
        expect(page.locator(".banner.trouble.bad", has_text="partner")).to_contain_text("nothing waits for it.")
        # Where it is said to be down it can be paused.
        page.goto(f"{url}/#/sinks")
        sinks = page.get_by_role("region", name="sinks", exact=True).locator("tbody tr")
        expect(sinks.filter(has_text="partner").locator("[data-name=State]")).to_have_text("down")
        page.get_by_role("button", name="Pause partner …").click()
        expect(page.get_by_role("dialog").get_by_role("heading")).to_contain_text("partner")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        # So it is by one key: the one that is down, or that of the row that is pointed at.
        page.mouse.move(5, 5)
        page.get_by_role("heading", name="Sinks").click()
        for row, name in ((None, "partner"), ("out", "out")):
            if row:
                sinks.filter(has_text=row).hover()
            page.keyboard.press("p")
            expect(page.get_by_role("dialog").get_by_role("heading")).to_contain_text(f"Pause the sink {name}")
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_have_count(0)
            page.get_by_role("heading", name="Sinks").click()
        # Where all of it is paused already that is not offered, and what was paused through it can be resumed.
        api("POST", "/v1/topics/calls/pause", {"reason": "it is away"})
        expect(page.get_by_role("button", name="Pause partner …")).to_have_count(0)
        expect(page.get_by_role("button", name="Pause the sink partner")).to_have_count(0)
        # What is paused is not tried, and so not up.
        expect(sinks.filter(has_text="partner").locator("[data-name=State]")).to_have_text("paused")
        api("POST", "/v1/topics/calls/resume", {})
        # An outage of one sink is one row, of however many topics and nodes it is.
        began = int(time.time() * 1000) - 50_000
        outage = lambda topic, node, since, **rest: {"topic": topic, "sink": "partner", "node": node, "since": since, "probes": 3, "reason": "refused", **rest}
        ongoing = [outage(topic, node, began + n * 100) for n, (topic, node) in enumerate((("calls", "n1"), ("calls", "n2"), ("more", "n1"), ("more", "n2")))]
        ended = [outage("calls", node, began - 40_000 + n, until=began - 30_000 + n, end="accepted") for n, node in enumerate(("n1", "n2"))]
        put(page, "**/v1/outages?**", lambda read: read.update(outages=ongoing + ended))
        outages = page.get_by_role("region", name="outages").locator("tbody tr")
        expect(outages).to_have_count(2)
        for n, (topics, lasted) in enumerate((("2 topics", "ongoing"), ("calls", "10 s"))):
            expect(outages.nth(n).locator("[data-name=Topic]")).to_have_text(topics)
            expect(outages.nth(n).locator("[data-name=For]")).to_have_text(lasted)
        # What is paused waits on purpose: no figure burns for it.
        put(page, "**/v1/topics", lambda read: [one.update(paused=True) for one in read["topics"]])
        page.goto(f"{url}/#/")
        figure = page.locator(".figure", has_text="Oldest due").locator("dd")
        expect(figure).not_to_have_class("bad")
        expect(figure).to_contain_text("min")
        # Nor a shard of it, nor the figure of its own screen.
        page.goto(f"{url}/#/topic/nobody")
        expect(page.locator(".figure", has_text="Oldest due").locator("dd")).not_to_have_class("bad")
        page.goto(f"{url}/#/shards/nobody")
        expect(page.get_by_role("button", name="shard 0, paused")).to_be_visible()

        # A herd that is ahead is one sentence, which leads to its forecast, and burns not yet.
        put(page, "**/v1/topics", lambda read: [one.update(paused=False) for one in read["topics"]])
        put(page, "**/v1/rates?scope=cluster", lambda read: [one.update(herd_late_ms=40_000) for one in read["topics"] if one["topic"] in ("letters", "calls")])
        page.goto(f"{url}/#/")
        herd = page.locator(".banner.trouble:not(.bad)", has_text="falls due within the hour")
        expect(herd).to_contain_text("its last message will be late by 40 s. So will 1 other topic.")
        herd.get_by_role("link", name="Forecast, smear").click()
        expect(page).to_have_url(re.compile("#/forecast/"))
        page.unroute("**/v1/rates?scope=cluster")

        # A node of which nothing was heard for long is not said to serve.
        put(page, "**/v1/nodes", lambda read: read["nodes"][0]["vitals"].update(at=read["nodes"][0]["vitals"]["at"] - 41_000))
        page.goto(f"{url}/#/nodes")
        expect(page.locator("tbody tr").first).to_contain_text("not known")
        expect(page.locator("tbody tr").first).to_contain_text("serving 41 s ago")
        close(page)

        # A node that answers late is slow, and not away.
        page = page_of()
        page.goto(f"{url}/#/nodes")
        expect(page.locator("footer")).to_contain_text("live")
        page.route("**/v1/me", lambda route: (time.sleep(SLOW_S), route.continue_()))
        expect(page.locator("main")).to_contain_text("This node is slow: its last answer took 3.")
        expect(page.locator("footer")).to_contain_text("slow, last change")
        assert "does not answer" not in page.locator("main").inner_text()
        page.unroute("**/v1/me")
        expect(page.locator("main")).not_to_contain_text("This node is slow")
        # Where nothing was delivered there are no bars.
        page.goto(f"{url}/#/topic/calls")
        expect(page.locator(".grid .card").first).to_contain_text("Nothing was delivered in the last five minutes.")
        close(page)

        # One of several that did not answer in time is slow while it is heard of, in one word everywhere, and not by a
        # colour alone; one that is not heard of does not answer.
        page = page_of(viewport={"width": 1280, "height": 860})
        heard = {"ago": 0}

        def another(read):
            first = read["nodes"][0]
            vitals = {**first["vitals"], "at": time.time() * 1000 - heard["ago"]}
            read["nodes"].append({**first, "id": "other", "vitals": vitals})

        absent = {"name": "other", "answered": False, "reason": "did not answer within 2 s"}
        put(page, "**/v1/nodes", another)
        put(page, "**/v1/rates?scope=cluster", lambda read: read.update(nodes=[{"name": read["node"], "answered": True}, absent]))
        page.goto(f"{url}/#/")
        chips = page.get_by_role("group", name="Figures of")
        expect(chips.get_by_role("button", name="other: slow")).to_be_visible()
        expect(page.locator(".banner.trouble:not(.bad)")).to_contain_text("Node other is slow: it did not answer within 2 s. Its figures are missing")
        page.goto(f"{url}/#/nodes")
        state = page.locator("tbody tr").filter(has_text="other").locator("[data-name=State]")
        expect(state).to_have_text(re.compile(r"^\s*slow\s+it did not answer within 2 s\s*$"))
        heard["ago"] = 41_000
        expect(state).to_contain_text("not known")
        page.goto(f"{url}/#/slo")
        expect(chips.get_by_role("button", name="other: no answer")).to_be_visible()
        close(page)

        # The stream says what there is, and nothing else can be read: what is not known is not said.
        page = page_of()
        away = {"status": 503, "code": "store_unavailable", "detail": "the store does not answer"}
        page.route("**/v1/topics", lambda route: route.fulfill(status=503, json=away))
        page.route("**/v1/topics/*", lambda route: route.fulfill(status=503, json=away))
        page.goto(f"{url}/#/")
        row = page.locator("tbody tr").filter(has=page.get_by_role("link", name="calls", exact=True))
        expect(row).to_contain_text("not known")
        assert "consumers" not in page.locator("tbody").inner_text(), page.locator("tbody").inner_text()
        page.goto(f"{url}/#/sinks")
        expect(page.locator("main")).to_contain_text("Which sink 5 topics have was not read yet")
        expect(page.get_by_role("region", name="topics with a sink")).to_contain_text("Not known")
        assert "No topic has a sink" not in page.locator("main").inner_text()
        page.goto(f"{url}/#/topic/calls")
        expect(page.locator("main")).to_contain_text("Not known: they were not read yet.")
        assert "default" not in page.locator("main .grid").inner_text()
        for path in ("**/v1/topics", "**/v1/topics/*"):
            page.unroute(path)
        expect(page.locator("main")).not_to_contain_text("they were not read yet")
        page.goto(f"{url}/#/")
        expect(row).to_contain_text("partner")
        close(page)

        # What died long ago is not red; what dies now is.
        page = page_of()
        died = {"dead": 0.5}
        put(page, "**/v1/rates*", lambda read: [one.update(died) for one in read["topics"]])
        page.goto(f"{url}/#/topic/letters")
        expect(page.locator("main")).to_contain_text("since it started; the rest waits.")
        figure = page.locator(".figure", has_text="Dead letters")
        expect(figure).to_contain_text("3")
        expect(figure.locator(".bad")).to_have_count(1)
        died["dead"] = 0.0
        expect(figure.locator(".bad")).to_have_count(0)
        assert page.locator("p .bad", has_text="dead").count() == 0
        # Nor is a budget that was spent long ago.
        died.update(over_ms=60_000, deliveries_total=10, late_total=9, deliveries=3, late=0)
        page.goto(f"{url}/#/")
        left = row_of(page, "letters").locator("[data-name='Budget left']")
        expect(left).to_have_text("overdrawn")
        expect(left.locator(".careful")).to_have_count(1)
        died["late"] = 2
        expect(left.locator(".bad")).to_have_count(1)
        close(page)

        # At twice the size of a small screen all columns of Now can be reached, and the names of the rows stay in sight.
        page = page_of(viewport={"width": 720, "height": 450})
        page.goto(f"{url}/#/")
        expect(row_of(page, "letters")).to_be_visible()
        page.get_by_role("button", name="All columns").click()
        heads = page.locator("thead th")
        expect(heads.filter(has_text="Shards")).to_be_visible()
        for head in heads.all():
            head.evaluate("head => head.scrollIntoView({inline: 'center'})")
            expect(head).to_be_in_viewport(ratio=0.5)
        row_of(page, "letters").evaluate("row => row.scrollIntoView({inline: 'end'})")
        expect(page.get_by_role("link", name="letters", exact=True)).to_be_in_viewport(ratio=0.5)
    print("what is known is said")


def row_of(page, topic):
    return page.locator("tbody tr").filter(has=page.get_by_role("link", name=topic, exact=True))


main()
