"""What a worker said of its own end."""

from dlrover_cli.contracts import WorkerFailure


def headline_of(failure: WorkerFailure) -> str:
    """The message, with the name of the exception if it was one."""
    name = failure.exception_type
    # torch's @record puts the name into the message itself.
    if name is None or failure.message.startswith(f"{name}:"):
        return failure.message
    return f"{name}: {failure.message}"
