"""An extender to start from: keeps jobs off cordoned nodes, and prefers nodes with free GPUs.

    python service.py 8080 --cordoned cordoned.txt

With port 0 it takes a free one; its first line says which. It answers every verb, of `dlrover-run`
and of Volcano alike: the models read both, and their answers are understood by both.
"""

import argparse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from policy import Policy
from pydantic import ValidationError

from dlrover_cli.contracts.extender import EXCHANGES, Verb
from dlrover_cli.contracts.extender_objects import Wire


class Handler(BaseHTTPRequestHandler):
    """One POST to /<verb> after the other, on connections that stay open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise an answer in two parts waits 40 ms for the second
    policy: Policy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        name = self.path.strip("/")
        if name not in tuple(Verb):
            self._answer(404, f"there is no verb {name!r}")
            return
        verb = Verb(name)
        decide: Callable[[Wire], Wire] = getattr(self.policy, METHODS[verb])
        try:
            request = EXCHANGES[verb].request.model_validate_json(body)
        except ValidationError as error:
            self._answer(400, f"{verb}: {error.errors()[0]['msg']}")
            return
        self._answer(200, decide(request).model_dump_json(by_alias=True, exclude_none=True))

    def _answer(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == 200 else "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Only what went wrong is worth a line."""
        if code != 200:
            super().log_request(code, size)


METHODS = {
    Verb.SESSION_OPEN: "open_session",
    Verb.SESSION_CLOSE: "close_session",
    Verb.JOB_ENQUEUEABLE: "is_enqueueable",
    Verb.JOB_ENQUEUED: "note_enqueued",
    Verb.QUEUE_OVERUSED: "is_overused",
    Verb.PREDICATE: "may_run",
    Verb.PRIORITIZE: "score",
    Verb.PREEMPTABLE: "choose_victims",
    Verb.RECLAIMABLE: "choose_victims",
    Verb.JOB_READY: "is_ready",
    Verb.ALLOCATE: "allocate",
    Verb.DEALLOCATE: "deallocate",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--cordoned", type=Path, default=Path("cordoned.txt"))
    options = parser.parse_args()
    Handler.policy = Policy(options.cordoned)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    print(f"deciding on port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
