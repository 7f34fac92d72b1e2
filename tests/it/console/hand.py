"""By hand: the palette of commands, Try it, and what is the same on all screens: python hand.py URL"""

import re
import sys
import time

from playwright.sync_api import expect

from browser import asking, axe, chromium, pages_in, put, until

SEEN_WITHIN_MS = 20_000
# Times as programs write them, and durations in the notation of settings.
WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d|\b\d+[hm] \d+[ms]\b|\b\d+ms\b")
# A moment without how long ago that was.
SINCE = re.compile(r"since \d\d:\d\d:\d\d(?! \()")
AGO = re.compile(r"\d\d:\d\d:\d\d \((just now|[^)]* ago)\)")
OF_TOPIC = ("topic", "forecast", "messages", "shards", "dead")


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url, refusals=True)
    for topic in ("orders", "slips"):
        api("PUT", f"/v1/topics/{topic}", {"shards": 1})
    api("POST", "/v1/topics/orders/messages", [{"id": "order-1", "delay": "47m 28s"}, {"id": "order-2", "delay": "1h"}])
    api("POST", "/v1/topics/orders/messages", {"id": "broken"})
    dead = api("POST", "/v1/topics/orders/claim", {"wait": "10s"})[1]["messages"][0]
    api("POST", "/v1/topics/orders/nack", {"receipts": [dead["receipt"]], "dead": True, "reason": "it is closed"})

    with chromium() as browser:
        page_of = pages_in(browser, SEEN_WITHIN_MS)

        page = page_of(viewport={"width": 1280, "height": 860})
        main, dialog = page.locator("main"), page.get_by_role("dialog")
        palette = page.get_by_role("dialog", name="Commands")
        chosen = palette.locator("[aria-selected=true]")
        field = page.get_by_role("combobox", name="Go to, or do")

        def command(text, first):
            page.keyboard.press("Control+k")
            expect(field).to_be_focused()
            page.keyboard.type(text)
            expect(chosen).to_contain_text(first)

        # Screens, topics and messages, by the keyboard alone.
        page.goto(f"{url}/#/")
        expect(main).to_contain_text("slips")
        command("sli dead", "slips Dead letters")
        page.keyboard.press("Enter")
        expect(main).to_contain_text("No dead letters")
        command("nod", "Nodes")
        page.keyboard.press("Enter")
        expect(main).to_contain_text("Shares by")
        command("order-2", "Find the message order-2")
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="messages of this id")).to_contain_text("order-2")
        # It goes down and up, and is left by Esc; where the focus was, it is again.
        page.get_by_role("button", name="Commands").click()
        expect(field).to_be_focused()
        first = chosen.inner_text()
        page.keyboard.press("ArrowDown")
        expect(chosen).not_to_have_text(first)
        expect(chosen).to_have_count(1)
        described = field.evaluate("(one) => document.getElementById(one.getAttribute('aria-activedescendant')).ariaSelected")
        assert described == "true", described
        page.keyboard.press("ArrowUp")
        expect(chosen).to_have_text(first)
        page.keyboard.press("Escape")
        expect(palette).to_have_count(0)
        expect(page.locator(":focus")).to_have_text("Commands", use_inner_text=True)

        # What can be done on the screen, which asks first as ever; who leaves that is at its button.
        page.goto(f"{url}/#/topic/slips")
        expect(page.get_by_role("button", name="Pause …")).to_be_visible()
        command("pau", "Pause …")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("Pause slips")
        assert "paused" not in api("GET", "/v1/topics/slips")[1]
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        page.wait_for_timeout(300)
        expect(page.locator(":focus")).to_have_text("Pause …", use_inner_text=True)
        # By one key too, which asks as well, and is off with the others.
        page.keyboard.press("p")
        expect(dialog).to_contain_text("Pause slips")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        page.evaluate("localStorage.setItem('duetime-keys', 'off')")
        page.keyboard.press("p")
        page.wait_for_timeout(500)
        assert dialog.count() == 0
        page.evaluate("localStorage.removeItem('duetime-keys')")
        # In a table each names its row, and nothing is pressed that is not there any more.
        page.goto(f"{url}/#/dead/orders")
        expect(main).to_contain_text("1 dead letter, 1 reason")
        command("purge", "Purge … · given up by its consumer")
        api("POST", "/v1/topics/orders/dead/redrive", {"ids": ["broken"]})
        expect(main).to_contain_text("No dead letters")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").last).to_contain_text("The screen changed meanwhile: nothing was done.")
        expect(dialog).to_have_count(0)
        # It is off with the other keys, and its button is not.
        page.keyboard.press("?")
        page.get_by_label("These keys are on").uncheck()
        page.get_by_role("button", name="Close").click()
        page.keyboard.press("Control+k")
        page.wait_for_timeout(500)
        assert palette.count() == 0
        page.get_by_role("button", name="Commands").click()
        expect(palette).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Keys").click()
        page.get_by_label("These keys are on").check()
        page.get_by_role("button", name="Close").click()

        # axe finds nothing, and it fits a telephone.
        for options in ({"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}}):
            looked = page_of(bypass_csp=True, **options)
            looked.goto(f"{url}/#/topic/slips")
            expect(looked.locator("main")).to_contain_text("Settings")
            looked.get_by_role("button", name="Commands").click()
            expect(looked.get_by_role("combobox")).to_be_focused()
            axe(looked, "the commands")
            assert looked.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            looked.context.close()

        # What is claimed and what is typed on Try it is there again after another screen, and is given back at once.
        page.goto(f"{url}/#/try")
        page.get_by_label("Topic", exact=True).fill("orders")
        page.get_by_role("button", name="Claim what is due").click()
        expect(main).to_contain_text("broken of orders")
        expect(main).to_contain_text("yours until")
        expect(page.get_by_role("button", name="Nack")).to_be_enabled()
        command("nack", "Nack · broken")
        page.keyboard.press("Escape")
        page.get_by_label("Payload").fill("half a payload")
        page.get_by_role("heading", name="Try it").click()
        page.keyboard.press("g")
        expect(page.get_by_role("heading", name="Now")).to_be_visible()
        page.evaluate("location.hash = '#/try'")
        expect(page.get_by_label("Payload")).to_have_value("half a payload")
        # It is settled in the topic that it was claimed from.
        page.get_by_label("Topic", exact=True).fill("slips")
        # The browser asks before it throws that away.
        asked = []
        page.once("dialog", lambda box: (asked.append(box.type), box.dismiss()))
        page.evaluate("setTimeout(() => location.reload())")
        until(page, lambda: asked, "the browser asks")
        page.wait_for_timeout(500)
        assert asked == ["beforeunload"], asked
        before = api("GET", "/v1/topics/orders/messages/broken")[1]
        page.get_by_role("button", name="Give all back").click()
        expect(page.get_by_role("status").last).to_contain_text("1 of 1 are due again")
        expect(main).to_contain_text("Nothing is claimed on this page.")
        after = api("GET", "/v1/topics/orders/messages/broken")[1]
        assert before["state"] == "in_flight" and after["state"] != "in_flight", (before, after)
        assert after["attempts"] == 0, after
        # What was sent is thrown away by nobody.
        page.get_by_label("Id (made if empty)").fill("whole")
        page.get_by_role("button", name="Enqueue").click()
        expect(page.get_by_role("status").last).to_contain_text("whole: scheduled")
        page.reload()
        expect(page.get_by_label("Payload")).to_have_value("close the order")

        # A topic that is not there is one screen, wherever one comes from.
        for place in (*(f"{one}/nobody" for one in OF_TOPIC), "message/nobody/one"):
            page.goto(f"{url}/#/{place}")
            expect(main).to_contain_text("There is no topic nobody")
            expect(main).to_contain_text("duetime topic create -- nobody")
            assert main.get_by_role("alert").count() == 0 and main.get_by_role("table").count() == 0, place
        api("PUT", "/v1/topics/nobody", {"shards": 1})
        expect(main).to_contain_text('topic "nobody" has no message "one"')

        # Times are written in one way, in the zone that the foot names once.
        api("POST", "/v1/topics/slips/pause", {"reason": "the shop moves"})
        paused = api("GET", "/v1/topics/slips")[1]["pause"]["since"] // 1000
        paused_at, utc_at = (time.strftime("%H:%M:%S", time.gmtime(paused + hours * 3600)) for hours in (9, 0))
        far = page_of(timezone_id="Asia/Tokyo", viewport={"width": 1280, "height": 860})
        herd = {
            "from": 1_800_000_000_000, "to": 1_800_000_060_000, "count": 1200, "last_late_ms": 3000,
            "summary": "1.2 k at 2027-01-15T08:00:00Z",
        }
        put(far, "**/forecast?*", lambda read: read.update(capacity=400.0, herd=herd))
        api("POST", "/v1/topics/orders/nack", {"receipts": [
            api("POST", "/v1/topics/orders/claim", {"wait": "10s"})[1]["messages"][0]["receipt"]], "dead": True})
        for place, said in {
            "message/orders/order-1": "Due at", "message/orders/broken": "Dead since", "forecast/orders": "the last one is late by 3.0 s",
            "messages/orders": "2 messages", "dead/orders?all=yes": "All of them", "nodes": "Shares by", "shards/orders": "Scanned by",
            "": "is paused since", "topic/slips": "This topic is paused since", "sinks": "Topics with a sink", "slo": "Budgets",
            "audit": "paused",
        }.items():
            far.goto(f"{url}/#/{place}")
            expect(far.locator("main")).to_contain_text(said)
            far.wait_for_timeout(500)
            text = far.locator("main").evaluate("(one) => [...one.querySelectorAll('pre, code')].forEach((x) => x.remove()) ?? one.innerText")
            assert not WRITTEN.search(text), (place, WRITTEN.search(text))
            # Since when it is, with how long ago that was, and by whom.
            assert not SINCE.search(text), (place, SINCE.search(text))
            if place in ("", "topic/slips"):
                assert f"{paused_at} (" in text and utc_at not in text, (place, paused_at, text)
            assert place != "audit" or AGO.search(text), text
            expect(far.locator("footer")).to_contain_text("times are those of Asia/Tokyo")

        # What happens next is said first, then what can be done, then the facts; the reason once.
        page.goto(f"{url}/#/message/orders/broken")
        expect(main).to_contain_text("Dead since")
        text = main.inner_text()
        order = [text.index(part) for part in ("Dead since", "Redrive …", "may be claimed")]
        assert order == sorted(order) and text.count("given up by its consumer") == 1, text
        page.get_by_role("link", name="All of this reason").click()
        expect(page.get_by_role("region", name=re.compile("^Of the reason")).locator("li")).to_have_count(1)
    print("it is at hand")


main()
