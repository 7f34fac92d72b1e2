"""Who had a shard, on the screen of the shards, while a node is killed: python owners.py URL

It says `kill other` on standard output when the test is to kill the node `other`, and waits for a line on standard input.
"""

import json
import re
import sys
import urllib.request

from playwright.sync_api import expect

from browser import chromium

SEEN_WITHIN_MS = 60_000
TIME = re.compile(r"other since .*\d\d:\d\d")


def main():
    url = sys.argv[1].rstrip("/")

    def api(path):
        with urllib.request.urlopen(url + path) as answer:
            return json.load(answer)

    with chromium() as browser:
        page = browser.new_context().new_page()
        page.set_default_timeout(SEEN_WITHIN_MS)
        expect.set_options(timeout=SEEN_WITHIN_MS)
        faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{url}/#/shards/herd")
        main = page.locator("main")
        expect(main.get_by_role("row").filter(has_text="other")).to_be_visible()
        shard = next(shard["index"] for shard in api("/v1/topics/herd/shards")["shards"] if shard.get("owner") == "other")
        main.get_by_role("group", name="shards").get_by_role("button", name=str(shard), exact=True).click()
        expect(main).to_contain_text(f"Who scanned shard {shard}")
        expect(main).to_contain_text("As this node (first) saw it since it started")
        steps = main.get_by_role("list", name="owners").get_by_role("listitem")
        expect(steps.first).to_contain_text(TIME)

        print("kill other", flush=True)
        sys.stdin.readline()
        expect(steps.first).to_contain_text("first since")
        expect(steps.first).to_contain_text("the lease of the node before ended")
        expect(steps.nth(1)).to_contain_text("nobody since")
        expect(steps.nth(2)).to_contain_text(TIME)
        past = api(f"/v1/topics/herd/shards/{shard}/owners")
        assert [change.get("owner") for change in past["changes"][:3]] == ["first", None, "other"], past
        times = [change["at"] for change in past["changes"]]
        assert times == sorted(times, reverse=True) and times[-1] >= past["since"], past
        assert not faults, faults
    print("seen all of it", flush=True)


main()
