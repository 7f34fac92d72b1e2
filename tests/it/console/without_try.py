"""A console without Try it has no way there: python without_try.py URL"""

import sys

from playwright.sync_api import expect

from browser import chromium, window_in

SEEN_WITHIN_MS = 20_000


def main():
    url = sys.argv[1].rstrip("/")
    with chromium() as browser:
        page = window_in(browser.new_context(), SEEN_WITHIN_MS)
        page.goto(f"{url}/#/")
        expect(page.locator("main")).to_contain_text("Make one: duetime topic create orders.")
        expect(page.get_by_role("link", name="Audit")).to_be_visible()
        expect(page.get_by_role("link", name="Try it")).to_have_count(0)
        page.goto(f"{url}/#/try")
        expect(page.get_by_role("heading", name="Now")).to_be_visible()
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Go to, or do").fill("try")
        options = page.get_by_role("option")
        expect(options).to_have_count(1)
        expect(options).to_contain_text("Find the message try")
    print("nobody is led there")


main()
