"""Dead letters are read, ticked, edited, and redriven ten first: python letters.py URL"""

import re
import sys

from playwright.sync_api import expect

from browser import asking, axe, chromium, pages_in, put, until

SEEN_WITHIN_MS = 20_000
CLOSED, WEIRD, MORE = 31, 2, 30
# A number that JavaScript cannot hold, and a key that is there twice.
JSON_SENT = '{"order":12345678901234567890,"of":[1,{"a":"x: {y}"}],"of":[]}'
JSON_SHOWN = """{
  "order": 12345678901234567890,
  "of": [
    1,
    {
      "a": "x: {y}"
    }
  ],
  "of": []
}"""


def main():
    url = sys.argv[1].rstrip("/")
    api = asking(url, refusals=True)
    topic = "/v1/topics/orders"

    def taken(count, settle, body, of=topic):
        """Claims `count` messages and settles them."""
        ids = []
        while len(ids) < count:
            messages = api("POST", f"{of}/claim", {"max": count - len(ids), "wait": "10s"})[1]["messages"]
            receipts = [one["receipt"] for one in messages]
            api("POST", f"{of}/{settle}", {"receipts": receipts, **body})
            ids += [one["id"] for one in messages]
        return ids

    api("PUT", topic, {"shards": 2, "retry": {"max_attempts": 5}})
    closed = [{"id": f"closed-{n:02}", "payload": f"text {n}", "headers": {"shop": str(n)}} for n in range(CLOSED - 1)]
    api("POST", f"{topic}/messages", [*closed, {"id": "closed-json", "payload": JSON_SENT}])
    taken(CLOSED, "nack", {"dead": True, "reason": "the shop 7 is closed"})
    api("POST", f"{topic}/messages", [{"id": "weird-a", "payload_base64": "AP9BQg=="}, {"id": "weird-b"}])
    taken(WEIRD, "nack", {"dead": True, "reason": "this cannot be read"})

    with chromium() as browser:
        page_of = pages_in(browser, SEEN_WITHIN_MS)

        page = page_of(viewport={"width": 1280, "height": 860})
        main = page.locator("main")
        letters = page.get_by_role("region", name=re.compile("^Of the reason|^All of them"))
        outcomes = page.get_by_role("region", name="what became of those that were redriven")
        dialog = page.get_by_role("dialog")

        def group(text):
            return page.get_by_role("region", name="table").get_by_role("row").filter(has_text=text)

        def opened(name):
            one = letters.locator("li").filter(has=page.get_by_text(name, exact=True))
            one.locator("summary").click()
            return one

        # A reason opens into its letters, page by page; a link and a reload show the same.
        page.goto(f"{url}/#/dead/orders")
        group("cannot be read").get_by_role("button", name="One by one").click()
        expect(letters.locator("li")).to_have_count(WEIRD)
        page.goto(f"{url}/#/dead/orders")
        group("is closed").get_by_role("button", name="One by one").click()
        expect(letters.locator("li")).to_have_count(25)
        assert page.evaluate("document.activeElement.id") == "letters-title"
        page.reload()
        expect(letters.locator("li")).to_have_count(25)
        first = letters.locator("summary .mono").all_inner_texts()
        letters.get_by_role("button", name="Next page").click()
        expect(letters.locator("li")).to_have_count(CLOSED - 25)
        second = letters.locator("summary .mono").all_inner_texts()
        assert len({*first, *second}) == CLOSED, (first, second)
        letters.get_by_role("button", name="Page before").click()
        expect(letters.locator("summary .mono").first).to_have_text(first[0])
        letters.get_by_role("button", name="Close this list").click()
        expect(letters).to_have_count(0)

        # What a letter carries: JSON as it was sent, on several lines; text; bytes in hexadecimal; headers.
        page.get_by_role("button", name="All of them one by one").click()
        expect(letters.locator("li")).to_have_count(25)
        seen = {}
        while True:
            for name in letters.locator("summary .mono").all_inner_texts():
                if name in ("closed-json", "weird-a", "weird-b", "closed-03"):
                    seen[name] = opened(name)
                    expect(seen[name].locator("dl")).to_be_visible()
                    seen[name] = (
                        seen[name].locator("dl").inner_text(),
                        seen[name].locator("pre.payload").all_inner_texts(),
                    )
            if letters.get_by_role("button", name="Next page").count() == 0:
                break
            before = letters.locator("summary .mono").first.inner_text()
            letters.get_by_role("button", name="Next page").click()
            expect(letters.locator("summary .mono").first).not_to_have_text(before)
        assert seen["closed-json"][1] == [JSON_SHOWN], seen["closed-json"]
        assert f"JSON, {len(JSON_SENT)} bytes" in seen["closed-json"][0], seen
        assert seen["closed-03"][1] == ["text 3"], seen
        for said in ("the shop 7 is closed", "text, 6 bytes", "shop"):
            assert said in seen["closed-03"][0], seen
        assert seen["weird-a"][1][0].split("  ") [:2] == ["00000000", "00 ff 41 42"], seen
        assert seen["weird-a"][1][0].endswith("|..AB|") and "4 bytes" in seen["weird-a"][0], seen
        assert seen["weird-b"][1] == [] and "empty" in seen["weird-b"][0], seen

        # What is ticked, on several pages, is redriven, and what became of it is shown.
        page.goto(f"{url}/#/dead/orders")
        group("is closed").get_by_role("button", name="One by one").click()
        redrive = letters.get_by_role("button", name=re.compile("^Redrive . ticked"))
        expect(redrive).to_be_disabled()
        for name in first[:2]:
            letters.get_by_label(f"tick {name}").check()
        letters.get_by_role("button", name="Next page").click()
        letters.get_by_label(f"tick {second[0]}").check()
        redrive.click()
        expect(dialog).to_contain_text("Redrive 3 dead letters of orders")
        expect(dialog).to_contain_text("duetime dead redrive -- orders " + " ".join([*first[:2], second[0]]))
        dialog.get_by_role("button", name="Redrive them").click()
        expect(page.get_by_role("status").last).to_contain_text("3 of 3 are scheduled again")
        expect(outcomes).to_contain_text("What became of the 3 that were redriven")
        expect(outcomes).to_contain_text("3 wait still")
        again = taken(1, "nack", {"dead": True, "reason": "the shop 8 is closed"})
        taken(1, "ack", {})
        expect(outcomes).to_contain_text("1 left the topic")
        expect(outcomes).to_contain_text("1 died again")
        expect(outcomes).to_contain_text("the shop 8 is closed")
        expect(outcomes).to_contain_text("1 waits still")
        # It is not forgotten with another screen.
        page.evaluate("location.hash = '#/nodes'")
        expect(main).to_contain_text("Shares by")
        page.evaluate("location.hash = '#/dead/orders'")
        expect(outcomes).to_contain_text("1 waits still")
        taken(1, "ack", {})
        expect(outcomes).to_contain_text("2 left the topic")
        expect(outcomes).to_contain_text("0 wait still")
        assert outcomes.get_by_role("button", name="Redrive the rest").count() == 0
        outcomes.get_by_role("button", name="Close").click()
        expect(outcomes).to_have_count(0)

        # A letter is edited and redriven, with its headers, in one step.
        page.goto(f"{url}/#/dead/orders?reason={api('GET', topic + '/dead/groups')[1]['groups'][0]['reason'].replace('#', '%23')}")
        edited = next(name for name in first[2:] if name != "closed-json")
        opened(edited).get_by_role("button", name="Edit and redrive …").click()
        as_edited = dialog.get_by_role("button", name="Redrive as edited")
        page.wait_for_timeout(1500)
        expect(as_edited).to_be_disabled()
        dialog.get_by_label("Payload").fill('{"open":true}')
        dialog.get_by_role("button", name="Indent").click()
        expect(dialog.get_by_label("Payload")).to_have_value('{\n  "open": true\n}')
        dialog.get_by_label("Payload").fill('{"open":1}')
        expect(dialog).to_contain_text("duetime dead redrive --payload=")
        expect(dialog).to_contain_text("only while that is the letter that was read")
        as_edited.click()
        expect(page.get_by_role("status").last).to_contain_text("1 message is due.")
        now = api("GET", f"{topic}/messages/{edited}")[1]
        number = str(int(edited.removeprefix("closed-")))
        got = (now["state"], now["payload"], now["headers"]["shop"], now["previous"]["payload"])
        assert got == ("scheduled", '{"open":1}', number, f"text {int(number)}"), now
        # What it was is kept, and shown where it is looked at; nobody is handed it.
        page.goto(f"{url}/#/message/orders/{edited}")
        former = page.locator("dt", has_text="before it was edited").locator("xpath=following-sibling::dd[1]")
        former.get_by_role("button", name="Show").click()
        expect(former.locator("pre")).to_have_text(f"text {int(number)}")
        expect(main).not_to_contain_text("duetime-previous")
        page.go_back()
        assert taken(1, "ack", {}) == [edited]
        # One that was redriven meanwhile is left as it is, and so is one that is gone.
        for end in ("nack", "ack", "wait"):
            stale = next(name for name in first[4:] if name not in ("closed-json", edited, *again))
            first.remove(stale)
            opened(stale).get_by_role("button", name="Edit and redrive …").click()
            dialog.get_by_label("Payload").fill("too late")
            api("POST", f"{topic}/dead/redrive", {"ids": [stale]})
            if end != "wait":
                taken(1, end, {"dead": True, "reason": "the shop 9 is closed"} if end == "nack" else {})
            as_edited.click()
            why = "it died again since it was read" if end == "nack" else "it is no dead letter any more"
            expect(dialog.get_by_role("alert")).to_contain_text(f"Nothing was done. {stale}: {why}")
            page.wait_for_timeout(200)
            assert dialog.evaluate("(one) => one.contains(document.activeElement)"), "the focus left the dialog"
            status, now = api("GET", f"{topic}/messages/{stale}")
            assert status == 404 if end == "ack" else now["payload"].startswith("text "), now
            if end == "wait":
                taken(1, "ack", {})
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)

        # What is ticked goes to another topic, and what is there already stays; edited too.
        page.goto(f"{url}/#/dead/orders?all=yes")
        expect(letters.locator("li").first).to_be_visible()
        ids = [name for name in letters.locator("summary .mono").all_inner_texts() if name.startswith("closed-") and name != "closed-json"][:3]
        api("PUT", "/v1/topics/repairs", {"shards": 1, "remember": "1h"})
        api("POST", "/v1/topics/repairs/messages", {"id": ids[1], "delay": "1h", "payload": "another"})
        there = api("GET", topic)[1]["dead"]
        for name in ids[:2]:
            letters.get_by_label(f"tick {name}").check()
        letters.get_by_role("button", name="Redrive 2 ticked …").click()
        dialog.get_by_label("In the topic").select_option("repairs")
        expect(dialog).to_contain_text(f"duetime dead redrive --to=repairs -- orders {ids[0]} {ids[1]}")
        dialog.get_by_role("button", name="Redrive them").click()
        expect(dialog.get_by_role("alert")).to_contain_text(f"1 message is due, 1 stayed. {ids[1]}: nothing was done: repairs has a message of this id")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        assert api("GET", topic)[1]["dead"] == there - 1
        moved = api("GET", f"/v1/topics/repairs/messages/{ids[0]}")[1]
        assert moved["payload"] == f"text {int(ids[0].removeprefix('closed-'))}", moved
        opened(ids[2]).get_by_role("button", name="Edit and redrive …").click()
        dialog.get_by_label("In the topic").select_option("repairs")
        dialog.get_by_label("Payload").fill("mended")
        as_edited.click()
        expect(page.get_by_role("status").last).to_contain_text("1 message is due in repairs.")
        mended = api("GET", f"/v1/topics/repairs/messages/{ids[2]}")[1]
        assert (mended["payload"], mended["previous"]["payload"]) == ("mended", f"text {int(ids[2].removeprefix('closed-'))}"), mended
        assert api("GET", topic)[1]["dead"] == there - 2

        # What is ticked is purged, with the topic's name typed.
        there = api("GET", topic)[1]["dead"]
        page.goto(f"{url}/#/dead/orders")
        group("cannot be read").get_by_role("button", name="One by one").click()
        letters.get_by_label("All of this page").check()
        letters.get_by_role("button", name="Purge 2 ticked …").click()
        page.wait_for_timeout(1500)
        purge = dialog.get_by_role("button", name="Purge 2", exact=True)
        assert purge.is_disabled(), "letters are purged without the topic's name"
        dialog.get_by_label("Type orders to go on").fill("orders")
        purge.click()
        expect(page.get_by_role("status").last).to_contain_text("2 of 2 are removed for good.")
        expect(letters).to_contain_text("None: they were redriven or purged.")
        assert api("GET", topic)[1]["dead"] == there - 2

        # Ten first: the rest is offered when it is known what became of them, and then goes with its example.
        page.goto(f"{url}/#/dead/orders")
        group("is closed").get_by_role("button", name="Redrive 10 first …").click()
        expect(dialog).to_contain_text("the others are left alone until then")
        dialog.get_by_label("Then the rest, ").uncheck()
        dialog.get_by_role("button", name="Redrive them").click()
        expect(outcomes).to_contain_text("10 wait still")
        rest = outcomes.get_by_role("button", name="Redrive the rest …")
        expect(rest).to_be_disabled()
        taken(9, "ack", {})
        expect(outcomes).to_contain_text("9 left the topic")
        expect(rest).to_be_disabled()
        taken(1, "ack", {})
        expect(outcomes).to_contain_text("10 left the topic")
        left = api("GET", topic)[1]["dead"]
        expect(outcomes).to_contain_text(f"{left} others of this reason would follow.")
        rest.click()
        expect(dialog).to_contain_text(f"Redrive {left} messages of orders")
        expect(dialog.locator("dl.pairs")).to_contain_text("such as")
        # Who leaves it has what became of the ten, and is where they were.
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(outcomes).to_contain_text("10 left the topic")
        expect(rest).to_be_focused()
        # What was counted while one was redriven, which died again before that was seen here, is counted again.
        short = []

        def missing(read):
            if not short:
                read["scanned"] -= 1
                read["groups"][0]["count"] -= 1
                short.append(read["groups"][0]["count"])

        put(page, "**/dead/groups?*", missing)
        page.reload()
        expect(group("is closed")).to_contain_text(f"{left} 100 %")
        assert short == [left - 1], short
        page.unroute("**/dead/groups?*")
        # Or it stops.
        group("is closed").get_by_role("button", name="Redrive 10 first …").click()
        dialog.get_by_label("Then the rest, ").uncheck()
        dialog.get_by_role("button", name="Redrive them").click()
        outcomes.get_by_role("button", name="Stop here").click()
        expect(outcomes).to_have_count(0)
        taken(10, "nack", {"dead": True, "reason": "the shop 7 is closed"})
        # A topic that does not remember cannot tell what became of them: it stops, and asks.
        plans = lambda: api("GET", f"{topic}/plans")[1]["plans"]
        dead = lambda: api("GET", topic)[1]["dead"]
        api("POST", f"{topic}/messages", [{"id": f"more-{n:02}"} for n in range(MORE)])
        taken(MORE, "nack", {"dead": True, "reason": "the shop 7 is closed"})
        there = dead()
        expect(group("is closed")).to_contain_text(f"{there} 100 %")
        group("is closed").get_by_role("button", name="Redrive 10 first …").click()
        for said in ("orders does not remember whether its messages were delivered", "what was not stays a dead letter"):
            expect(dialog).to_contain_text(said)
        dialog.get_by_role("button", name=f"Redrive 10, then up to {there - 10} more").click()
        taken(10, "ack", {})
        expect(page.get_by_role("status").last).to_contain_text("Stopped: that 10 were delivered is not known, and the others stay.")
        expect(rest).to_be_enabled()
        assert (dead(), plans()) == (there - 10, []), plans()
        outcomes.get_by_role("button", name="Stop here").click()
        # One that remembers can, and more than ten that are ticked go in the same way.
        api("PUT", topic, {"remember": "1h"})
        page.goto(f"{url}/#/dead/orders?all=yes")
        expect(letters.locator("li")).to_have_count(25)
        names = letters.locator("summary .mono").all_inner_texts()[:12]
        for name in names:
            letters.get_by_label(f"tick {name}").check()
        letters.get_by_role("button", name="Redrive 12 ticked …").click()
        expect(dialog).to_contain_text("Redrive 10 dead letters of orders, then up to 2 more")
        dialog.get_by_role("button", name="Redrive 10, then up to 2 more").click()
        taken(9, "ack", {})
        expect(outcomes).to_contain_text("9 delivered")
        assert dead() == there - 20
        taken(1, "ack", {})
        expect(page.get_by_role("status").last).to_contain_text("All of them were delivered. 2 messages are due.")
        expect(outcomes).to_have_count(0)
        assert sorted(taken(2, "ack", {})) == sorted(names[10:]), names
        page.goto(f"{url}/#/dead/orders")
        # By itself it stops where one dies again, and else goes on with as many as were agreed to.
        for acked in (1, 10):
            rest = dead() - 10
            expect(group("is closed")).to_contain_text(f"{rest + 10} 100 %")
            group("is closed").get_by_role("button", name="Redrive 10 first …").click()
            expect(dialog.get_by_label(f"Then the rest, {rest} messages")).to_be_checked()
            expect(dialog).to_contain_text(f"Redrive 10 dead letters of orders, then up to {rest} more")
            dialog.get_by_role("button", name=f"Redrive 10, then up to {rest} more").click()
            expect(outcomes).to_contain_text("The rest follows when all of these were delivered")
            if acked < 10:
                taken(9, "nack", {"dead": True, "reason": "the shop 7 is closed"})
            taken(acked, "ack", {})
            if acked < 10:
                expect(page.get_by_role("status").last).to_contain_text("Stopped: 9 died again, and the others stay.")
                assert plans() == [], plans()
                outcomes.get_by_role("button", name="Stop here").click()
        expect(outcomes).to_have_count(0)
        assert len(taken(rest, "ack", {})) == rest
        assert [(one["action"], one["at_most"]) for one in plans()] == [("redrive", rest)], plans()
        # Of two reasons each waits for its own ten, and none is forgotten for the other.
        def died(name, count, reason):
            api("POST", f"{topic}/messages", [{"id": f"{name}-{n:02}"} for n in range(count)])
            taken(count, "nack", {"dead": True, "reason": reason})

        def begin(text):
            expect(group(text)).to_contain_text(re.compile(r"12 \d+ %"))
            group(text).get_by_role("button", name="Redrive 10 first …").click()
            dialog.get_by_role("button", name="Redrive 10, then up to 2 more").click()
            expect(dialog).to_have_count(0)

        died("left", 12, "the shop 7 is closed")
        died("odd", 12, "this cannot be read")
        for text in ("is closed", "cannot be read"):
            begin(text)
        expect(outcomes).to_have_count(2)
        taken(24, "ack", {})
        expect(outcomes).to_have_count(0)
        assert sorted(one["at_most"] for one in plans()) == sorted([2, 2, rest]), plans()
        # While the rest is counted it can be stopped, and not begun a second time.
        held = []
        page.route("**/topics/orders/plans", lambda route: held.append(route) if route.request.method == "POST" else route.continue_())
        died("held", 12, "the shop 7 is closed")
        begin("is closed")
        taken(10, "ack", {})
        until(page, lambda: held, "the rest is not counted")
        expect(outcomes).to_contain_text("the others are counted, and follow")
        expect(outcomes.get_by_role("button", name="Redrive the rest …")).to_be_disabled()
        outcomes.get_by_role("button", name="Stop here").click()
        held.pop().continue_()
        expect(page.get_by_role("status").last).to_contain_text("Stopped: the others stay.")
        assert (dead(), len(plans())) == (2, 3), plans()
        # Where it cannot be counted the page says so for as long as nobody closes that.
        died("new", 10, "the shop 7 is closed")
        begin("is closed")
        taken(10, "ack", {})
        until(page, lambda: held, "the rest is not counted")
        held.pop().fulfill(status=503, json={"code": "busy", "detail": "not now"})
        page.unroute("**/topics/orders/plans")
        expect(outcomes.get_by_role("alert")).to_contain_text("not now")
        outcomes.get_by_role("button", name="Redrive the rest …").click()
        expect(dialog).to_contain_text("Redrive 2 messages of orders")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        outcomes.get_by_role("button", name="Stop here").click()
        expect(outcomes).to_have_count(0)
        # What repeats is scheduled anew under its id once it is delivered: nobody waits for that.
        api("POST", f"{topic}/messages", {"id": "again", "delay": "1s", "repeat": {"every": "1h"}})
        taken(1, "nack", {"dead": True, "reason": "this cannot be read"})
        group("cannot be read").get_by_role("button", name="Redrive …").click()
        dialog.get_by_role("button", name="Redrive it").click()
        expect(outcomes).to_contain_text("1 waits still")
        taken(1, "ack", {})
        expect(outcomes).to_contain_text("as what repeats is")
        expect(outcomes).to_contain_text("0 wait still")
        outcomes.get_by_role("button", name="Close").click()
        api("POST", f"{topic}/cancel", {"ids": ["again"]})

        # A topic that delivers at most once cannot tell either, though it remembers: it stops, and asks.
        once, settings = "/v1/topics/once", {"shards": 1, "remember": "1h"}
        api("PUT", once, settings)
        api("POST", f"{once}/messages", [{"id": f"once-{n:02}"} for n in range(12)])
        taken(12, "nack", {"dead": True, "reason": "the shop 7 is closed"}, once)
        api("PUT", once, {**settings, "delivery": "at-most-once"})
        page.goto(f"{url}/#/dead/once")
        group("is closed").get_by_role("button", name="Redrive 10 first …").click()
        expect(dialog).to_contain_text("once delivers at most once")
        dialog.get_by_role("button", name="Redrive 10, then up to 2 more").click()
        expect(dialog).to_have_count(0)
        # What came is removed: there is nothing to settle.
        taken(10, "ack", {}, once)
        expect(outcomes).to_contain_text("10 left the topic")
        expect(outcomes).to_contain_text("handed over at most once, whether it was taken or not")
        expect(page.get_by_role("status").last).to_contain_text("Stopped: that 10 were delivered is not known, and the others stay.")
        assert (api("GET", once)[1]["dead"], api("GET", f"{once}/plans")[1]["plans"]) == (2, [])
        page.goto(f"{url}/#/dead/orders")

        api("POST", f"{topic}/messages", {"id": "last", "payload": "{}"})
        taken(1, "nack", {"dead": True, "reason": "the shop 7 is closed"})

        # axe finds nothing, and nothing is wider than a telephone.
        looked = page_of(bypass_csp=True)
        looked.goto(f"{url}/#/dead/orders?all=yes")
        looked.locator(".letters summary").first.click()
        expect(looked.locator(".letters dl").first).to_be_visible()
        axe(looked, "the letters")
        narrow = page_of(viewport={"width": 360, "height": 740})
        narrow.goto(f"{url}/#/dead/orders?all=yes")
        narrow.locator(".letters summary").first.click()
        expect(narrow.locator(".letters dl").first).to_be_visible()
        wide = narrow.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} px wider than a telephone"
    print("each letter was read and dealt with")


main()
