"""Draws the pictures of docs/CONSOLE.md: python pictures.py DUETIME DIR [SECONDS [BEFORE]]

Two nodes on a redis-server of their own, five topics, a sink that is away and a topic that is paused, under a little load for
SECONDS (240), so that there is something to be seen; then each screen, light, dark and narrow, as NAME-LOOK.png, and some at
three widths, as NAME-WIDTH.png. With BEFORE, another version of the program, its pictures are drawn too, in DIR/before, and
DIR/index.html and DIR/before-after-NAME.webp have both side by side.
"""

import base64
import contextlib
import http.server
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

from playwright.sync_api import expect

from browser import asking, chromium

BASE = 27_830
REDIS, FIRST, SECOND, HOOK, NOBODY = (BASE + n for n in range(5))
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 360, "height": 740}},
}
SCREENS = {
    "now": "", "topic": "topic/mails", "forecast": "forecast/orders", "shards": "shards/orders", "message": "message/invoices/invoice-7",
    "messages": "messages/orders?state=scheduled&within=3600000", "dead": "dead/invoices", "sinks": "sinks", "slo": "slo", "audit": "audit",
    "nodes": "nodes", "try": "try",
}
NARROW = ("now", "dead")
# At a desk, on a small laptop, on a telephone.
WIDTHS = {"1440": (1440, 900), "1024": (1024, 768), "360": (360, 740)}
COMPARED = ("now", "dead", "sinks", "topic")
# Both versions of a screen, at all three widths, in one picture.
SHEET_PX = 1900
SHEET_QUALITY = 55
UP_WITHIN_S = 60
DRAWN_WITHIN_S = 400
# One invoice of so many is refused whenever it is sent.
REFUSED_OF = 20
REFUSALS = ["unknown customer {n}", "the invoice {n} is closed", "amount {n}.00 is over the limit"]
CONFIG = f"""
[ownership]
mode = "round-robin"
[sinks.billing]
type = "http"
url = "http://127.0.0.1:{HOOK}/billing"
allow = ["127.0.0.1"]
[sinks.mailer]
type = "http"
url = "http://127.0.0.1:{HOOK}/mails"
allow = ["127.0.0.1"]
[sinks.partner-callbacks]
type = "http"
url = "http://127.0.0.1:{NOBODY}/in"
allow = ["127.0.0.1"]
"""


class Hook(http.server.BaseHTTPRequestHandler):
    """Takes mails in some time, and most invoices."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        time.sleep(random.uniform(0.002, 0.03))
        invoice = json.loads(body)["invoice"] if self.path == "/billing" else 1
        refused = invoice % REFUSED_OF == 0
        text = REFUSALS[invoice // REFUSED_OF % 5 // 2].format(n=invoice).encode() if refused else b""
        self.send_response(422 if refused else 200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


node = asking(f"http://127.0.0.1:{FIRST}", refusals=True)


def api(method, path, body=None):
    return node(method, path, body)[1]


def put(topic, count, delay, name=None):
    for part in range(0, count, 500):
        api("POST", f"/v1/topics/{topic}/messages", [{"id": f"{name or topic}-{n}", "delay": delay(n)} for n in range(part, min(count, part + 500))])


def invoice(n):
    payload = {"invoice": n, "customer": 100 + n % 70, "amount": f"{n % 900}.00", "items": [{"sku": "A-7", "count": n % 5 + 1}]}
    return {"id": f"invoice-{n}", "delay": "1s", "payload": payload, "headers": {"shop": "berlin"}}


def played(seconds):
    """The scene, until the pictures are drawn and its nodes are ended."""
    with contextlib.suppress(OSError):
        scene(seconds)


def scene(seconds):
    for topic, settings in {
        "orders": {"shards": 8}, "mails": {"shards": 8, "sink": {"name": "mailer"}}, "invoices": {"shards": 4, "sink": {"name": "billing"}},
        "campaign": {"shards": 4}, "partner-callbacks": {"shards": 4, "sink": {"name": "partner-callbacks"}},
    }.items():
        api("PUT", f"/v1/topics/{topic}", settings)
    api("POST", "/v1/topics/campaign/pause", {"reason": "the text is not agreed yet"})
    put("orders", 3300, lambda n: f"{1 + n % 90}m", "order")
    put("campaign", 500, lambda n: "2s")
    put("partner-callbacks", 300, lambda n: "5s", "call")
    put("orders", 40, lambda n: "1s", "unpaid")
    end = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end:
        api("POST", "/v1/topics/mails/messages", [{"id": f"mail-{step}-{n}", "delay": f"{random.randrange(500, 3000)}ms"} for n in range(random.randrange(16, 24))])
        api("POST", "/v1/topics/invoices/messages", [invoice(step * 4 + n) for n in range(4)])
        if step % 3 == 0:
            api("POST", "/v1/topics/orders/cancel", {"ids": [f"order-{step}"]})
        taken = api("POST", "/v1/topics/orders/claim", {"max": 5}).get("messages", [])
        if taken:
            api("POST", "/v1/topics/orders/nack", {"receipts": [one["receipt"] for one in taken], "dead": step % 2 == 0, "reason": f"shop {step} is closed"})
        step += 1
        time.sleep(1)


def wait_for_both():
    for _ in range(UP_WITHIN_S):
        with contextlib.suppress(OSError):
            if len(api("GET", "/v1/nodes").get("nodes", [])) == 2:
                return
        time.sleep(1)
    sys.exit("the nodes do not come up")


def pictures():
    """What is drawn: how a page is opened, the name of its screen, and that of its file."""
    for look, options in LOOKS.items():
        for name in NARROW if look == "narrow" else SCREENS:
            yield options, name, f"{name}-{look}.png"
    for width, (wide, high) in WIDTHS.items():
        for name in COMPARED:
            yield {"viewport": {"width": wide, "height": high}}, name, f"{name}-{width}.png"


def draw(duetime, out, seconds):
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "duetime.toml"
        config.write_text(CONFIG)
        hook = http.server.ThreadingHTTPServer(("127.0.0.1", HOOK), Hook)
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        started = [subprocess.Popen(["redis-server", "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)]
        try:
            time.sleep(1)
            for port, name in ((FIRST, "node-1"), (SECOND, "node-2")):
                command = [duetime, "serve", "--config", str(config), "--store", f"redis://127.0.0.1:{REDIS}", "--listen", f"127.0.0.1:{port}", "--node-id", name]
                started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            wait_for_both()
            threading.Thread(target=played, args=(seconds + DRAWN_WITHIN_S,), daemon=True).start()
            time.sleep(seconds)
            dead = api("GET", "/v1/topics/invoices/dead?limit=1")["messages"]
            screens = {**SCREENS, "message": f"message/invoices/{dead[0]['id']}"}
            with chromium() as browser:
                opened, page = None, None
                for options, name, file in pictures():
                    if options != opened:
                        opened, page = options, browser.new_context(timezone_id="UTC", **options).new_page()
                    page.goto(f"http://127.0.0.1:{FIRST}/#/{screens[name]}")
                    expect(page.locator("footer")).to_contain_text("live", timeout=20_000)
                    page.wait_for_timeout(4000)
                    # An earlier version has no letters one by one.
                    one_by_one = page.get_by_role("button", name="One by one", exact=True)
                    if name == "dead" and one_by_one.count():
                        one_by_one.first.click()
                        page.locator(".letters summary").first.click()
                        page.evaluate("scrollTo(0, 0)")
                    page.wait_for_timeout(500)
                    page.screenshot(path=out / file)
        finally:
            for process in started:
                process.kill()
            hook.shutdown()
            hook.server_close()


def compared(out):
    """A page with the pictures of both versions, side by side, and one picture of it for each screen."""
    style = "body{font:14px sans-serif;margin:1rem}div{display:flex;gap:1rem;align-items:start}img{max-width:calc(50% - .5rem);border:1px solid #999}"
    rows = {
        name: "".join(
            f'<h2>{name}, {width} px: before and after</h2><div><img src="before/{name}-{width}.png" alt="before">'
            f'<img src="{name}-{width}.png" alt="after"></div>'
            for width in WIDTHS
        )
        for name in COMPARED
    }
    page_of = lambda body: f"<!doctype html><meta charset=utf-8><title>Before and after</title><style>{style}</style>{body}"
    index = out / "index.html"
    with chromium() as browser:
        page = browser.new_page(viewport={"width": SHEET_PX, "height": 1000})
        for name, body in rows.items():
            index.write_text(page_of(body))
            page.goto(index.resolve().as_uri(), wait_until="load")
            height = page.evaluate("document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": SHEET_PX, "height": height, "scale": 1}
            asked = {"format": "webp", "quality": SHEET_QUALITY, "captureBeyondViewport": True, "clip": clip}
            drawn = page.context.new_cdp_session(page).send("Page.captureScreenshot", asked)
            (out / f"before-after-{name}.webp").write_bytes(base64.b64decode(drawn["data"]))
    index.write_text(page_of("".join(rows.values())))


def main():
    duetime, out = sys.argv[1], pathlib.Path(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 240
    draw(duetime, out, seconds)
    if len(sys.argv) > 4:
        draw(sys.argv[4], out / "before", seconds)
        compared(out)


main()
