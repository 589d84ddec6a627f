"""The elastic agent of one node: observe, decide, perform."""

from dlrover_cli.agent.agent import LocalElasticAgent
from dlrover_cli.agent.spec import WorkerSpec
from dlrover_cli.plugins.shims import install_import_shims

# A custom launcher imports its parts from here and then, as torchelastic's documentation shows it,
# `torchelastic.metrics`.
install_import_shims()

__all__ = ["LocalElasticAgent", "WorkerSpec"]
