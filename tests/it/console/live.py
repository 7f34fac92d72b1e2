"""What changes, seen on one page that is never loaded again: python live.py URL

It says on standard output what the test is to do next (`sink away`, `sink back`, `kill other`, `store away`, `store back`,
`hang`, `go on`, `restart`), and waits for
a line on standard input.
"""

import sys
import time

from playwright.sync_api import expect

from browser import asked, asking, chromium

SEEN_WITHIN_MS = 60_000
HERD = 2000
# How long it is watched how often the store is counted.
WATCHED_S = 8
# What the browser itself notes when a node goes away.
NODE_AWAY = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_SOCKET_NOT_CONNECTED")


def main():
    url = sys.argv[1].rstrip("/")

    api = asking(url)

    def counted():
        lines = api("GET", "/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith('duetime_store_call_seconds_count{op="counts"'))

    with chromium() as browser:
        faults = []

        def open_page():
            page = browser.new_context(viewport={"width": 1280, "height": 860}).new_page()
            page.set_default_timeout(SEEN_WITHIN_MS)
            expect.set_options(timeout=SEEN_WITHIN_MS)
            page.on("console", lambda message: message.type in ("error", "warning") and not any(word in message.text for word in NODE_AWAY) and faults.append(f"console: {message.text}"))
            page.on("pageerror", lambda error: faults.append(f"error: {error}"))
            page.add_init_script("addEventListener('securitypolicyviolation', (event) => console.error('policy: ' + event.violatedDirective))")
            page.goto(f"{url}/#/")
            expect(page.locator("footer")).to_contain_text("live")
            return page

        page = open_page()
        page.evaluate("window.loaded = 'once'")
        main = page.locator("main")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="herd", exact=True))
        expect(main).to_contain_text("2 nodes")

        # A herd comes: seen while it waits, and gone when it went out.
        for part in range(0, HERD, 500):
            api("POST", "/v1/topics/herd/messages", [{"id": f"h-{part + n}", "delay": "12s"} for n in range(500)])
        expect(row).to_contain_text("2,000")
        expect(row).not_to_contain_text("2,000")
        expect(row).to_contain_text("/s")

        # Three more tabs: the store is counted no more often for them.
        def counts_a_second():
            page.wait_for_timeout(3000)
            before, began = counted(), time.monotonic()
            page.wait_for_timeout(WATCHED_S * 1000)
            return (counted() - before) / (time.monotonic() - began)

        alone = counts_a_second()
        others = [open_page() for _ in range(3)]
        together = counts_a_second()
        said = f"the store was counted {alone:.2f} times a second for one tab, and {together:.2f} times for four"
        assert together <= alone + 3 / WATCHED_S, said
        for other in others:
            other.context.close()

        # The sink dies: what waits is said, and that nothing is lost by it; and it comes back.
        asked("sink away")
        api("POST", "/v1/topics/herd/messages", [{"id": f"s-{n}"} for n in range(50)])
        expect(main).to_contain_text("is down")
        expect(row).to_contain_text("sink down")
        page.evaluate("location.hash = '#/sinks'")
        issue = main.locator(".banner", has_text="herd")
        expect(issue).to_contain_text("down since")
        expect(issue).to_contain_text("could not connect")
        expect(issue).to_contain_text("messages wait")
        expect(main.get_by_role("region", name="topics with a sink")).to_contain_text("once it is up")
        issue.get_by_role("button", name="Try it now").click()
        expect(page.get_by_role("status").last).to_contain_text("herd: It is down still.")
        # Since when, how often it was tried, and what was said is kept.
        outages = main.get_by_role("region", name="outages").locator("tbody")
        expect(outages).to_contain_text("herd")
        expect(outages).to_contain_text("ongoing")
        expect(outages).to_contain_text("could not connect")
        expect(main.get_by_role("img", name="down once")).to_have_count(1)
        refused = main.get_by_role("region", name="deliveries").get_by_role("row").filter(has_text="hook")
        expect(refused.get_by_text("unavailable").first).to_be_visible()
        asked("sink back")
        # The node that tries it later may find that the other one delivered all: it tries again with the next that is due.
        api("POST", "/v1/topics/herd/messages", [{"id": f"back-{n}", "delay": f"{n * 250}ms"} for n in range(80)])
        expect(issue).to_have_count(0)
        expect(outages).not_to_contain_text("ongoing")
        known = api("GET", "/v1/outages?topic=herd")["outages"]
        assert len(known) >= 1 and known[0]["end"] == "accepted" and known[0]["probes"] > 0 and known[0]["until"] > known[0]["since"], known
        expect(main.get_by_role("region", name="topics with a sink")).to_contain_text("nothing waits")
        page.evaluate("location.hash = '#/'")
        expect(main).not_to_contain_text("is down")
        expect(row).not_to_contain_text("sink down")

        # A resize, watched on the screen of the shards and on Now.
        api("POST", "/v1/topics/herd/messages", [{"id": f"later-{n}", "delay": "1h"} for n in range(1000)])
        page.evaluate("location.hash = '#/shards/herd'")
        expect(main).to_contain_text("4 shards (fixed)")
        api("PUT", "/v1/topics/herd/shards", {"shards": 16})
        expect(main).to_contain_text("16 shards (fixed)")
        expect(main.get_by_role("group", name="shards").get_by_role("button")).to_have_count(16)
        page.evaluate("location.hash = '#/'")
        expect(row.get_by_role("link", name="16", exact=True)).to_be_visible()

        # How the nodes do: this one and what the other said of itself.
        page.evaluate("location.hash = '#/nodes'")
        other = main.get_by_role("row").filter(has_text="other")
        expect(other).to_contain_text("MiB")
        expect(other).to_contain_text(" ago")
        for node in api("GET", "/v1/nodes")["nodes"]:
            vitals = node["vitals"]
            assert vitals["memory_bytes"] > 1 << 20 and abs(vitals["clock_skew_ms"]) < 2000 and vitals["at"] > node["since"], node

        # The other node is drained on the page, and takes its share again.
        page.evaluate("location.hash = '#/nodes'")
        other = main.get_by_role("row").filter(has_text="other")
        other.get_by_role("button", name="Drain other").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("duetime drain -- other")
        dialog.get_by_role("button", name="Drain it").click()
        expect(other).to_contain_text("draining")
        nodes = {node["id"]: node for node in api("GET", "/v1/nodes")["nodes"]}
        assert nodes["other"]["drain"]["at"] > 0 and "drain" not in nodes["first"], nodes
        other.get_by_role("button", name="End the drain of other").click()
        page.get_by_role("dialog").get_by_role("button", name="End it").click()
        expect(other).to_contain_text("serving")
        page.evaluate("location.hash = '#/'")
        # So it is from anywhere, by the commands.
        expect(dialog).to_have_count(0)
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Go to, or do").fill("drain other")
        expect(page.get_by_role("option").first).to_contain_text("Drain other …")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("duetime drain -- other")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        page.evaluate("location.hash = '#/'")

        # The other node is killed.
        asked("kill other")
        expect(main).not_to_contain_text("2 nodes")
        gone = main.locator(".banner.bad", has_text="other is gone since")
        expect(gone).to_be_visible()
        # A page that is opened later knows of it too.
        later = browser.new_page()
        later.goto(f"{url}/#/nodes")
        expect(later.get_by_role("region", name="nodes that are gone")).to_contain_text("it died or was cut off")
        # After an hour it is known, and burns no longer.
        hours_later = lambda read: [node.update(gone_at=node["gone_at"] - 2 * 3_600_000) for node in read["gone"]]
        later.route("**/v1/nodes", lambda route: (read := route.fetch().json(), hours_later(read), route.fulfill(json=read)))
        later.goto(f"{url}/#/")
        expect(later.locator(".banner.trouble:not(.bad)", has_text="other is gone since")).to_be_visible()
        later.close()

        # The store goes away and comes back: the page says so, keeps what it knows, and goes on by itself.
        asked("store away")
        expect(main).to_contain_text("The store does not answer")
        expect(row).to_be_visible()
        asked("store back")
        expect(main).not_to_contain_text("The store does not answer")

        # This node hangs: it answers nothing and closes nothing. The page says so, and goes on by itself.
        asked("hang")
        expect(main).to_contain_text("This node is slow: it has not answered for")
        expect(page.locator("footer")).to_contain_text("slow")
        expect(main).to_contain_text("This node does not answer")
        expect(main).to_contain_text("What is shown is from")
        expect(page.locator("footer")).to_contain_text("not answered")
        asked("go on")
        expect(main).not_to_contain_text("This node does not answer")
        expect(page.locator("footer")).to_contain_text("live")

        # This node goes away and comes back: the page says so, and goes on by itself.
        asked("restart")
        expect(main).to_contain_text("1 node")
        expect(page.locator("footer")).to_contain_text("live")
        api("POST", "/v1/topics/herd/messages", [{"id": f"after-{n}", "delay": "1h"} for n in range(234)])
        expect(row).to_contain_text("1,234")
        assert page.evaluate("window.loaded") == "once", "the page was loaded again"

        assert not faults, "\n".join(dict.fromkeys(faults))
    print("seen all of it", flush=True)


main()
