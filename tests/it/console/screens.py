"""Something on every screen, and where it is."""

from playwright.sync_api import expect

CALLS = 16
# Each screen, and a part of what it says once it is there.
FULL = {
    "": "in time", "topic/orders": "Settings", "forecast/orders": "due in the", "messages/orders": "shards looked through",
    "message/orders/later": "may be claimed", "dead/orders": "1 reason", "shards/orders": "Scanned by", "sinks": "Topics with a sink",
    "slo": "Budgets", "audit": "entries", "nodes": "Shares by", "try": "What programs do", "find/later": "orders",
}
# What can be pressed on a screen, apart from the order of its tables.
PRESSED = "main :is(button, a.button):not(th *):visible"


def opens(url):
    """A function that shows a screen of the console at `url` in a page, and waits for a part of what it says."""

    def seen(page, place, said):
        page.goto(f"{url}/#/{place}")
        expect(page.locator("main")).to_contain_text(said)

    return seen


def fill(api):
    """A topic with a message that waits and one that died, one that is empty, and many with a sink `partner`, of which one
    has a message that is due. Nothing of it begins to be wrong later on."""
    api("PUT", "/v1/topics/orders", {"shards": 2})
    for topic in range(CALLS):
        api("PUT", f"/v1/topics/calls-{topic}", {"shards": 1, "sink": {"name": "partner"}})
    api("POST", "/v1/topics/calls-0/messages", {"id": "call"})
    api("POST", "/v1/topics/orders/messages", {"id": "broken"})
    dead = api("POST", "/v1/topics/orders/claim", {"wait": "10s"})["messages"][0]
    api("POST", "/v1/topics/orders/nack", {"receipts": [dead["receipt"]], "dead": True, "reason": "it is closed"})
    api("POST", "/v1/topics/orders/messages", {"id": "later", "delay": "1h"})
    api("PUT", "/v1/topics/empty", {"shards": 1})
