"""Drives the web console in a real Chromium: python page.py URL [SCREENSHOT_DIR]

Fails on any console error, any violation of the content security policy, any request to another host, any finding of
axe, a page that is wider than its window, and on each step that does not do what its words say.
"""

import json
import pathlib
import sys
import time
import urllib.parse
import urllib.request

from playwright.sync_api import expect

from browser import asking, axe, chromium, look_further, put

SEEN_WITHIN_MS = 20_000
# So long nothing can be done in a dialog that has opened.
GUARDED_S = 1
TURNED = "\u202egnp.exe"
NASTY = '<img src=x onerror="document.title=1">'
SCREENS = {
    "now": ("", "Rates and lateness"), "topic": ("topic/orders", "Settings"), "forecast": ("forecast/orders", "due in the"),
    "shards": ("shards/orders", "Scanned by"), "nodes": ("nodes", "Shares by"), "message": ("message/orders/order-1", "may be claimed"),
    "messages": ("messages/orders", "shards looked through"), "slo": ("slo", "Budgets"), "audit": ("audit", "entries"),
    "dead": ("dead/orders", "dead letters"), "sinks": ("sinks", "Topics with a sink"), "try": ("try", "What programs do"),
}


def listed(api, query):
    """All messages of the topic orders that match: a node that is busy ends a page early."""
    messages, cursor = [], ""
    while cursor is not None:
        page = api("GET", f"/v1/topics/orders/messages?{query}{cursor}")[1]
        messages += page["messages"]
        cursor = f"&cursor={urllib.parse.quote(page['next'])}" if "next" in page else None
    return messages


def main():
    url = sys.argv[1].rstrip("/")
    shots = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None

    api = asking(url, refusals=True)

    expect.set_options(timeout=SEEN_WITHIN_MS)
    # Something on every screen.
    api("PUT", "/v1/topics/orders", {"shards": 4, "retry": {"max_attempts": 1}})
    api("POST", "/v1/topics/orders/messages", [{"id": f"order-{n}", "delay": "30m", "payload": "close it"} for n in range(40)])
    api("POST", "/v1/topics/orders/messages", [{"id": f"bad-{n}"} for n in range(12)] + [{"id": NASTY, "delay": "1h", "payload": NASTY, "headers": {"x": NASTY}}])
    _, claimed = api("POST", "/v1/topics/orders/claim", {"max": 12, "wait": "10s"})
    while len(claimed["messages"]) < 12:
        claimed["messages"] += api("POST", "/v1/topics/orders/claim", {"max": 12, "wait": "10s"})[1]["messages"]
    api("POST", "/v1/topics/orders/nack", {"receipts": [message["receipt"] for message in claimed["messages"]]})
    api("PUT", "/v1/topics/many", {"shards": 4, "retry": {"max_attempts": 3}})
    for part in range(3):
        api("POST", "/v1/topics/many/messages", [{"id": f"m-{part}-{n}", "delay": "2h"} for n in range(400)])

    with chromium() as browser:
        faults = []

        def page_of(**options):
            context = browser.new_context(**options)
            page = context.new_page()
            page.set_default_timeout(SEEN_WITHIN_MS)
            page.on("console", lambda message: message.type in ("error", "warning") and faults.append(f"console: {message.text}"))
            page.on("pageerror", lambda error: faults.append(f"error: {error}"))
            page.on("request", lambda request: urllib.parse.urlsplit(request.url).netloc != urllib.parse.urlsplit(url).netloc and not request.url.startswith("data:") and faults.append(f"elsewhere: {request.url}"))
            page.add_init_script("addEventListener('securitypolicyviolation', (event) => console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI))")
            return page

        def see(page, name):
            page.goto(f"{url}/#/{SCREENS[name][0]}")
            expect(page.locator("main")).to_contain_text(SCREENS[name][1], timeout=SEEN_WITHIN_MS)

        # Each screen, wide and narrow, and dark where pictures are wanted: as wide as it is light.
        for look, options in {
            "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
            "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
            "narrow": {"viewport": {"width": 360, "height": 740}},
        }.items():
            if look == "dark" and not shots:
                continue
            page = page_of(**options)
            for name in SCREENS:
                see(page, name)
                if shots:
                    page.wait_for_timeout(6000 if name == "now" else 700)
                    page.screenshot(path=shots / f"{name}-{look}.png")
                wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, f"{name} is {wide} px wider than its window ({look})"

        # What a screen reader would stumble over. axe is no part of the page, so the policy is off here.
        page = page_of(bypass_csp=True)
        for name in SCREENS:
            see(page, name)
            axe(page, name)

        page = page_of(viewport={"width": 1280, "height": 860})
        # Nothing of what somebody wrote becomes markup.
        page.goto(f"{url}/#/message/orders/{urllib.parse.quote(NASTY, safe='')}")
        expect(page.locator("main")).to_contain_text(NASTY)
        page.get_by_role("button", name="Show").click()
        assert page.title() == "Message · orders · Duetime", page.title()
        # Nor what a consumer says of a message.
        api("POST", "/v1/topics/many/messages", {"id": NASTY, "delay": 0})
        taken = api("POST", "/v1/topics/many/claim", {"wait": "10s"})[1]["messages"][0]
        taken = api("POST", "/v1/topics/many/extend", {"receipts": [taken["receipt"]]})[1]["results"][0]
        api("POST", "/v1/topics/many/nack", {"receipts": [taken["receipt"]], "dead": True, "reason": NASTY})
        page.goto(f"{url}/#/dead/many")
        expect(page.get_by_role("row").filter(has_text=NASTY)).to_have_count(1)
        page.goto(f"{url}/#/message/many/{urllib.parse.quote(NASTY, safe='')}")
        expect(page).to_have_title("Message · many · Duetime")
        assert page.locator("main img").count() == 0
        # One that was redriven and died again says so by itself, in its group, and before it is redriven once more.
        for _ in range(2):
            assert api("POST", "/v1/topics/many/dead/redrive", {"ids": [NASTY]})[1]["done"] == 1
            taken = api("POST", "/v1/topics/many/claim", {"wait": "10s"})[1]["messages"][0]
            api("POST", "/v1/topics/many/nack", {"receipts": [taken["receipt"]], "dead": True, "reason": NASTY})
        page.reload()
        expect(page.locator("main")).to_contain_text("redriven 2 times before")
        page.goto(f"{url}/#/dead/many")
        expect(page.get_by_role("row").filter(has_text=NASTY)).to_contain_text("1 of them was redriven before")
        page.get_by_role("row").filter(has_text=NASTY).get_by_role("button", name="Redrive …").click()
        expect(page.get_by_role("dialog")).to_contain_text("1 of them was redriven before.")
        page.keyboard.press("Escape")

        # A dead letter is redriven on its own page, or purged, with its commands.
        page.goto(f"{url}/#/message/many/{urllib.parse.quote(NASTY, safe='')}")
        for verb, said in (("Redrive", "It is due again"), ("Purge", "It is removed for good")):
            page.get_by_role("button", name=f"{verb} …").click()
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text(f"duetime dead {verb.lower()} -- many '<img")
            expect(dialog).to_contain_text("/v1/topics/many/dead" + ("/redrive" if verb == "Redrive" else ""))
            if verb == "Purge":
                page.wait_for_timeout(1500)
                assert dialog.get_by_role("button", name="Purge it").is_disabled(), "purged without the topic's name"
                dialog.get_by_label("Type many to go on").fill("many")
            dialog.get_by_role("button", name=f"{verb} it").click()
            expect(page.get_by_role("status").last).to_contain_text(said)
            if verb == "Redrive":
                expect(page.get_by_role("button", name="Due now …")).to_be_visible()
                taken = api("POST", "/v1/topics/many/claim", {"wait": "10s"})[1]["messages"][0]
                api("POST", "/v1/topics/many/nack", {"receipts": [taken["receipt"]], "dead": True, "reason": NASTY})
        expect(page.locator("main")).to_contain_text("It is not there any more")
        assert api("GET", "/v1/topics/many")[1]["dead"] == 0
        # Of what is gone the page says what its topic remembers, while it is open and afterwards.
        api("PUT", "/v1/topics/kept", {"shards": 1, "remember": "1h"})
        api("POST", "/v1/topics/kept/messages", [{"id": "came"}, {"id": "withdrawn", "delay": "1h"}])
        page.goto(f"{url}/#/message/kept/withdrawn")
        expect(page.get_by_role("button", name="Cancel …")).to_be_visible()
        api("DELETE", "/v1/topics/kept/messages/withdrawn")
        expect(page.locator("main")).to_contain_text('has no message "withdrawn": cancelled at')
        taken = api("POST", "/v1/topics/kept/claim", {"wait": "10s"})[1]["messages"][0]
        api("POST", "/v1/topics/kept/ack", {"receipts": [taken["receipt"]]})
        page.goto(f"{url}/#/message/kept/came")
        expect(page.locator("main")).to_contain_text("on attempt 1")
        expect(page.locator("main")).to_contain_text("No topic has such a message")
        expect(page.locator("main")).not_to_contain_text("a search for topic and id says it")
        api("DELETE", "/v1/topics/kept?force=true")
        api("POST", "/v1/topics/mails/messages", [{"id": "mail-1"}])

        # Counts stay counts when the rates have come.
        page.goto(f"{url}/#/")
        row = page.get_by_role("row").filter(has_text="orders")
        expect(row).to_contain_text("0/s")
        expect(row.get_by_role("link", name="12", exact=True)).to_be_visible()

        # Topics are filtered with the keyboard, and sorted by what is left of their budgets.
        api("POST", "/v1/topics/mails/messages", [{"id": "mail-2"}])
        for mark in "f", "mai":
            page.keyboard.type(mark)
        expect(page.locator("main")).to_contain_text("1 of 3 topics")
        expect(page.locator("tbody").get_by_role("row")).to_have_count(1)
        page.get_by_label("Only topics with this").fill("nobody")
        expect(page.locator("tbody")).to_contain_text("No topic has that in its name or sink.")
        page.get_by_label("Only topics with this").fill("")
        page.get_by_role("button", name="Budget left").click()
        expect(page.locator("tbody").get_by_role("row").first).to_contain_text("mails")
        expect(page.locator("tbody").get_by_role("row").first).to_contain_text("100 %")

        # An id alone is looked for in all topics, by one request, and what is not there is no error of the browser's.
        noise = len(faults)
        asked = []
        page.on("request", lambda request: asked.append(urllib.parse.urlsplit(request.url).path))
        page.goto(f"{url}/#/")
        expect(page.locator("main")).to_contain_text("orders")
        page.keyboard.press("/")
        page.keyboard.type("order-9")
        page.keyboard.press("Enter")
        region = page.get_by_role("region", name="messages of this id")
        expect(region.get_by_role("row")).to_have_count(2)
        region.get_by_role("link", name="order-9", exact=True).click()
        expect(page.locator("main")).to_contain_text("attempts")
        page.goto(f"{url}/#/find/nobody")
        expect(page.locator("main")).to_contain_text("No topic has such a message")
        assert asked.count("/v1/find") == 2 and len(faults) == noise, (asked.count("/v1/find"), faults[noise:])
        page.get_by_text("The same as a command").click()
        expect(page.locator("main")).to_contain_text("duetime find -- nobody")

        # The keys are listed, by a key.
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_contain_text("find a message by id")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("g")
        expect(page.get_by_role("heading", name="Now")).to_be_visible()
        assert not any("error: " in fault for fault in faults[noise:]), faults[noise:]
        del faults[noise:]

        # From the search to the deed with the keyboard alone.
        page.keyboard.press("/")
        page.keyboard.type("orders order-6")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Cancel …")).to_be_visible()
        for _ in range(60):
            if page.evaluate("document.activeElement.textContent") == "Cancel …":
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        deed = page.get_by_role("dialog").get_by_role("button", name="Cancel it")
        expect(deed).to_be_enabled()
        for _ in range(10):
            if page.evaluate("document.activeElement.textContent") == "Cancel it":
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").last).to_contain_text("cancelled")
        assert api("GET", "/v1/topics/orders/messages/order-6")[0] == 404

        # Find a message with the keyboard alone, and cancel it.
        page.goto(f"{url}/#/")
        expect(page.locator("main")).to_contain_text("orders")
        page.keyboard.press("/")
        page.keyboard.type("orders order-7")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("order-7")
        began = time.monotonic()
        page.get_by_role("button", name="Cancel …").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("duetime cancel -- orders order-7")
        early = dialog.get_by_role("button", name="Cancel it")
        is_early = early.is_disabled() or time.monotonic() - began > GUARDED_S
        assert is_early, "an action can be done in the moment in which its dialog opens"
        early.click()
        expect(page.get_by_role("status").last).to_contain_text("cancelled")
        assert api("GET", "/v1/topics/orders/messages/order-7")[0] == 404

        # Live messages by state and beginning of their id; each leads to its own screen.
        see(page, "messages")
        page.get_by_label("Id begins with").fill("order-1")
        page.get_by_label("State").select_option("scheduled")
        page.get_by_role("button", name="Search", exact=True).click()
        look_further(page, "11 messages")
        expect(page.locator("main")).to_contain_text("11 messages")
        expect(page.locator("main")).to_contain_text("4 of 4 shards looked through")
        page.get_by_label("Id begins with").fill("nobody")
        page.get_by_role("button", name="Search", exact=True).click()
        expect(page.locator("main")).to_contain_text("No such messages.")
        # What is looked for is in the address: the same after a reload, and on the way back.
        page.reload()
        expect(page.get_by_label("Id begins with")).to_have_value("nobody")
        expect(page.locator("main")).to_contain_text("No such messages.")
        page.go_back()
        expect(page.get_by_label("Id begins with")).to_have_value("order-1")
        expect(page.locator("main")).to_contain_text("11 messages")
        # So is what is chosen on Now and on Forecast.
        page.goto(f"{url}/#/")
        only = page.get_by_label("Only topics with this in their name or sink")
        only.fill("mai")
        expect(page.locator("main")).to_contain_text("1 of ")
        page.reload()
        expect(only).to_have_value("mai")
        page.evaluate("location.hash = '#/'")
        expect(only).to_have_value("")
        # What is named otherwise in the address is left alone.
        page.goto(f"{url}/#/forecast/orders?toString=1&nonsense=2")
        page.get_by_role("button", name="next day").click()
        page.reload()
        expect(page.get_by_role("button", name="next day")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("main")).to_contain_text("due in the next day")
        # What turns text around is written out, and the link leads there.
        api("POST", "/v1/topics/mails/messages", {"id": TURNED, "delay": "1h"})
        page.goto(f"{url}/#/messages/mails")
        page.get_by_role("link", name="\\u202egnp.exe").click()
        expect(page.locator("h2").first).to_have_text("\\u202egnp.exe")
        assert api("DELETE", f"/v1/topics/mails/messages/{urllib.parse.quote(TURNED, safe='')}")[0] == 200
        # A link that was cut off, or typed by hand, harms nothing.
        noise = len(faults)
        page.evaluate("location.hash = '#/messages/mails%E0%A4'")
        expect(page.locator("main")).to_contain_text("%E0%A4")
        page.evaluate("location.hash = '#/nonsense'")
        expect(page.locator("main")).to_contain_text("Nothing is at #/nonsense")
        expect(page.get_by_role("heading", name="Now")).to_be_visible()
        assert not any("error: " in fault for fault in faults[noise:]), faults[noise:]
        del faults[noise:]

        # The audit log names what was just done.
        see(page, "audit")
        page.get_by_label("Only entries with this in them").fill("order-7")
        expect(page.locator("tbody")).to_contain_text("No entry has that in it.")
        page.get_by_label("Enqueues and cancels too").check()
        expect(page.locator("tbody")).to_contain_text("cancelled")
        expect(page.locator("tbody")).not_to_contain_text("/v1/")
        # Claims are shown to who asks for them.
        page.get_by_label("Only entries with this in them").fill("claimed")
        expect(page.locator("tbody")).to_contain_text("No entry has that in it.")
        page.get_by_label("Claims and acks too").check()
        expect(page.locator("tbody")).to_contain_text("claimed")

        # Due now.
        page.goto(f"{url}/#/message/orders/order-8")
        page.get_by_role("button", name="Due now …").click()
        page.get_by_role("button", name="Make it due").click()
        expect(page.get_by_role("status").last).to_contain_text("new due time")
        _, taken = api("POST", "/v1/topics/orders/claim", {"max": 1, "wait": "10s"})
        assert taken["messages"][0]["id"] == "order-8", taken

        # What became of a topic's messages, how late they were, and who set what.
        page.goto(f"{url}/#/topic/orders")
        expect(page.get_by_role("img", name="what became of 53 messages")).to_be_visible()
        expect(page.locator("main")).to_contain_text("dead 12 (23 %)")
        settings = page.locator("dl.pairs")
        expect(settings.locator("dt", has_text="retry.max_attempts").locator("+ dd")).to_have_text("1 set")
        expect(settings.locator("dt", has_text="visibility_timeout").locator("+ dd")).to_have_text("30s")
        # What nobody set is folded.
        expect(settings.locator("dt", has_text="visibility_timeout")).to_be_hidden()
        page.get_by_text("8 defaults").click()
        expect(settings.locator("dt", has_text="visibility_timeout")).to_be_visible()
        page.goto(f"{url}/#/topic/mails")
        expect(settings.locator("dt", has_text="sink.name").locator("+ dd")).to_have_text("out the node's file")
        expect(page.get_by_role("img", name="lateness of the last five minutes: 0 of 2 later than a second")).to_be_visible()
        detail = api("GET", "/v1/rates?topic=mails")[1]["topics"][0]["detail"]
        assert detail["flow"]["delivered"] == 2 and detail["origins"] == {"sink.name": "file"}, detail

        # What was left of the budget is a line.
        see(page, "slo")
        page.get_by_label("Topic of the line").select_option("mails")
        expect(page.get_by_role("img", name="budget left of mails: from 100 % to 100 %")).to_be_visible()

        # All dead letters as a file of lines, as the API and the command write them.
        see(page, "dead")
        with page.expect_download() as download:
            page.get_by_role("button", name="Export as NDJSON").click()
        written = [json.loads(line) for line in pathlib.Path(download.value.path()).read_text().splitlines()]
        assert download.value.suggested_filename == "orders-dead.ndjson" and len(written) == 12, written
        request = urllib.request.Request(f"{url}/v1/topics/orders/dead?limit=5", headers={"accept": "application/x-ndjson"})
        with urllib.request.urlopen(request) as answer:
            lines = answer.read().decode().splitlines()
            assert len(lines) == 5 and answer.headers["duetime-next"], lines
        assert all(json.loads(line) in written for line in lines) and written[0]["death"]["at"] > 0, lines
        # And those of one reason.
        group = api("GET", "/v1/topics/orders/dead/groups")[1]["groups"][0]
        with page.expect_download() as download:
            page.get_by_role("row").filter(has_text=group["example"]).get_by_role("button", name="Export these").click()
        these = [json.loads(line) for line in pathlib.Path(download.value.path()).read_text().splitlines()]
        assert len(these) == group["count"] and all(one in written for one in these), these

        # Redrive ten of the dead, then purge the rest by a plan, with the name typed.
        see(page, "dead")
        page.get_by_role("button", name="Redrive 10 first …").first.click()
        page.get_by_role("dialog").get_by_label("Then the rest, ").uncheck()
        page.get_by_role("button", name="Redrive them").click()
        expect(page.get_by_role("status").last).to_contain_text("10 of 10 are scheduled again")
        expect(page.locator("main")).to_contain_text("2 dead letters")
        page.get_by_role("button", name="Purge …").first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Purge 2 messages of orders")
        expect(dialog).to_contain_text("duetime bulk purge --reason=")
        # The dialog says which messages are meant, and its button what it does to how many, in red.
        reason = api("GET", "/v1/topics/orders/dead/groups")[1]["groups"][0]["reason"]
        for said in ("dead letters in orders", reason, "takes"):
            expect(dialog.locator("dl.pairs")).to_contain_text(said)
        purge = dialog.get_by_role("button", name="Purge 2 messages", exact=True)
        assert purge.get_attribute("class") == "danger" and purge.evaluate("(button) => getComputedStyle(button).backgroundColor") == "rgb(193, 31, 40)", "a purge is not red"
        page.wait_for_timeout(1200)
        assert purge.is_disabled(), "dead letters are purged without the topic's name"
        page.get_by_label("Type orders to go on").fill("orders")
        purge.click()
        expect(page.locator("main")).to_contain_text("No dead letters")
        expect(page.get_by_role("region", name="bulk actions")).to_contain_text("done")
        assert api("GET", "/v1/topics/orders")[1]["dead"] == 0

        # Cancel all that match, and stop in the middle.
        see(page, "messages")
        page.get_by_label("Id begins with").fill("order-2")
        page.get_by_role("button", name="Search", exact=True).click()
        page.get_by_role("button", name="Cancel all of these …").click()
        expect(page.get_by_role("dialog")).to_contain_text("Cancel 11 messages of orders")
        cancel = page.get_by_role("dialog").get_by_role("button", name="Cancel 11 messages", exact=True)
        # A rate that is none begins nothing.
        for wrong in ("abc", "0", "", "10001"):
            page.get_by_label("Messages a second, at most").fill(wrong)
            expect(page.get_by_role("dialog")).to_contain_text("Give a whole number from 1 to 10,000")
            expect(cancel).to_be_disabled()
        page.get_by_label("Messages a second, at most").fill("1")
        expect(page.get_by_role("dialog")).to_contain_text("about 11 s, on the server")
        cancel.click()
        region = page.get_by_role("region", name="bulk actions")
        expect(region).to_contain_text("running")
        region.get_by_role("button", name="Stop").click()
        expect(region).to_contain_text("stopped")
        plan = api("GET", "/v1/topics/orders/plans")[1]["plans"][0]
        left = len(listed(api, "prefix=order-2"))
        assert left > 0 and plan["counts"]["done"] + left == 11, plan
        page.wait_for_timeout(2000)
        assert len(listed(api, "prefix=order-2")) == left, "a plan that was stopped went on"

        # What cannot be counted, or was forgotten meanwhile, keeps its dialog, says what to do, and is counted again.
        page.goto(f"{url}/#/messages/many")
        plans = f"{url}/v1/topics/many/plans"
        away = lambda status, code: lambda route: route.fulfill(status=status, content_type="application/problem+json", body=json.dumps({"code": code, "detail": f"it is {code}"})) if route.request.method == "POST" else route.continue_()
        noise = len(faults)
        for status, code, advice in ((507, "store_full", "stop one of those"), (503, "store_unavailable", "When the store answers again")):
            page.route(plans, away(status, code))
            page.get_by_role("button", name="Cancel all of these …").click()
            dialog = page.get_by_role("dialog")
            expect(dialog.get_by_role("alert")).to_contain_text(f"it is {code}")
            expect(dialog).to_contain_text(f"Nothing was done, and what was chosen is kept. {advice}" if status == 503 else advice)
            page.unroute(plans)
            dialog.get_by_role("button", name="Count again").click()
            expect(dialog).to_contain_text("Cancel 1,200 messages of many")
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
        with page.expect_response(lambda answer: answer.url == plans and answer.status == 201) as counted:
            page.get_by_role("button", name="Cancel all of these …").click()
        expect(dialog).to_contain_text("Cancel 1,200 messages of many")
        api("DELETE", f"/v1/topics/many/plans/{counted.value.json()['id']}")
        page.get_by_label("Type many to go on").fill("many")
        dialog.get_by_role("button", name="Cancel 1,200 messages", exact=True).click()
        expect(dialog).to_contain_text("What was counted a while ago is forgotten")
        dialog.get_by_role("button", name="Count again").click()
        expect(dialog).to_contain_text("Cancel 1,200 messages of many")
        dialog.get_by_role("button", name="Leave it").click()
        expect(dialog).to_have_count(0)
        assert api("GET", "/v1/topics/many")[1]["scheduled"] == 1200
        # The browser notes what it was answered.
        del faults[noise:]

        # Messages of a page whose node ended are shown, with why.
        unrecorded = lambda read: [plan["counts"].update(unrecorded=37) for plan in read["plans"]]
        put(page, f"{url}/v1/topics/orders/plans", unrecorded)
        page.goto(f"{url}/#/messages/orders")
        expect(page.get_by_role("region", name="bulk actions").get_by_role("row").nth(1)).to_contain_text("37")
        expect(page.locator("main")).to_contain_text("whose node ended before it wrote down what became of them")
        page.unroute(f"{url}/v1/topics/orders/plans")
        see(page, "messages")

        # More than a thousand want the name of the topic typed, whatever is done to them.
        page.goto(f"{url}/#/messages/many")
        page.get_by_role("button", name="Deliver all of these now …").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Deliver now 1,200 messages of many")
        begin = dialog.get_by_role("button", name="Deliver now 1,200 messages", exact=True)
        page.wait_for_timeout(1500)
        assert begin.is_disabled(), "more than a thousand messages are touched without the topic's name"
        page.get_by_label("Type many to go on").fill("many")
        page.get_by_label("Messages a second, at most").fill("5000")
        begin.click()
        expect(page.get_by_role("region", name="bulk actions")).to_contain_text("done")
        assert api("GET", "/v1/topics/many")[1]["due"] == 1200

        # Give all that match another time, carried out to its end; what does not match keeps its own.
        before = {one["id"]: one["visible_at"] for one in listed(api, "prefix=order-1")}
        see(page, "messages")
        page.get_by_label("Id begins with").fill("order-3")
        page.get_by_role("button", name="Search", exact=True).click()
        expect(page.locator("main")).to_contain_text("11 messages")
        due = page.evaluate("Math.floor(Date.now() / 1000) * 1000 + 7_200_000")
        local = page.evaluate("(due) => new Date(due - new Date(due).getTimezoneOffset() * 60_000).toISOString().slice(0, 19)", due)
        page.get_by_label("To another time").fill(local)
        page.get_by_role("button", name="Reschedule all of these …").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Reschedule 11 messages of orders")
        expect(dialog).to_contain_text(f"duetime bulk reschedule --prefix=order-3 --at={due}")
        expect(dialog).to_contain_text("/start")
        dialog.get_by_role("button", name="Reschedule 11 messages", exact=True).click()
        row = page.get_by_role("region", name="bulk actions").get_by_role("row").filter(has_text="Reschedule")
        expect(row).to_contain_text("done")
        expect(row).to_contain_text("duetime bulk get -- orders")
        moved = listed(api, "prefix=order-3")
        assert [one["visible_at"] for one in moved] == [due] * 11, moved
        after = {one["id"]: one["visible_at"] for one in listed(api, "prefix=order-1")}
        assert after == before, (before, after)

        # A bar of the forecast leads to its messages.
        see(page, "forecast")
        page.get_by_text("The same as a command").click()
        expect(page.locator("main")).to_contain_text("duetime forecast --bucket=1m --horizon=1h -- orders")
        page.get_by_text("As a table").click()
        page.locator("details[open] td a").first.click()
        expect(page.locator("main")).to_contain_text("shards looked through")
        slot = urllib.parse.urlsplit(page.url).fragment.split("/")[-2:]
        within = listed(api, f"due_from={slot[0]}&due_to={slot[1]}&limit=100")
        expect(page.locator("main")).to_contain_text(f"{len(within)} message")
        assert within, slot

        # Settings, with what differs shown first; what is left out goes back to its default.
        page.goto(f"{url}/#/topic/many")
        page.get_by_role("button", name="Change …").click()
        dialog = page.get_by_role("dialog")
        settings = dialog.get_by_role("textbox", name="Settings")
        before = settings.input_value()
        change = dialog.get_by_role("button", name="Change them")
        settings.fill(before + ",")
        expect(dialog).to_contain_text("This is not JSON")
        assert change.is_disabled()
        longer = before.replace('"visibility_timeout": "30s"', '"visibility_timeout": "45s"')
        settings.fill(longer)
        expect(dialog).to_contain_text("visibility_timeout: 30s → 45s")
        dialog.get_by_text("The same as a command").click()
        expect(dialog).to_contain_text("duetime topic set --visibility-timeout=45s -- many")
        # The command has no word for a default.
        settings.fill(longer.replace('"max_attempts": 3,', ""))
        expect(dialog).to_contain_text("retry.max_attempts: 3 → the default")
        expect(dialog).not_to_contain_text("duetime topic set")
        change.click()
        expect(page.get_by_role("status").last).to_contain_text("many is changed")
        now = api("GET", "/v1/topics/many")[1]
        assert (now["visibility_timeout"], now["retry"]["max_attempts"], now["shards"]) == ("45s", 10, 4), now

        # A resize.
        see(page, "shards")
        page.get_by_role("button", name="Change the number …").click()
        page.get_by_label("Shards (1 to 4096, or auto)").fill("16")
        expect(page.get_by_role("dialog")).to_contain_text("75 % of the messages move")
        expect(page.get_by_role("dialog")).to_contain_text("at most 20,000 a second, so for 1.0 s or more")
        page.get_by_role("button", name="Begin").click()
        expect(page.locator("main")).to_contain_text("16 shards (fixed)")

        # Many shards are read when the topic's counts change, or by hand, and not all the time. The page's time is moved.
        api("PUT", "/v1/topics/wide", {"shards": 200})
        wide = page_of(viewport={"width": 1280, "height": 860})
        wide.clock.install()
        reads = []
        wide.on("request", lambda request: request.url.endswith("/v1/topics/wide/shards") and reads.append(request.url))
        wide.goto(f"{url}/#/shards/wide")
        expect(wide.locator("main")).to_contain_text("200 shards (fixed)")
        # What the stream says of a new topic may still change, which is a reason to read; after that there is none.
        quiet = 0
        for _ in range(20):
            before = len(reads)
            wide.clock.run_for(20_000)
            quiet = quiet + 1 if len(reads) == before else 0
            if quiet == 5:
                break
        assert quiet == 5, f"{len(reads)} reads of shards that nobody changed"
        before = len(reads)
        with wide.expect_response("**/v1/topics/wide/shards"):
            wide.get_by_role("button", name="Read them again").click()
        api("POST", "/v1/topics/wide/messages", {"id": "one", "delay": "1h"})
        expect(wide.locator("main")).to_contain_text("its counts changed since")
        assert len(reads) == before + 1, reads
        wide.clock.run_for(21_000)
        expect(wide.locator("main")).not_to_contain_text("its counts changed since")
        assert len(reads) == before + 2, reads
        wide.context.close()
        api("DELETE", "/v1/topics/wide?force=true")

        # Create, enqueue, claim and acknowledge by hand.
        see(page, "try")
        page.get_by_label("Topic", exact=True).fill("by-hand")
        page.get_by_role("button", name="Create by-hand").click()
        page.get_by_label("Id (made if empty)").fill("one")
        page.get_by_label("Delay").fill("0s")
        enqueue = page.get_by_role("button", name="Enqueue")
        expect(enqueue).to_be_enabled()
        enqueue.click()
        expect(page.get_by_role("status").last).to_contain_text("one: scheduled")
        page.get_by_role("button", name="Claim what is due").click()
        page.get_by_role("button", name="Ack", exact=True).click()
        expect(page.get_by_role("status").last).to_contain_text("one: ok")
        assert api("GET", "/v1/topics/by-hand/messages/one")[0] == 404

        # Delete a topic by typing its name.
        page.goto(f"{url}/#/topic/by-hand")
        page.get_by_role("button", name="Delete this topic …").click()
        page.get_by_label("Type by-hand to go on").fill("by-hand")
        page.get_by_role("button", name="Delete it").click()
        expect(page.get_by_role("status").last).to_contain_text("by-hand is deleted")
        assert api("GET", "/v1/topics/by-hand")[0] == 404

        # A message that is not there any more is asked about once more: the browser notes the 404.
        noted = [fault for fault in faults if "404 (Not Found)" not in fault]
        assert not noted, "\n".join(dict.fromkeys(noted))
    print("the console did all of it")


main()
