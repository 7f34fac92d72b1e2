"""Topics and sinks are paused and resumed through the page, and the API is asked what came of it: python pauses.py URL"""

import sys

from playwright.sync_api import expect

from browser import asking, chromium, window_in

SEEN_WITHIN_MS = 20_000
OPS = "ops-0123456789abcdef"
LOOKS = "looks-0123456789abcdef"
WHY = "it's moved <b>today</b>"


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url, OPS)

    def pause_of(topic):
        found = api("GET", f"/v1/topics/{topic}")
        return found.get("paused", False), {name: value for name, value in found.get("pause", {}).items() if name != "since"}

    for topic in ("letters", "parcels"):
        api("PUT", f"/v1/topics/{topic}", {"sink": {"name": "out"}})
    api("POST", "/v1/topics/parcels/pause", {"reason": "its own"})
    api("POST", "/v1/topics/mails/messages", {"id": "later", "delay": "1h"})

    with chromium() as browser:
        def page_of(token):
            page = window_in(browser.new_context(), SEEN_WITHIN_MS)
            page.goto(f"{url}/#/")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Use it").click()
            expect(page.locator("main")).to_contain_text("mails")
            return page

        page = page_of(OPS)
        page.goto(f"{url}/#/sinks")
        # The whole sink, with the reason.
        page.get_by_role("button", name="Pause the sink out").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Its 2 topics are paused one by one")
        dialog.get_by_label("Why?").fill(WHY)
        dialog.get_by_text("The same as a command").click()
        expect(dialog).to_contain_text("""duetime sink pause --reason='it'\\''s moved <b>today</b>'""")
        expect(dialog).to_contain_text("/v1/sinks/out/pause")
        dialog.get_by_role("button", name="Pause it").click()
        expect(page.locator("body")).to_contain_text("2 topics of out paused, 1 left as it was")
        through = {"reason": WHY, "by": "ops", "sink": "out"}
        assert [pause_of(topic) for topic in ("mails", "letters", "parcels")] == [(True, through), (True, through), (True, {"reason": "its own", "by": "ops"})]
        expect(page.locator("main")).to_contain_text("2 topics since")
        expect(page.get_by_role("button", name="Pause the sink out")).to_have_count(0)

        # It is said wherever one looks.
        for place, said in [("topic/mails", "This topic is paused since"), ("messages/mails", "This topic is paused since"), ("", "2 topics are paused since")]:
            page.goto(f"{url}/#/{place}")
            banner = page.locator(".banner", has_text=said)
            expect(banner).to_contain_text("by ops through the sink out")
            expect(banner).to_contain_text(WHY)
        expect(page.locator(".banner", has_text="parcels")).to_contain_text("its own")
        page.goto(f"{url}/#/audit")
        expect(page.locator("main")).to_contain_text(WHY)

        # A sink of many topics is paused by several requests, and what is said is of all of them.
        pages = [
            {"topics": [{"topic": f"many-{n}", "outcome": "paused"} for n in range(1000)], "other_topics": 0, "more": True},
            {"topics": [{"topic": "many-0", "outcome": "left"}, {"topic": "last", "outcome": "paused"}], "other_topics": 0, "more": False},
        ]
        many = page_of(OPS)
        many.route("**/v1/sinks/out/resume", lambda route: route.fulfill(json={"sink": "out", **pages.pop(0)}))
        many.goto(f"{url}/#/sinks")
        many.get_by_role("button", name="Resume the sink out").click()
        many.get_by_role("button", name="Resume it").click()
        expect(many.get_by_role("status").last).to_contain_text("1,001 topics of out resumed")
        many.close()

        # Who may only look sees why, and is offered nothing.
        looks = page_of(LOOKS)
        looks.goto(f"{url}/#/sinks")
        expect(looks.locator("main")).to_contain_text("Pausing and resuming a sink: this token may not; it needs the scope admin.")
        expect(looks.locator("main")).to_contain_text(WHY)
        expect(looks.get_by_role("button", name="Resume the sink out")).to_have_count(0)

        page.goto(f"{url}/#/sinks")
        page.get_by_role("button", name="Resume the sink out").click()
        expect(page.get_by_role("dialog")).to_contain_text("The 2 topics that were paused through it go on")
        page.get_by_role("button", name="Resume it").click()
        expect(page.get_by_role("button", name="Pause the sink out")).to_be_visible()
        assert [pause_of(topic)[0] for topic in ("mails", "letters", "parcels")] == [False, False, True]

        # One topic, with its reason, and without.
        page.goto(f"{url}/#/topic/mails")
        page.get_by_role("button", name="Pause …").click()
        dialog.get_by_label("Why?").fill("templates change")
        dialog.get_by_text("The same as a command").click()
        expect(dialog).to_contain_text("duetime pause --reason='templates change' -- mails")
        dialog.get_by_role("button", name="Pause it").click()
        expect(page.locator(".banner")).to_contain_text("templates change")
        assert pause_of("mails") == (True, {"reason": "templates change", "by": "ops"})
        page.get_by_role("button", name="Resume …").click()
        # A dialog stays what it was opened as, whatever somebody else does meanwhile.
        api("POST", "/v1/topics/mails/resume", {})
        expect(dialog).to_contain_text("It was resumed meanwhile")
        expect(dialog.get_by_role("button", name="Resume it")).to_be_disabled()
        dialog.get_by_role("button", name="Leave it").click()
        page.get_by_role("button", name="Pause …").click()
        dialog.get_by_label("Why?").fill("mine")
        api("POST", "/v1/topics/mails/pause", {"reason": "somebody else's"})
        expect(dialog).to_contain_text("It was paused meanwhile since")
        expect(dialog).to_contain_text("somebody else's")
        expect(dialog.get_by_role("button", name="Pause it")).to_be_disabled()
        dialog.get_by_role("button", name="Leave it").click()
        page.get_by_role("button", name="Resume …").click()
        page.get_by_role("button", name="Resume it").click()
        expect(page.get_by_role("button", name="Pause …")).to_be_visible()
        assert pause_of("mails") == (False, {})
        page.get_by_role("button", name="Pause …").click()
        page.get_by_role("button", name="Pause it").click()
        expect(page.locator(".banner")).to_contain_text("This topic is paused since")
        assert pause_of("mails") == (True, {"by": "ops"})
    print("topics and sinks are paused with their reasons")


main()
