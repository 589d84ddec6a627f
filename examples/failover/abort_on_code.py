"""Give up at once where a restart cannot help: on exit codes that are known to be final.

The import lines are DLRover's and work whether or not that package is installed.

    cd examples/failover
    dlrover-job failover test --extension abort_on_code::AbortOnKnownCode failures/bad_data.json
    dlrover-run --dynamic_failover_extension=abort_on_code::AbortOnKnownCode --max-restarts=3 \
        --standalone --no-python sh -c 'exit 3'
"""

from dlrover.python.common.enums import FailoverStrategy
from dlrover.python.elastic_agent.torch.dynamic_failover import (
    AgentFailureInfo,
    DynamicAgentFailoverExtension,
)

# What the training script exits with, and what that means.
FINAL_CODES = {3: "the data set is broken", 78: "the configuration makes no sense"}


class AbortOnKnownCode(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info: AgentFailureInfo) -> FailoverStrategy:
        root_cause = failure_info.root_cause
        if root_cause is not None and root_cause.exit_code in FINAL_CODES:
            print(f"giving up: {FINAL_CODES[root_cause.exit_code]}")
            return FailoverStrategy.ABORTION_FAILOVER
        return FailoverStrategy.NORMAL_FAILOVER
