"""What is agreed to is what is done, and who did it stays where they were: python deeds.py URL"""

import json
import re
import sys
import urllib.parse

from playwright.sync_api import expect

from browser import asking, chromium, look_further, until, window_in

SEEN_WITHIN_MS = 20_000
TURNED = "order-\u202e0001-kcab-yap\u202c-77"
DEAD = 12
GROW, LATER = 60, 80


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url, refusals=True)

    api("PUT", "/v1/topics/orders", {"shards": 4, "retry": {"max_attempts": 1}})
    api("PUT", "/v1/topics/slips", {"shards": 1})
    api("POST", "/v1/topics/orders/messages", [{"id": f"bad-{n}"} for n in range(DEAD)])
    claimed = 0
    while claimed < DEAD:
        taken = api("POST", "/v1/topics/orders/claim", {"max": DEAD, "wait": "10s"})[1]["messages"]
        nack = {"receipts": [one["receipt"] for one in taken], "dead": True, "reason": "closed"}
        claimed += len(api("POST", "/v1/topics/orders/nack", nack)[1]["results"])
    api("POST", "/v1/topics/orders/messages", [{"id": f"grow-{n}", "delay": "1h"} for n in range(GROW)])
    api("POST", "/v1/topics/orders/messages", [{"id": TURNED, "delay": "1h"}, {"id": "blank ", "delay": "1h"}])
    api("POST", "/v1/topics/slips/messages", [{"id": "order-9", "delay": "1h"}, {"id": "due-1"}, {"id": "due-2"}])
    plans = lambda: api("GET", "/v1/topics/orders/plans")[1]["plans"]

    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 860})

        def window(at):
            page = window_in(context, SEEN_WITHIN_MS)
            page.goto(f"{url}/#/{at}")
            return page

        # What a dialog counted is nothing that another window could start, nor does a reload leave it behind.
        first, second = window("dead/orders"), window("dead/orders")
        bulk = second.get_by_role("region", name="bulk actions")
        first.get_by_role("button", name="Purge …").click()
        expect(first.get_by_role("dialog")).to_contain_text(f"Purge {DEAD} messages of orders")
        expect(second.locator("main")).to_contain_text(f"{DEAD} dead letters")
        second.wait_for_timeout(2500)
        assert bulk.count() == 0 and plans() == [], plans()
        first.reload()
        expect(first.locator("main")).to_contain_text(f"{DEAD} dead letters")
        assert plans() == [] and first.get_by_role("region", name="bulk actions").count() == 0
        # One that was started and stopped asks for the name again, in each window.
        first.get_by_role("button", name="Purge …").click()
        first.get_by_label("Type orders to go on").fill("orders")
        first.get_by_label("Messages a second, at most").fill("1")
        first.get_by_role("dialog").get_by_role("button", name=f"Purge {DEAD} messages").click()
        expect(bulk).to_contain_text("running")
        bulk.get_by_role("button", name="Stop").click()
        expect(bulk).to_contain_text("stopped")
        left = api("GET", "/v1/topics/orders")[1]["dead"]
        bulk.get_by_role("button", name="Go on …").click()
        dialog = second.get_by_role("dialog")
        expect(dialog).to_contain_text(f"Purge up to {left} more messages of orders")
        second.wait_for_timeout(1500)
        on = dialog.get_by_role("button", name="Go on")
        assert on.is_disabled(), "a purge goes on without the topic's name"
        dialog.get_by_label("Type orders to go on").fill("orders")
        on.click()
        expect(bulk).to_contain_text("done")
        expect(second.locator("main")).to_contain_text("No dead letters.")
        assert api("GET", "/v1/topics/orders")[1]["dead"] == 0

        # As many are cancelled as the dialog says, though more of them come meanwhile.
        page = window("messages/orders?prefix=grow-")
        look_further(page, f"{GROW} messages")
        # What is typed and not asked for is not acted on.
        words = ("Deliver", "Cancel", "Reschedule")
        deeds = [page.get_by_role("button", name=f"{word} all of these") for word in words]
        page.get_by_label("To another time").fill("2040-01-01T10:00:00")
        for deed in deeds:
            expect(deed).to_be_enabled()
        page.get_by_label("Id begins with").fill("grow-1")
        for deed in deeds:
            expect(deed).to_be_disabled()
        expect(page.locator("main")).to_contain_text("Press Search first")
        page.get_by_label("Id begins with").fill("grow-")
        page.get_by_role("button", name="Cancel all of these").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"Cancel {GROW} messages of orders")
        expect(dialog).to_contain_text(f"--start --at-most={GROW} -- orders")
        dialog.get_by_label("Type orders to go on").fill("orders")
        dialog.get_by_label("Messages a second, at most").fill("20")
        dialog.get_by_role("button", name=f"Cancel {GROW} messages").click()
        bulk = page.get_by_role("region", name="bulk actions")
        expect(bulk).to_contain_text("running")
        later = [{"id": f"grow-later-{n}", "delay": "1h"} for n in range(LATER)]
        api("POST", "/v1/topics/orders/messages", later)
        expect(bulk).to_contain_text(f"{GROW} of {GROW}")
        expect(bulk).to_contain_text("done")
        left = api("GET", "/v1/topics/orders")[1]["scheduled"]
        assert (plans()[0]["counts"]["done"], left) == (GROW, LATER + 2), plans()
        # The list below shows what is left, by itself.
        expect(page.locator("main")).to_contain_text(f"{LATER} messages")

        # A count that ended early promises neither a number nor a duration that is not known.
        def early(page, counted):
            def answered(route):
                if route.request.method != "POST":
                    return route.continue_()
                answer = route.fetch()
                route.fulfill(response=answer, json={**answer.json(), "expected": counted, "count_complete": False})

            page.route("**/plans", answered)

        early(page, 20)
        page.get_by_role("button", name="Cancel all of these").click()
        expect(dialog).to_contain_text(f"Cancel up to {LATER + 2} messages of orders")
        expect(dialog).to_contain_text(f"The count ended after 20: how many of all {LATER + 2} match is not known")
        expect(dialog.locator("dl.pairs")).to_contain_text("up to 1.0 s")
        page.keyboard.press("Escape")
        page.unroute("**/plans")

        # What is due is one of those that wait: it is not counted twice.
        slips = window("messages/slips")
        expect(slips.locator("main")).to_contain_text("3 messages")
        early(slips, 1)
        slips.get_by_role("button", name="Deliver all of these").click()
        expect(slips.get_by_role("dialog")).to_contain_text("Deliver now up to 3 messages of slips")
        slips.close()

        # No id turns the text of a dialog around.
        page = window(f"message/orders/{urllib.parse.quote(TURNED, safe='')}")
        written = TURNED.encode("unicode_escape").decode()
        for deed in ("Cancel …", "Due now …", "Reschedule …"):
            page.get_by_role("button", name=deed).click()
            expect(page.get_by_role("dialog").locator("h2")).to_contain_text(written)
            said = page.evaluate("document.body.innerText")
            assert not any(mark in said for mark in "\u202e\u202c\u2066"), said
            page.keyboard.press("Escape")

        # Who did something, or left it, is where they were, or at the heading above that.
        def at(wanted=None):
            # In the meantime the screen may take the focus away.
            page.wait_for_timeout(400)
            script = "(document.activeElement === document.body ? '' : document.activeElement.innerText).trim()"
            focused = lambda: page.evaluate(script)
            until(page, lambda: focused() == wanted if wanted else focused(), f"the focus is at {wanted or 'something'}")

        page.get_by_role("button", name="Reschedule …").click()
        page.get_by_role("button", name="Leave it").click()
        at("Reschedule …")
        page.get_by_role("button", name="Reschedule …").click()
        page.get_by_role("dialog").get_by_role("button", name="Reschedule", exact=True).click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        at("Reschedule …")
        page = window("topic/slips")
        for deed in ("Pause", "Resume"):
            page.get_by_role("button", name=f"{deed} …").click()
            page.get_by_role("button", name=f"{deed} it").click()
            other = "Resume" if deed == "Pause" else "Pause"
            expect(page.get_by_role("button", name=f"{other} …")).to_be_visible()
            at()
        page.goto(f"{url}/#/messages/orders")
        bulk = page.get_by_role("region", name="bulk actions")
        bulk.get_by_role("button", name="Forget").last.click()
        expect(bulk).to_have_count(0)
        # The focus did not go with what was forgotten.
        at()

        # A resize that makes many shards wants the name, and one to no number is not begun.
        page.goto(f"{url}/#/shards/slips")
        page.get_by_role("button", name="Change the number …").click()
        dialog, begin = page.get_by_role("dialog"), page.get_by_role("button", name="Begin")
        page.get_by_label("Shards (1 to 4096, or auto)").fill("abc")
        page.wait_for_timeout(1500)
        assert begin.is_disabled(), "a resize to abc may be begun"
        page.get_by_label("Shards (1 to 4096, or auto)").fill("4096")
        expect(dialog).to_contain_text("Each shard is looked at by itself")
        expect(dialog.get_by_label("Type slips to go on")).to_be_visible()
        assert begin.is_disabled(), "4,096 shards are made by one press"
        page.get_by_label("Shards (1 to 4096, or auto)").fill("2")
        begin.click()
        expect(page.locator("main")).to_contain_text("2 shards (fixed)")
        at()

        # Of a rate limit the parts that go are named, and the command has what it wants.
        api("PUT", "/v1/topics/slips", {"rate_limit": {"per_second": 50, "burst": 2}})
        page.goto(f"{url}/#/topic/slips")
        expect(page.locator("main")).to_contain_text("50 at each node")
        page.get_by_role("button", name="Change …").click()
        settings = dialog.get_by_role("textbox", name="Settings")
        before = json.loads(settings.input_value())
        settings.fill(json.dumps({**before, "rate_limit": {"per_second": 50, "burst": 3}}))
        expect(dialog).to_contain_text("rate_limit.burst: 2 → 3")
        dialog.get_by_text("The same as a command").click()
        expect(dialog).to_contain_text("--rate-limit=50 --burst=3")
        settings.fill(json.dumps({name: value for name, value in before.items() if name != "rate_limit"}))
        expect(dialog).to_contain_text("rate_limit.per_second: 50 → the default")
        expect(dialog).to_contain_text("--rate-limit=none -- slips")
        dialog.get_by_role("button", name="Leave it").click()

        # What could not be read is not said to be nothing, and Search reads it again.
        away = {"code": "store_unavailable", "detail": "the store is away"}
        page.route("**/v1/topics/orders/messages?**", lambda route: route.fulfill(status=503, json=away))
        page.goto(f"{url}/#/messages/orders")
        expect(page.locator("tbody")).to_contain_text("Not known: they could not be read.")
        page.unroute("**/v1/topics/orders/messages?**")
        page.get_by_role("button", name="Search", exact=True).click()
        expect(page.locator("tbody")).to_contain_text("grow-")
        page.route("**/v1/find?**", lambda route: route.fulfill(json={"messages": [], "failed": [{"topic": "orders", **away}], "scanned": 2, "topics": 2}))
        page.goto(f"{url}/#/find/nothing")
        expect(page.locator("tbody")).to_contain_text("Not known: not all topics answered.")

        # An ack that failed is said, and its receipt is kept.
        page.goto(f"{url}/#/try")
        page.get_by_role("combobox", name="Topic").fill("slips")
        page.get_by_role("button", name="Claim what is due").click()
        claims = page.locator("[data-of]")
        expect(claims.first).to_be_visible()
        held = claims.count()
        for how in ("ack", "release"):
            page.route(f"**/v1/topics/slips/{how}", lambda route: route.fulfill(
                json={"results": [{"error": away} for _ in route.request.post_data_json["receipts"]]}))
        for button in ("Ack", "Give all back"):
            page.get_by_role("button", name=button, exact=True).first.click()
            expect(page.get_by_role("status").last).to_contain_text("the store is away")
            assert claims.count() == held, f"{button}: a receipt is lost"
        page.unroute_all()

        # Forecasts of what is not all counted promise nothing.
        def forecast(read):
            def answered(route):
                route.fulfill(json={**route.fetch().json(), "capacity": 100.0, "due": 0, **read})

            page.unroute_all()
            page.route("**/forecast?**", answered)
            page.goto(f"{url}/#/try")
            page.goto(f"{url}/#/forecast/orders")

        fine = page.get_by_text("nothing of this is late")
        forecast({})
        expect(fine).to_be_visible()
        for read, said in [
            ({"unreachable_shards": 1}, "Not counted: 1 shard of a server that does not answer."),
            ({"due": 500, "deferred_max": 2}, "The sink is down: up to 2 messages of the first below are overdue too"),
        ]:
            forecast(read)
            expect(page.locator("main")).to_contain_text(said)
            expect(fine).to_have_count(0)

        # Where a herd is drawn, a smear is offered that is as long as the herd takes.
        # How high it would be then, and how late the last of it, is tried on the chart.
        minute, began = 60_000, 1_900_000_020_000
        buckets = [{"from": began + n * minute, "to": began + (n + 1) * minute, "count": 12_340 * (n == 10)} for n in range(60)]
        moment = buckets[10]["from"]
        herd = {"from": moment, "to": moment + 1000, "count": 12_340, "last_late_ms": 123_400, "summary": "12 k"}
        forecast({"herd": herd, "buckets": buckets})
        main = page.locator("main")
        expect(main).to_contain_text("12,340 messages at")
        assert "Had all of this" not in main.inner_text()
        pressed = page.get_by_role("group", name="How far ahead").get_by_role("button", pressed=True)
        colours = pressed.evaluate("(one) => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]")
        assert colours[0] != colours[1], f"what is pressed cannot be read: {colours}"
        tried = page.get_by_role("group", name="With a smear of")
        for choice, peak, late in (
            ("30 s", "411/s", "the last one would be late by about 1 min 32 s"),
            ("1 min", "206/s", "the last one would be late by about 1 min 2 s"),
            ("5 min", "41/s", "nothing of it would be late"),
        ):
            tried.get_by_role("button", name=choice).click()
            expect(main).to_contain_text(f"scheduled with a smear of {choice}: {peak} at most instead of 12 k/s; {late}")
        chart = page.get_by_role("img", name="would fall due with a smear of 5 min, as bars over time")
        box = chart.bounding_box()
        chart.hover(position={"x": 62 + 12.5 * (box["width"] - 62) / 60, "y": box["height"] / 2})
        expect(page.locator(".chart p")).to_contain_text("2,468 messages")
        page.get_by_role("button", name="Spread what comes …").click()
        expect(page.get_by_role("dialog").get_by_role("textbox")).to_have_value("300")
        page.keyboard.press("Escape")
        expect(page).to_have_url(re.compile("smear=300"))
        tried.get_by_role("button", name="none").click()
        expect(page.get_by_role("img", name="fall due, as bars over time")).to_be_visible()
        expect(main).not_to_contain_text("Had all of this")
        herd = {"from": 1_900_000_000_000, "to": 1_900_000_001_000, "count": 1234, "last_late_ms": 11_340, "summary": "1.2 k"}
        forecast({"herd": herd})
        page.get_by_role("button", name="Spread what comes …").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("What is scheduled already keeps its due time")
        length = dialog.get_by_role("textbox")
        expect(length).to_have_value("13")
        length.fill("3601")
        expect(dialog.get_by_role("button", name="Spread it")).to_be_disabled()
        length.fill("7")
        dialog.get_by_role("button", name="Spread it").click()
        expect(page.get_by_role("status").last).to_contain_text("orders has a smear of 7 s")
        assert api("GET", "/v1/topics/orders")[1]["smear"] == "7s"
        api("PUT", "/v1/topics/orders", {"smear": None})
        page.unroute_all()

        # The search finds what another topic has, and an id that ends in a blank.
        page.goto(f"{url}/#/topic/orders")
        field = page.get_by_role("searchbox", name="Find a message")
        field.fill("order-9")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text('topic "orders" has no message')
        page.get_by_role("region", name="messages of this id").get_by_role("link", name="order-9").click()
        expect(page.locator("main")).to_contain_text("may be claimed")
        page.goto(f"{url}/#/topic/orders")
        field.fill('"blank "')
        page.keyboard.press("Enter")
        expect(page.locator("h2").first).to_have_text('"blank "')
        expect(page.locator("main")).to_contain_text("may be claimed")

        # How long a claim hides a message, and who says so.
        expect(page.locator("main")).to_contain_text("30s, its topic's")
        api("POST", "/v1/topics/orders/messages", {"id": "film", "delay": "1h", "visibility_timeout": "10m"})
        page.goto(f"{url}/#/message/orders/film")
        expect(page.locator("main")).to_contain_text("10m, its own")

        # By which rule it comes again.
        again = {"cron": "0 9 * * *", "time_zone": "Europe/Berlin", "times": 5}
        api("POST", "/v1/topics/orders/messages", {"id": "report", "repeat": again})
        page.goto(f"{url}/#/message/orders/report")
        expect(page.locator("main")).to_contain_text("0 9 * * * by the clocks of Europe/Berlin, 5 left with this one")
        expect(page.locator("dt", has_text="the next one").locator("+ dd")).not_to_be_empty()

        # Up to when a topic is done, and what holds that back.
        api("PUT", "/v1/topics/bills", {"shards": 1, "watermark": True})
        due = api("POST", "/v1/topics/bills/messages", {"id": "bill-1"})[1]["due_at"]
        held = lambda: api("GET", f"/v1/topics/bills/watermark?until={due + 1}")[1].get("held_by")
        until(page, held, "the watermark is held by what is due")
        page.goto(f"{url}/#/topic/bills")
        done_before = page.locator("dt", has_text="done before").locator("+ dd")
        expect(done_before).to_contain_text("due, bill-1, shard 0")
        api("DELETE", "/v1/topics/bills/messages/bill-1")
        page.reload()
        expect(done_before).not_to_contain_text("bill-1")
        expect(done_before).not_to_have_text("…")
        page.goto(f"{url}/#/topic/orders")
        expect(page.locator("main")).to_contain_text("shards now")
        expect(page.locator("dt", has_text="done before")).to_have_count(0)
    print("what was agreed to is what was done")


main()
