"""The questions and messages of an extender, by the names that Volcano has for them."""

from enum import StrEnum


class Verb(StrEnum):
    """One hook of a session; `extender.<verb>Verb` in a file gives it a path and so turns it on."""

    SESSION_OPEN = "onSessionOpen"
    SESSION_CLOSE = "onSessionClose"
    JOB_ENQUEUEABLE = "jobEnqueueable"
    JOB_ENQUEUED = "jobEnqueued"
    QUEUE_OVERUSED = "queueOverused"
    PREDICATE = "predicate"
    PRIORITIZE = "prioritize"
    PREEMPTABLE = "preemptable"
    RECLAIMABLE = "reclaimable"
    JOB_READY = "jobReady"
    ALLOCATE = "allocateFunc"
    DEALLOCATE = "deallocateFunc"

    @property
    def setting(self) -> str:
        """The key that configures it."""
        return f"extender.{self.value}Verb"


NOTIFICATIONS = frozenset({Verb.SESSION_OPEN, Verb.SESSION_CLOSE, Verb.JOB_ENQUEUED})
"""Whose answers are not read: 200 is all that is expected."""

TASK_VERBS = frozenset(
    {
        Verb.PREDICATE,
        Verb.PRIORITIZE,
        Verb.PREEMPTABLE,
        Verb.RECLAIMABLE,
        Verb.ALLOCATE,
        Verb.DEALLOCATE,
    }
)
"""Those that `managedResources` limits: the ones about a task."""
