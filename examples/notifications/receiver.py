"""A receiver of notifications: checks who sent each, takes it once, and prints its line.

    python receiver.py secret.txt 8081

A notification may come twice, since an answer can get lost on its way back: its id tells.
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SEEN = set()
LONGEST_DELAY = 300  # seconds: an old message that somebody recorded is not taken again


def is_genuine(secret, headers, body):
    """Whether it was signed with our secret, not long ago."""
    identity, moment = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(moment)) > LONGEST_DELAY:
        return False
    signed = f"{identity}.{moment}.".encode() + body
    digest = hmac.new(secret, signed, hashlib.sha256).digest()
    expected = f"v1,{base64.b64encode(digest).decode()}"
    return hmac.compare_digest(expected, headers.get("webhook-signature", ""))


class Receiver(BaseHTTPRequestHandler):
    secret = b""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not is_genuine(self.secret, self.headers, body):
            self.send_error(401)
            return
        notice = json.loads(body)
        if notice["id"] not in SEEN:
            SEEN.add(notice["id"])
            print(f"{notice['kind']:14} {notice['text']}", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    Receiver.secret = Path(sys.argv[1]).read_bytes().strip()
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Receiver)
    server.serve_forever()
