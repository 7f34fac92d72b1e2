"""A console below a path of a proxy asks nobody else, and shows ids as what they are: python prefix.py URL"""

import http.client
import http.server
import sys
import threading
import urllib.parse

from playwright.sync_api import expect

from browser import asking, chromium, window_in

SEEN_WITHIN_MS = 20_000
TOKEN = "ops-0123456789abcdef"
BELOW = "/duetime"
BIDI = "a\u202eb"
NOT_PASSED_ON = ("transfer-encoding", "connection", "content-length")
# Each id, and how it stands in a command.
IDS = {"--all": "--all", "-": "-", "--node=http://127.0.0.1:1": "--node=http://127.0.0.1:1", "=": "=", BIDI: "$'a\\u202eb'"}


def proxy(url, foreign):
    """Passes on what is below `BELOW`; everything else is another application's, which notes who asks it."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0) or 0))
            if not self.path.startswith(BELOW + "/"):
                foreign.append((self.command, self.path, self.headers.get("authorization")))
                self.send_response(404)
                self.send_header("content-length", "0")
                return self.end_headers()
            to = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
            to.request(self.command, self.path[len(BELOW):], body or None, dict(self.headers))
            answer = to.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in NOT_PASSED_ON:
                    self.send_header(name, value)
            self.end_headers()
            self.close_connection = True
            while part := answer.read1():
                self.wfile.write(part)
                self.wfile.flush()

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def main():
    url, foreign = sys.argv[1].rstrip("/"), []
    api = asking(url, TOKEN)
    api("PUT", "/v1/topics/orders", {"shards": 2})
    api("POST", "/v1/topics/orders/messages", [{"id": id, "delay": "1h", "headers": {"x": BIDI}} for id in IDS])
    behind = proxy(url, foreign)
    with chromium() as browser:
        page = window_in(browser.new_context(), SEEN_WITHIN_MS)
        page.goto(f"{behind}{BELOW}/")
        page.evaluate(f"sessionStorage.setItem('duetime-token', '{TOKEN}')")
        page.reload()
        expect(page.locator("main")).to_contain_text("orders")
        for id, shown in IDS.items():
            page.goto(f"{behind}{BELOW}/#/message/orders/{urllib.parse.quote(id, safe='')}")
            page.get_by_role("button", name="Cancel …").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_text("The same as a command").click()
            expect(dialog).to_contain_text(f"duetime cancel -- orders {shown}")
            expect(dialog).to_contain_text(f"{behind}{BELOW}/v1/topics/orders/messages/")
            assert "\u202e" not in page.locator("body").inner_text(), "what turns text around is written out"
            page.keyboard.press("Escape")
        # A change goes to the node as well.
        page.get_by_role("button", name="Cancel …").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
        expect(page.locator("main")).to_contain_text("It is not there any more")
    assert api("GET", "/v1/topics/orders")["scheduled"] == len(IDS) - 1
    asked = [one for one in foreign if one[1] != "/favicon.ico"]
    assert not asked, f"another application was asked: {asked}"
    print("nobody else was asked")


if __name__ == "__main__":
    main()
