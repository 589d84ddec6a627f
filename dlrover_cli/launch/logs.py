"""torch's log directory, in which a later attempt never replaces the files of an earlier one."""

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest

from dlrover_cli.errors import LaunchError

_TORCHS_NUMBER = "TORCHELASTIC_RESTART_COUNT"


class AttemptLogsSpecs(DefaultLogsSpecs):
    """``attempt_<k>`` counts every start of workers.

    torch counts restarts after failures, which is the same until a node joins: then it starts the
    workers again under the old number, and removes what was there.
    """

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        numbered = {
            local_rank: {**env, _TORCHS_NUMBER: env["DLROVER_ATTEMPT"]}
            for local_rank, env in envs.items()
        }
        try:
            dest = super().reify(numbered)
        except OSError as error:
            raise LaunchError(
                f"the log directories cannot be made: {error.strerror}: {error.filename}",
                hint="choose another --log-dir, or make room there",
            ) from error
        for local_rank, env in envs.items():
            env.update(numbered[local_rank] | {_TORCHS_NUMBER: env[_TORCHS_NUMBER]})
        return dest
