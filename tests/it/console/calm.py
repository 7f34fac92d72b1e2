"""A trouble is one sentence, rows keep their places, and nobody is shouted at: python calm.py URL

The node has a sink `partner` that nobody answers for. axe looks at the empty page and at the dialogs too.
"""

import json
import pathlib
import sys
import time

from playwright.sync_api import expect

from browser import asking, axe, chromium, close, listen, pages_in, put

SEEN_WITHIN_MS = 30_000
TOPICS = 12
# Longer than rows that nobody points at keep their places.
HELD_MS = 12_000
FIRST_VISIT_BYTES_MAX = 50_000
# What names of topics begin with, so that they have 35 to 39 characters.
LONG = "confirmations-of-the-orders-in-"
# The smallest side of what is pressed; links within a sentence may be as high as it.
TARGET_PX = 24
SMALL = """(least) => [...document.querySelectorAll('a, button, input, select, summary')]
    .filter((one) => !one.closest('p, .banner > span, .skip, dd') && !one.matches('.skip') && one.checkVisibility())
    .map((one) => [one, one.getBoundingClientRect()])
    .filter(([, box]) => box.width < least || box.height < least)
    .map(([one, box]) => `${one.outerHTML.slice(0, 90)} ${box.width}x${box.height}`)"""


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url)
    with chromium() as browser:
        page_of = pages_in(browser, SEEN_WITHIN_MS)

        # A first visit loads little, and a screen when it is opened.
        page = page_of(viewport={"width": 1280, "height": 860})
        page.goto(f"{url}/#/")
        expect(page.locator("tbody")).to_contain_text("mails")
        files = """performance.getEntriesByType('resource').filter((one) => one.name.includes('/console/'))
            .map((one) => [one.name, one.encodedBodySize])"""
        loaded = page.evaluate(files)
        assert 10_000 < sum(size for _, size in loaded) <= FIRST_VISIT_BYTES_MAX, loaded
        assert not any("slo.js" in name for name, _ in loaded), loaded
        page.get_by_role("link", name="SLO").click()
        expect(page.locator("main")).to_contain_text("Budgets")
        assert any("slo.js" in name for name, _ in page.evaluate(files))

        # A node without topics, in both themes.
        for scheme in ("light", "dark"):
            empty = page_of(bypass_csp=True, color_scheme=scheme)
            empty.route("**/v1/events", lambda route: route.abort())
            empty.route("**/v1/topics", lambda route: route.fulfill(json={"topics": []}))
            empty.goto(f"{url}/#/")
            expect(empty.locator("main")).to_contain_text("No topic yet")
            axe(empty, f"the empty page, {scheme}")
            empty.context.close()

        # Many topics of one sink that is away are one trouble, on each screen and in the title.
        for topic in range(TOPICS):
            api("PUT", f"/v1/topics/calls-{topic:02}", {"shards": 1, "sink": {"name": "partner"}})
            api("POST", f"/v1/topics/calls-{topic:02}/messages", {"id": "one"})
        api("PUT", "/v1/topics/zeta", {"shards": 1})
        page.goto(f"{url}/#/")
        main = page.locator("main")
        expect(main).to_contain_text(f"The sink partner is down for {TOPICS} topics since")
        assert page.locator(".banner").count() == 1, page.locator(".banner").all_inner_texts()
        assert page.locator(".banner").evaluate("(one) => one.firstElementChild.innerText") == "Try or pause it"
        assert page.locator("table").bounding_box()["y"] < 500
        for place, title in (("", "Now"), ("nodes", "Nodes"), ("topic/zeta", "Overview · zeta"), ("find/one", "Find")):
            page.goto(f"{url}/#/{place}")
            expect(page).to_have_title(f"(1!) {title} · Duetime")
            expect(page.get_by_role("banner").get_by_role("link", name="1 trouble")).to_be_visible()
        page.goto(f"{url}/#/sinks")
        expect(main.get_by_role("button", name="Try it with calls-")).to_have_count(1)

        # Those that are down come first, then by name; nothing moves while a pointer is on the rows.
        page.goto(f"{url}/#/")
        names = lambda: [name.split()[0] for name in page.locator("tbody tr td:first-child").all_inner_texts()]
        calls = [f"calls-{topic:02}" for topic in range(TOPICS)]
        expect(page.locator("tbody tr").nth(TOPICS)).to_contain_text("mails")
        before = names()
        assert before == [*calls, "mails", "zeta"], before
        page.locator("tbody tr").nth(TOPICS).hover()
        listen(page)
        api("POST", "/v1/topics/zeta/messages", {"id": "late"})
        expect(page.locator("tbody tr").filter(has_text="zeta").locator("span.careful").first).to_be_visible()
        page.wait_for_timeout(HELD_MS)
        assert names() == before, names()
        # Ages grow, and no live region says so.
        assert page.evaluate("window.said") == [], page.evaluate("window.said")
        page.mouse.move(5, 5)
        expect(page.locator("tbody tr").nth(TOPICS)).to_contain_text("zeta")
        # What begins and ends is said once.
        region = page.get_by_role("status", name="what began and ended")
        api("POST", "/v1/topics/zeta/pause", {})
        expect(region).to_have_text("Began: zeta paused.")
        api("POST", "/v1/topics/zeta/resume", {})
        expect(region).to_have_text("Ended: zeta paused.")

        # What a token may do is noticed without a reload, both ways.
        scopes = {"now": ["view"]}
        page.goto(f"{url}/#/topic/zeta")
        expect(page.get_by_role("button", name="Delete this topic …")).to_be_visible()
        page.route("**/v1/me", lambda route: route.fulfill(json={**route.fetch().json(), "scopes": scopes["now"]}))
        expect(page.get_by_role("button", name="Delete this topic …")).to_have_count(0)
        scopes["now"] = ["admin", "produce", "consume", "view"]
        expect(page.get_by_role("button", name="Delete this topic …")).to_be_visible()
        page.unroute("**/v1/me")

        # Keys can be turned off.
        page.keyboard.press("?")
        page.get_by_label("These keys are on").uncheck()
        page.get_by_role("button", name="Close").click()
        page.keyboard.press("g")
        page.keyboard.press("?")
        assert page.get_by_role("dialog").count() == 0 and "topic/zeta" in page.url, page.url
        page.get_by_role("button", name="Keys").click()
        page.get_by_label("These keys are on").check()
        page.get_by_role("button", name="Close").click()
        page.keyboard.press("g")
        expect(page.get_by_role("heading", name="Now")).to_be_visible()

        # What is pressed is large enough, also on a telephone.
        narrow = page_of(viewport={"width": 360, "height": 740})
        for place in ("", "sinks", "topic/zeta", "messages/zeta"):
            narrow.goto(f"{url}/#/{place}")
            expect(narrow.locator("main h1, main h2").first).to_be_visible()
            narrow.wait_for_timeout(1500)
            small = narrow.evaluate(SMALL, TARGET_PX)
            assert not small, f"{place}: {small}"

        # There a topic is some lines, and all of it on demand.
        narrow.goto(f"{url}/#/")
        cells = narrow.locator("tbody tr").filter(has_text="zeta").locator("td:visible")
        expect(cells).to_have_count(6)
        narrow.get_by_role("button", name="All columns").click()
        expect(cells).to_have_count(14)
        expect(page.get_by_role("button", name="All columns")).to_have_count(0)

        # What is worst comes first, as in `duetime top`, whose test reads the same table.
        cases = json.loads(pathlib.Path(__file__).with_name("order.json").read_text())

        def topics_of(read):
            model = next(one for one in read["topics"] if one["name"] == "zeta")
            made = {name: model[name] for name in model if name != "oldest_due_at"}
            read["topics"] = [{**made, **{name: case[name] for name in ("name", "paused", "unreachable_shards") if name in case}} for case in reversed(cases)]
            for topic, case in zip(read["topics"], reversed(cases)):
                if "sink" in case:
                    topic.update(sink={"name": "partner"}, sink_issue={"state": case["sink"]})
                if "waited_ms" in case:
                    topic.update(due=1, oldest_due_at=int(time.time() * 1000) - case["waited_ms"])

        def rates_of(read):
            nothing = ("scheduled", "cancelled", "delivered", "retried", "dead", "deliveries", "late", "deliveries_total", "late_total")
            known = ("dead", "late_p99_ms", "of_rest")
            read["topics"] = [
                {"topic": case["name"], "over_ms": 60_000, "steps": [], **dict.fromkeys(nothing, 0), **{name: case[name] for name in known if name in case}}
                for case in cases
            ]

        ordered = page_of(viewport={"width": 1280, "height": 860})
        ordered.route("**/v1/events", lambda route: route.abort())
        put(ordered, "**/v1/topics", topics_of)
        put(ordered, "**/v1/rates?scope=cluster", rates_of)
        ordered.goto(f"{url}/#/")
        expect(ordered.locator("tbody td:first-child a.name")).to_have_text([case["name"] for case in cases])
        close(ordered)

        # Long names make no table wider than a desk's window, large or small.
        def long(read):
            for one in read.get("topics", []):
                one.update(name=LONG + one["name"], scheduled=16_000, sink={"name": "partner-callbacks-of-the-old-warehouse"})
            for one in read.get("entries", []):
                one.update(who="deployment-of-production", topic=LONG + one.get("topic", ""), id="order-2026-11-27-000042")

        def fits(place, shown):
            wide.goto(f"{url}/#/{place}")
            expect(wide.locator("tbody")).to_contain_text(shown)
            over = wide.locator(".scroll").first.evaluate("(one) => one.scrollWidth - one.clientWidth")
            assert over <= 0, f"the table of #/{place} is {over} px wider than its page of {width} px"

        for width, height in ((1440, 900), (1024, 768)):
            wide = page_of(viewport={"width": width, "height": height})
            wide.route("**/v1/events", lambda route: route.abort())
            put(wide, "**/v1/topics", long)
            put(wide, "**/v1/audit?*", long)
            fits("audit", "order-2026-11-27")
            fits("", "partner-callbacks-of")
            if width == 1024:
                # A name that is cut is whole for who comes to it by the keyboard, and what matters least is on demand.
                name = wide.locator("tbody").get_by_role("link", name=f"{LONG}zeta", exact=True)
                cut = name.bounding_box()["height"]
                wide.keyboard.press("Tab")
                name.focus()
                assert name.bounding_box()["height"] > 1.3 * cut, "a name is cut where it has the focus"
                last = wide.get_by_role("columnheader", name="Shards")
                expect(last).to_have_count(0)
                wide.get_by_role("button", name="All columns").click()
                expect(last).to_have_count(1)
            close(wide)

        # Dialogs, as axe sees them.
        api("POST", "/v1/topics/mails/messages", {"id": "later", "delay": "1h"})
        looked = page_of(bypass_csp=True)
        for place, button in (
            ("message/mails/later", "Cancel …"), ("message/mails/later", "Reschedule …"),
            ("topic/zeta", "Pause …"), ("topic/zeta", "Change …"), ("topic/zeta", "Delete this topic …"),
            ("shards/zeta", "Change the number …"), ("messages/mails", "Cancel all of these …"),
            ("sinks", "Pause the sink out"), ("nodes", "Keys"),
        ):
            looked.goto(f"{url}/#/{place}")
            looked.get_by_role("button", name=button).click()
            expect(looked.get_by_role("dialog")).to_be_visible()
            looked.wait_for_timeout(1200)
            axe(looked, f"{place}: {button}")
            looked.keyboard.press("Escape")
            expect(looked.get_by_role("dialog")).to_have_count(0)
    print("it is calm")


main()
