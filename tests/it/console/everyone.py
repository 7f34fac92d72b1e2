"""What is for everyone: empty and enlarged screens, names, states without colours, no motion: python everyone.py URL

The console of the node has a name and a colour, and there is a sink `partner` that nobody answers for.
"""

import sys

from playwright.sync_api import expect

from browser import asking, axe, chromium, close, pages_in, put, until
from screens import CALLS, FULL, PRESSED, fill, opens

SEEN_WITHIN_MS = 30_000
# A desk's window at twice its size.
ENLARGED = {"width": 720, "height": 450}
# Answers of this length are compressed.
LONG_BYTES = 4096
HEAD_PX = 70
MOVES = """() => [...document.querySelectorAll('*')].filter((one) => {
    const { animationName, transitionDuration } = getComputedStyle(one);
    return animationName !== 'none' || transitionDuration.split(', ').some((span) => parseFloat(span) > 0);
}).map((one) => one.outerHTML.slice(0, 90))"""
# Screens of a topic that has nothing, and those of a node where nothing happened yet.
EMPTY = {
    "topic/empty": "Settings", "forecast/empty": "Nothing falls due in this time", "messages/empty": "No such messages.",
    "dead/empty": "No dead letters.", "shards/empty": "Scanned by", "sinks": "No topic has a sink", "slo": "Budgets",
    "audit": "Nothing was changed since the start.", "nodes": "Shares by", "try": "Nothing is claimed on this page.",
    "find/nobody": "No topic has such a message", "topic/nobody": "There is no topic nobody", "message/empty/nobody": "has no message",
}


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url)
    with chromium() as browser:
        page_of = pages_in(browser, SEEN_WITHIN_MS)
        seen = opens(url)

        # Screens with nothing on them, as axe sees them, in both themes.
        api("PUT", "/v1/topics/empty", {"shards": 1})
        only_empty = lambda read: read.update(topics=[one for one in read["topics"] if one["name"] == "empty"])
        for scheme in ("light", "dark"):
            page = page_of(bypass_csp=True, color_scheme=scheme)
            page.route("**/v1/events", lambda route: route.abort())
            put(page, "**/v1/topics", only_empty)
            put(page, "**/v1/audit?*", lambda read: read.update(entries=[]))
            for place, said in EMPTY.items():
                seen(page, place, said)
                axe(page, f"{place}, {scheme}")
            close(page)
        # Who may only look is not invited to what is not offered.
        page = page_of()
        page.route("**/v1/events", lambda route: route.abort())
        put(page, "**/v1/topics", lambda read: read.update(topics=[]))
        put(page, "**/v1/me", lambda read: read.update(scopes=["view"]))
        seen(page, "", "Who has a token with the scope admin can make one.")
        expect(page.get_by_role("link", name="Try it")).to_have_count(0)
        close(page)

        fill(api)

        # Whose page it is stands at the head of each screen, in its colour, and in the title.
        page = page_of(viewport={"width": 1280, "height": 860})
        for place, title in (("", "Now"), ("topic/orders", "Overview · orders"), ("nodes", "Nodes")):
            seen(page, place, FULL[place])
            expect(page.get_by_role("banner")).to_contain_text("production")
            expect(page).to_have_title(f"(1!) {title} · production · Duetime")
            edge = page.get_by_role("banner").evaluate("(one) => getComputedStyle(one).borderTopColor")
            assert edge == "rgb(209, 36, 47)", edge

        # How many are in time is said, and the API's answers are compressed.
        page.goto(f"{url}/#/")
        expect(page.get_by_role("heading", name=f"{CALLS + 3} topics")).to_contain_text(f"{CALLS + 2} in time")
        packed = """performance.getEntriesByType('resource').filter((one) => /\\/v1\\/(topics|rates)/.test(one.name))
            .map((one) => [one.name, one.encodedBodySize, one.decodedBodySize])"""
        long = lambda: [one for one in page.evaluate(packed) if one[2] >= LONG_BYTES]
        until(page, long, "the rates are read")
        sizes = long()
        assert all(0 < sent < plain / 2 for _, sent, plain in sizes), sizes

        # At twice the size nothing is out of reach: neither a column, nor a button, nor the end of a dialog.
        page = page_of(viewport=ENLARGED)
        for place, said in FULL.items():
            seen(page, place, said)
            page.wait_for_timeout(500)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{place} is {wide} px wider than its window"
            for one in [*page.locator("main thead th:visible").all(), *page.locator(PRESSED).all()]:
                one.evaluate("(one) => one.scrollIntoView({ inline: 'center', block: 'center' })")
                expect(one).to_be_in_viewport(ratio=0.9)
        seen(page, "topic/orders", "Settings")
        page.get_by_role("button", name="Change …").click()
        for name in ("Leave it", "Change them"):
            button = page.get_by_role("dialog").get_by_role("button", name=name)
            button.scroll_into_view_if_needed()
            expect(button).to_be_in_viewport(ratio=0.9)
        close(page)

        # On a small laptop the head is one line, and tables of text fit.
        page = page_of(viewport={"width": 1024, "height": 768})
        for place in ("audit", "dead/orders"):
            seen(page, place, FULL[place])
            page.wait_for_timeout(500)
            assert page.get_by_role("banner").bounding_box()["height"] < HEAD_PX
            wide = page.locator(".scroll").first.evaluate("(one) => one.scrollWidth - one.clientWidth")
            assert wide <= 0, f"the table of {place} is {wide} px wider than the page"
        close(page)

        # Where there are no colours a state is read.
        page = page_of(forced_colors="active", viewport={"width": 1280, "height": 860})
        shards = page.get_by_role("group", name="shards").get_by_role("button")
        seen(page, "shards/calls-0", "Scanned by")
        late = shards.filter(has_text="!!")
        expect(late).to_have_count(1)
        assert "late by more than ten seconds" in late.get_attribute("aria-label")
        seen(page, "", "in time")
        expect(page.locator("tbody tr").filter(has_text="calls-0")).to_contain_text("sink down")
        close(page)

        # What moves does so for those alone who did not ask for less of it.
        for wish, moves in (("no-preference", 1), ("reduce", 0)):
            page = page_of(reduced_motion=wish)
            seen(page, "topic/orders", "Settings")
            for deed in ("Pause", "Resume"):
                page.get_by_role("button", name=f"{deed} …").click()
                page.get_by_role("dialog").get_by_role("button", name=f"{deed} it").click()
                expect(page.locator(".toast")).to_be_visible()
                found = page.evaluate(MOVES)
                assert len(found) == moves, (wish, found)
                expect(page.get_by_role("dialog")).to_have_count(0)
            close(page)
    print("it is for everyone")


main()
