"""Events that a person should know of, each in a sentence. Pure."""

from collections.abc import Iterable

from dlrover_cli.diagnosis.papers import Event, readable
from dlrover_cli.diagnosis.run_story import Remark


def warnings_in(events: Iterable[Event]) -> tuple[Remark, ...]:
    """What went wrong, or nearly, beside the failures themselves; in the order of time."""
    told = [(event, _warning(event)) for event in sorted(events, key=lambda each: each.time)]
    return tuple(
        Remark(event.time, what, _stacks(event)) for event, what in told if what is not None
    )


def history_in(life: Iterable[Event]) -> tuple[Remark, ...]:
    """The life of the run as a whole."""
    return tuple(
        Remark(event.time, what) for event in life for what in [_step(event)] if what is not None
    )


def _warning(event: Event) -> str | None:
    match event.kind:
        case "no_progress_warning":
            minutes = event.number("minutes")
            since = "a while" if minutes is None else f"{minutes:.0f} minutes"
            return f"nothing had moved for {since}: {_line(event, 'where')}".rstrip(": ")
        case "workers_stuck":
            return f"processes did not end on {event.node}: {event.data.get('pids')}"
        case "agent_lost":
            return f"node {event.text('agent')} was lost: {_line(event, 'reason')}"
        case "node_unreachable":
            return f"node {event.text('node')} could not be reached"
        case "replacing":
            return f"node {event.text('node')} had to be replaced: {_line(event, 'reason')}"
        case "nodes_relaunched" if event.data.get("problem") and event.data.get("ignored"):
            ignored = ", ".join(event.texts("ignored"))
            return f"not relaunched: {ignored}: {_line(event, 'problem')}"
        case "node_replaced":
            return f"the workers of {event.text('host')} got a new launcher"
        case "extension_not_started":
            return f"{event.text('extension')} was not started: {_line(event, 'reason')}"
        case "control_store_lost":
            return f"the store of {event.node} was lost: {_line(event, 'reason')}"
        case "exit_barrier_timeout":
            return f"not all nodes came to the end in time, says {event.node}"
        case "exit_barrier_lost":
            return f"the others were gone at the end of {event.node}: {_line(event, 'reason')}"
        case "rendezvous_handler_error":
            return (
                f"the rendezvous handler failed in {event.text('method')}: {_line(event, 'error')}"
            )
        case "preflight_result" if told := _unfit_nodes(event):
            return f"the check of the nodes found: {told}"
        case "preflight_broken_off":
            return f"the check of the nodes was broken off: {_line(event, 'reason')}"
        case "rendezvous_left_out":
            return f"{event.node} was left out of a rendezvous: {_line(event, 'reason')}"
        case "machine_barred":
            return f"machine {event.text('machine')} is not used any more"
        case "pod_evicted":
            return f"pod {event.text('pod')} was evicted from {event.text('machine')}"
        case "cleaning_failed":
            return f"the clean-up failed: {_line(event, 'reason')}"
        case _:
            return None


def _unfit_nodes(event: Event) -> str:
    """Who was slow or faulty; told once, by the first node."""
    nodes = event.data.get("nodes")
    if event.data.get("rank") != 0 or not isinstance(nodes, list):
        return ""
    unfit = [
        (each.get("node"), each.get("host"), each.get("standing"), each.get("why"))
        for each in nodes
        if isinstance(each, dict) and each.get("standing") not in (None, "sound")
    ]
    return "; ".join(
        readable(f"node {node} ({host}) is {standing}: {why}")
        for node, host, standing, why in unfit
    )


def _stacks(event: Event) -> str:
    stacks = event.data.get("stacks")
    if not isinstance(stacks, dict):
        return ""
    return "\n\n".join(f"rank {rank}:\n{text}" for rank, text in _readable(stacks).items())


def _step(event: Event) -> str | None:
    reason = event.text("reason")
    match event.kind:
        case "submitted" | "cleaned":
            return event.kind
        case "waiting":
            return f"waits: {reason}"
        case "state":
            code = event.integer("exit_code")
            parts = [event.text("to"), "" if code is None else f"exit {code}", reason]
            return ": ".join(filter(None, parts))
        case "occurrence":
            return f"time {event.data.get('number')} of it is over: {reason}".rstrip(": ")
        case "stop_requested":
            by = event.data.get("by")
            who = f"process {by.get('pid')} on {by.get('host')}" if isinstance(by, dict) else ""
            return readable(f"asked to stop by {who or 'a signal'}")
        case _:
            return None


def _line(event: Event, key: str) -> str:
    return " ".join(event.text(key).split())


def _readable(stacks: dict[str, object]) -> dict[str, str]:
    return {readable(rank): readable(text) for rank, text in stacks.items()}
