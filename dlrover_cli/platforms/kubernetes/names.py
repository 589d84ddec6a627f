"""Names that Kubernetes accepts: for the objects of a run, and what a person writes himself."""

import hashlib
import re

_LONGEST_STEM = 20
_LONGEST_RUN = 26
"""Together 47: a CronJob adds 11 for a Job, that one up to 5 for a host, and a label has 63."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IMAGE = re.compile(
    r"[a-z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)


def object_name(stem: str, run_id: str) -> str:
    """What the objects of a run are called: a DNS label that begins with a letter."""
    return f"{stem}-{run_slug(run_id)}"


def run_slug(run_id: str) -> str:
    """The run id itself, unless it is too long or no label; also the value of the run's label."""
    run = slug(run_id)
    if run == run_id and len(run) <= _LONGEST_RUN:
        return run
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:8]
    return f"{run[: _LONGEST_RUN - 9].rstrip('-')}-{digest}".lstrip("-")


def stem_of(script: str) -> str:
    """A job's name without its run."""
    stem = slug(script)[:_LONGEST_STEM].strip("-")
    if not stem:
        return "job"
    return stem if stem[0].isalpha() else f"job-{stem}"[:_LONGEST_STEM].rstrip("-")


def slug(text: str) -> str:
    """Lower case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def is_dns_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def is_image(text: str) -> bool:
    """Whether it looks like `registry:5000/team/image:tag@sha256:…`."""
    return _IMAGE.fullmatch(text) is not None
