"""The exception of a job whose workers failed: torch's, with cause and code made certain."""

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from dlrover_cli.agent.ending import Ending
from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import ExitCode, from_worker


class JobFailed(ChildFailedError):
    """torch's ChildFailedError that knows which failure was the cause and what was decided."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure], ending: Ending) -> None:
        self.ending = ending
        super().__init__(name, failures)

    @property
    def exit_code(self) -> int:
        """82, 83 … where a policy decided so; else the root cause's own code."""
        if self.ending.decision.exit_code is not None:
            return self.ending.decision.exit_code
        return from_worker(self.get_first_failure()[1].exitcode)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        failure = self.ending.failure
        root = None if failure is None else failure.root_cause
        if root is not None and root.global_rank in self.failures:
            return root.global_rank, self.failures[root.global_rank]
        return super().get_first_failure()


class EndedOnRequest(DlroverError):
    """Nothing failed: somebody wanted the job, or this node's part in it, to end."""

    is_told = True

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.decision.reason)
        self.ending = ending
        code = ending.decision.exit_code
        self.exit_code = ExitCode.FAILURE if code is None else code
