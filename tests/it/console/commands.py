"""Each action is among the commands, nothing is said aloud meanwhile, and rows stay under the focus: python commands.py URL

The node has a sink `partner` that nobody answers for.
"""

import sys

from playwright.sync_api import expect

from browser import asking, chromium, close, listen, pages_in, put, until
from screens import FULL, PRESSED, fill, opens

SEEN_WITHIN_MS = 30_000
# Longer than rows that nobody has the focus in keep their places.
HELD_MS = 12_000
# While ages grow.
LISTENED_MS = 1500


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url)
    fill(api)
    with chromium() as browser:
        page_of = pages_in(browser, SEEN_WITHIN_MS)
        seen = opens(url)

        page = page_of(viewport={"width": 1280, "height": 860})
        # On no screen is anything said aloud while nothing begins and nothing ends, and each action of it is among the commands.
        palette = page.get_by_role("dialog", name="Commands")
        field = page.get_by_role("combobox", name="Go to, or do")
        options = palette.get_by_role("option")
        for place, said in FULL.items():
            seen(page, place, said)
            page.wait_for_timeout(800)
            listen(page)
            page.wait_for_timeout(LISTENED_MS)
            assert page.evaluate("window.said") == [], f"{place}: {page.evaluate('window.said')}"
            named = "(some) => some.filter((one) => !one.disabled).map((one) => (one.ariaLabel ?? one.innerText).replace(/\\s+/g, ' ').trim())"
            actions = sorted(set(page.locator(PRESSED).evaluate_all(named)))
            page.keyboard.press("Control+k")
            expect(field).to_be_focused()
            for action in [*actions, "Keys ?"]:
                field.fill(action)
                found = [text.replace("\n", " ") for text in options.all_inner_texts()]
                assert any(text.startswith(action) and text.endswith("here") for text in found), f"{place}: {action}: {found}"
            page.keyboard.press("Escape")
            expect(palette).to_have_count(0)
        # Those of a topic are from anywhere: its screen is opened, and asks as ever.
        dialog = page.get_by_role("dialog")
        for text, place, title in (
            ("pause ord", "topic/orders", "Pause orders"), ("resize empt", "shards/empty", "Change the number of shards of empty"),
            ("settings of ord", "topic/orders", "Change the settings of orders"), ("delete empt", "topic/empty", "Delete empty"),
        ):
            # Also where the screen before has a button of the same name.
            for before in ("nodes", "topic/mails"):
                seen(page, before, FULL.get(before, "Settings"))
                page.keyboard.press("Control+k")
                field.fill(text)
                expect(options.first).to_contain_text("orders" if "ord" in text else "empty")
                page.keyboard.press("Enter")
                expect(dialog.get_by_role("heading")).to_contain_text(title)
                assert page.url.endswith(f"#/{place}"), page.url
                page.keyboard.press("Escape")
                expect(dialog).to_have_count(0)
        # Those of a sink too; and who did what is asked of the audit log.
        seen(page, "nodes", FULL["nodes"])
        page.keyboard.press("Control+k")
        field.fill("pause sink part")
        expect(options.first).to_contain_text("Pause the sink partner …")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("heading")).to_contain_text("Pause the sink partner")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        page.keyboard.press("Control+k")
        field.fill("who created calls-3")
        expect(options.first).to_contain_text("Who: created calls-3")
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="audit log").locator("tbody tr")).to_have_count(1)
        expect(page.get_by_role("region", name="audit log")).to_contain_text("calls-3")
        assert "paused" not in api("GET", "/v1/topics/orders") and api("GET", "/v1/topics/empty")["shard_count"] == 1
        page.keyboard.press("Control+k")
        field.fill("orders later")
        expect(options.first).to_contain_text("later of orders")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("may be claimed")
        # Who may only look is offered none of them.
        put(page, "**/v1/me", lambda read: read.update(scopes=["view"]))
        seen(page, "nodes", "Shares by")
        expect(page.get_by_role("link", name="Try it")).to_have_count(0)
        page.keyboard.press("Control+k")
        field.fill("pause ord")
        expect(options).to_have_count(1)
        expect(options.first).to_contain_text("Find the message pause ord")
        page.keyboard.press("Escape")
        close(page)

        # Rows keep their places while the focus is on them.
        page = page_of(viewport={"width": 1280, "height": 860})
        seen(page, "", "in time")
        names = lambda: [name.split()[0] for name in page.locator("tbody tr td:first-child").all_inner_texts()]
        page.get_by_role("link", name="empty", exact=True).focus()
        page.mouse.move(5, 5)
        before = names()
        api("POST", "/v1/topics/empty/messages", {"id": "late"})
        row = page.locator("tbody tr").filter(has=page.get_by_role("link", name="empty", exact=True))
        expect(row.locator("span.careful").first).to_be_visible()
        page.wait_for_timeout(HELD_MS)
        assert names() == before, (before, names())
        expect(page.get_by_role("link", name="empty", exact=True)).to_be_focused()
        page.get_by_role("heading", name="Now").click()
        until(page, lambda: names() != before, "rows are sorted once nobody is on them")
    print("each action is among the commands")


main()
