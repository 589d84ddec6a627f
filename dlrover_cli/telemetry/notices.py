"""What a receiver of notifications gets: which events, as which document, signed how. Pure.

The headers and the signature are those of Standard Webhooks, for which libraries exist.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from typing import Any

from dlrover_cli.telemetry.events import Event
from dlrover_cli.words import counted, one_line

SCHEMA_VERSION = 1

RUN_KINDS = frozenset({"run_started", "run_resumed", "run_finished"})
"""Of the run as a whole: told by one process, where several take part."""

DEFAULT_KINDS = RUN_KINDS | frozenset(
    {
        *("failure", "decision", "no_progress_warning", "workers_stuck"),
        *("node_replaced", "taken_out", "agent_lost", "replacing", "restart_in_place"),
        *("node_unreachable", "machine_barred", "pod_evicted"),
    }
)

KINDS = DEFAULT_KINDS | {
    *("rendezvous_started", "rendezvous_completed", "workers_started", "workers_stopping"),
    *("worker_exited", "nodes_waiting", "signal", "stacks", "flight_records"),
    *("control_store_lost", "exit_barrier_timeout", "rendezvous_handler_error"),
    *("agent_placed", "agent_arrived", "agent_ended", "nodes", "job_ending", "placement"),
    *("pod_ended", "slurm_submitted", "node_requested", "metrics_endpoint"),
}
"""All that can be asked for."""

LARGEST = 32_768
"""Bytes of a value in a notice; stacks and logs are in the run directory."""

_SECRET_PREFIX = "whsec_"
# Arguments of a script may hold keys; whoever may read the run directory finds them there.
_NOT_SENT = frozenset({"argv"})

Notice = dict[str, Any]


def is_wanted(event: Event, kinds: Collection[str], *, tells_of_run: bool) -> bool:
    """Whether this process sends it, so that each thing is told once for the whole job."""
    kind = event["kind"]
    if kind not in kinds or (kind in RUN_KINDS and not tells_of_run):
        return False
    if kind == "decision":  # every node records it, and the one that it is about may be gone
        return bool(event["data"].get("is_first"))
    return True


def notice_of(event: Event, agent: str, host: str) -> Notice:
    """The document about one event; its id is the same however often it is sent."""
    return {
        "schema_version": SCHEMA_VERSION,
        "id": f"{event['run_id']}/{agent}/{event['seq']}",
        "kind": event["kind"],
        "text": text_of(event, host),
        "time": event["time"],
        "run_id": event["run_id"],
        "agent": agent,
        "host": host,
        "node_rank": event["node_rank"],
        "attempt": event["attempt"],
        "data": {
            key: _bounded(value) for key, value in event["data"].items() if key not in _NOT_SENT
        },
    }


def text_of(event: Event, host: str) -> str:
    """One line for a person; chat services show the key ``text`` of what they get."""
    return one_line(f"{event['run_id']} on {host}: {_sentence(event['kind'], event['data'])}")


def secret_from(text: str) -> bytes:
    """The key of a secret; ``whsec_`` before it means base64. ValueError if it is none."""
    if not text.startswith(_SECRET_PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"what stands after {_SECRET_PREFIX} is not base64") from None


def headers_of(notice: Notice, body: bytes, now: float, secret: bytes | None) -> dict[str, str]:
    """Who it is, when it was sent, and that it was us."""
    identity, moment = str(notice["id"]), str(int(now))
    headers = {"webhook-id": identity, "webhook-timestamp": moment}
    if secret is not None:
        signed = f"{identity}.{moment}.".encode() + body
        digest = hmac.new(secret, signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def _bounded(value: object) -> object:
    size = len(json.dumps(value))
    return value if size <= LARGEST else f"({size} bytes; it is in the run directory)"


def _sentence(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "run_started":
            return "the run has started"
        case "run_finished":
            return f"the run {data.get('outcome')} (exit {data.get('exit_code')}): {data['reason']}"
        case "failure":
            how, ranks = data.get("how") or "failed", len(data.get("ranks") or ())
            others = f"; {counted(ranks, 'rank')} failed in all" if ranks > 1 else ""
            return f"rank {data.get('root_rank')} {how}{others}"
        case "decision":
            action = str(data.get("action")).replace("_", " ")
            return f"decided: {action} ({data.get('reason')})"
        case "no_progress_warning":
            return f"no rank has made progress for {data.get('minutes')} minutes"
        case _:
            words = [
                f"{key} {value}"
                for key, value in data.items()
                if key not in _NOT_SENT and isinstance(value, str | int | float)
            ]
            return ": ".join(filter(None, (kind.replace("_", " "), ", ".join(words)[:300])))
