"""What a process of ours has to tell: one marked line of JSON among whatever others print there."""

import json
from typing import Any

MARK = "dlrover-doctor "


def tell(answer: dict[str, Any]) -> str:
    """The line, which begins one of its own whatever was printed before."""
    return f"\n{MARK}{json.dumps(answer)}"


def answer_in(out: str) -> dict[str, Any] | None:
    """What the process has told last; None if it never came to it."""
    lines = [line for line in out.splitlines() if line.startswith(MARK)]
    if not lines:
        return None
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return answer
