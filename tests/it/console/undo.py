"""What a bulk action removed is put back, and where that cannot be it says why: python undo.py URL"""

import re
import sys

from playwright.sync_api import expect

from browser import asking, axe, chromium, close, put, window_in

SEEN_WITHIN_MS = 30_000
# From so many on the topic's name is typed.
COUNT = 60
DEAD = 3


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url, refusals=True)
    api("PUT", "/v1/topics/brief", {"shards": 1})
    api("PUT", "/v1/topics/orders", {"shards": 2, "remember": "1h"})
    api("POST", "/v1/topics/brief/messages", {"id": "gone", "delay": "1h"})
    api("POST", "/v1/topics/orders/messages", [{"id": f"bad-{n}"} for n in range(DEAD)])
    died = 0
    while died < DEAD:
        taken = api("POST", "/v1/topics/orders/claim", {"max": DEAD, "wait": "10s"})[1]["messages"]
        nack = {"receipts": [one["receipt"] for one in taken], "dead": True, "reason": "it is closed"}
        died += len(api("POST", "/v1/topics/orders/nack", nack)[1]["results"])
    api("POST", "/v1/topics/orders/messages", [{"id": f"a-{n}", "delay": "2h", "payload": f"text {n}"} for n in range(COUNT)])
    api("POST", "/v1/topics/orders/messages", {"id": "due", "payload": "at once"})
    all_of = COUNT + 1
    plan = lambda: api("GET", "/v1/topics/orders/plans")[1]["plans"][0]

    with chromium() as browser:
        def page_of(place, **options):
            page = window_in(browser.new_context(**options), SEEN_WITHIN_MS)
            page.goto(f"{url}/#/{place}")
            return page

        page = page_of("messages/brief", viewport={"width": 1280, "height": 860})
        main, dialog = page.locator("main"), page.get_by_role("dialog")
        bulk = page.get_by_role("region", name="bulk actions")
        undo = bulk.get_by_role("button", name="Undo, until")

        # Where it will not be possible, that is said before anybody agrees, and afterwards.
        page.get_by_role("button", name="Cancel all of these").click()
        expect(dialog).to_contain_text("This cannot be taken back: ")
        dialog.get_by_role("button", name="Cancel 1 message").click()
        expect(bulk).to_contain_text("done")
        expect(bulk.locator("[data-name=Undo]")).to_contain_text("no: ")
        expect(undo).to_have_count(0)

        # Where it is possible, the dialog says so, and what it did says for how long.
        page.goto(f"{url}/#/messages/orders")
        expect(main).to_contain_text(f"{all_of} messages")
        page.get_by_role("button", name="Cancel all of these").click()
        expect(dialog).to_contain_text("This can be taken back for ten minutes after it ended")
        dialog.get_by_label("Type orders to go on").fill("orders")
        dialog.get_by_label("Messages a second, at most").fill("1000")
        dialog.get_by_role("button", name=f"Cancel {all_of} messages").click()
        expect(page.get_by_role("status").last).to_contain_text(f"Cancel: done, {all_of} of {all_of}. It can be taken back until")
        expect(undo).to_have_text(re.compile(r"Undo \(9:5\d left\) …"))
        expect(main).to_contain_text("No such messages.")
        # Who may only look is told, and offered nothing.
        looks = page_of("about:blank")
        put(looks, "**/v1/me", lambda read: read.update(scopes=["view"]))
        looks.goto(f"{url}/#/messages/orders")
        expect(looks.get_by_role("region", name="bulk actions")).to_contain_text(re.compile(r"possible, 9:\d\d left"))
        expect(looks.get_by_role("button", name="Undo, until")).to_have_count(0)
        close(looks)

        # It is among the commands, and asks: with what comes back, and what is delivered at once.
        api("POST", "/v1/topics/orders/messages", {"id": "a-0", "delay": "3h", "payload": "another", "on_conflict": "replace"})
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Go to, or do").fill("undo")
        expect(page.get_by_role("listbox", name="commands").get_by_role("option").first).to_contain_text("Undo, until")
        # Its time goes on meanwhile.
        page.wait_for_timeout(1500)
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("heading")).to_have_text(f"Put back {all_of} messages of orders")
        for said in ("What was enqueued under one of these ids since", "Up to 1 of them are due by now", f"duetime bulk undo -- orders {plan()['id']}"):
            expect(dialog).to_contain_text(said)
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(undo).to_be_focused()
        # What is forgotten could not be taken back.
        bulk.get_by_role("button", name="Forget").first.click()
        expect(dialog).to_contain_text("Once it is forgotten it cannot.")
        dialog.get_by_role("button", name="Leave it").click()

        # Then they are there again, but for what came in between, and the list shows them.
        undo.click()
        dialog.get_by_role("button", name=f"Put back {all_of} messages").click()
        expect(bulk).to_contain_text(f"{COUNT} messages are there again; 1 left alone: something else happened to their ids since")
        expect(page.get_by_role("status").last).to_contain_text(f"Cancel, taken back: {COUNT} messages are there again")
        expect(main).to_contain_text(f"{all_of} messages")
        texts = [api("GET", f"/v1/topics/orders/messages/{id}")[1]["payload"] for id in ("a-0", "a-1", "due")]
        assert texts == ["another", "text 1", "at once"], texts
        assert plan()["undo"]["restored"] == COUNT, plan()
        expect(undo).to_have_count(0)
        # Both are in the log.
        page.goto(f"{url}/#/audit")
        for said in ("bulk action started", "bulk action taken back"):
            expect(page.locator("tbody")).to_contain_text(said)

        # One that was stopped goes on or is taken back, and not both.
        page.goto(f"{url}/#/messages/orders?prefix=a-1")
        expect(main).to_contain_text("11 messages")
        page.get_by_role("button", name="Cancel all of these").click()
        dialog.get_by_label("Messages a second, at most").fill("1")
        dialog.get_by_role("button", name="Cancel 11 messages").click()
        expect(bulk.get_by_role("row").nth(1)).to_contain_text("running")
        bulk.get_by_role("button", name="Stop").click()
        expect(bulk.get_by_role("row").nth(1)).to_contain_text("stopped")
        go_on = bulk.get_by_role("button", name="Go on …")
        expect(go_on).to_have_count(1)
        # Somebody else takes it back while the dialog is open: that is said, and nothing is done twice.
        undo.click()
        expect(dialog).to_contain_text("are there again as they were")
        api("POST", f"/v1/topics/orders/plans/{plan()['id']}/undo", {})
        expect(dialog.get_by_role("alert")).to_contain_text("It was taken back meanwhile.")
        expect(dialog.get_by_role("button", name="Put back")).to_be_disabled()
        page.keyboard.press("Escape")
        expect(main).to_contain_text("11 messages")
        expect(go_on).to_have_count(0)

        # What was purged comes back as dead letters.
        page.goto(f"{url}/#/dead/orders")
        page.get_by_role("button", name="Purge …").click()
        expect(dialog).to_contain_text("This can be taken back for ten minutes after it ended")
        dialog.get_by_label("Type orders to go on").fill("orders")
        dialog.get_by_role("button", name=f"Purge {DEAD} messages").click()
        expect(main).to_contain_text("No dead letters.")
        undo.click()
        expect(dialog).to_contain_text("They are there again as dead letters as they were")
        dialog.get_by_role("button", name=f"Put back {DEAD} messages").click()
        expect(bulk).to_contain_text(f"{DEAD} messages are there again")
        expect(main).to_contain_text(f"{DEAD} dead letters, 1 reason")
        assert api("GET", "/v1/topics/orders/messages/bad-0")[1]["death"]["reason"].endswith("it is closed")

        # How far it is, and why it cannot be any more.
        found = {}
        put(page, "**/v1/topics/orders/plans", lambda read: read["plans"][0]["undo"].update(found))
        for now, said in (
            ({"state": "running", "kept": 60, "restored": 12, "left": 1}, "13 of 60 put back"),
            ({"state": "over", "why_not": "its ten minutes are over", "restored": 0}, "no: its ten minutes are over"),
            ({"state": "lost", "why_not": "the node n1 has ended", "restored": 4, "left": 0}, "4 messages are there again; no: the node n1 has ended"),
        ):
            found.update(now)
            expect(bulk.get_by_role("row").nth(1)).to_contain_text(said)
        page.unroute_all(behavior="ignoreErrors")

        # axe finds nothing in it, and it fits a telephone.
        api("POST", "/v1/topics/orders/messages", {"id": "z", "delay": "1h"})
        made = api("POST", "/v1/topics/orders/plans", {"action": "cancel", "prefix": "z", "undoable": True})[1]["id"]
        api("POST", f"/v1/topics/orders/plans/{made}/start", {"at_most": 1})
        looked = page_of("messages/orders", bypass_csp=True, viewport={"width": 360, "height": 740})
        looked.get_by_role("button", name="Undo, until").click()
        expect(looked.get_by_role("dialog")).to_contain_text("Put back 1 message of orders")
        looked.wait_for_timeout(1200)
        axe(looked, "what is put back")
        assert looked.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    print("it was taken back")


main()
