"""No restart mends bad data: give up at once, and leave everything else to the rules."""

from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy


class GiveUpOnBadData(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        cause = failure_info.root_cause
        if cause is not None and cause.exception_type == "ValueError":
            return FailoverStrategy.ABORTION_FAILOVER
        return None  # no opinion
