"""Receives the checks that are due as webhooks and closes the orders that are still open."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from duetime import InvalidSignature, verify
from shop import close

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            verify(body, dict(self.headers), SECRET)
        except InvalidSignature as error:
            print("refused:", error, flush=True)
            self.send_response(401)
        else:
            order = json.loads(body)["order"]
            print(order, "closed" if close(order) else "nothing to do", flush=True)
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 8000), Hook)
print("listening on http://127.0.0.1:8000", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    print("stopped", flush=True)
