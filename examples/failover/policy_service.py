"""A service that decides about failures, small enough to try `ask_service` with.

    python policy_service.py 8765

With port 0 it takes a free one; its first line says which.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def decide(failure: dict) -> str | None:
    """Hosts that are known to be broken are replaced; on all else the service has no opinion."""
    return "NODE_FAILOVER" if failure["host"] in {"gpu-17", "gpu-23"} else None


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        failure = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"strategy": decide(failure)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(f"deciding on port {server.server_port}", flush=True)
    server.serve_forever()
