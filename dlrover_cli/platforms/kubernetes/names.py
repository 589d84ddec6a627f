"""Names that Kubernetes accepts: for the objects of a run, and what a person writes himself."""

import hashlib
import re

_LONGEST_STEM = 24
_LONGEST_RUN = 26
"""Together below the 52 characters that a CronJob's name may have: its Jobs' have eleven more."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IMAGE = re.compile(
    r"[a-z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)


def object_name(stem: str, run_id: str) -> str:
    """What the objects of a run are called: a DNS label that begins with a letter."""
    run = slug(run_id)
    if len(run) > _LONGEST_RUN:
        digest = hashlib.sha256(run_id.encode()).hexdigest()[:8]
        run = f"{run[: _LONGEST_RUN - 9].rstrip('-')}-{digest}"
    return f"{stem}-{run}"


def stem_of(script: str) -> str:
    """A job's name without its run."""
    stem = slug(script)[:_LONGEST_STEM].strip("-")
    if not stem:
        return "job"
    return stem if stem[0].isalpha() else f"job-{stem}"[:_LONGEST_STEM].rstrip("-")


def slug(text: str) -> str:
    """Lower case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def label_value(text: str) -> str:
    """The text as the value of a label; what labels cannot have becomes a dash."""
    kept = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63]
    return kept.strip("-_.")


def is_dns_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def is_image(text: str) -> bool:
    """Whether it looks like `registry:5000/team/image:tag@sha256:…`."""
    return _IMAGE.fullmatch(text) is not None
