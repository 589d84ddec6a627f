# mylauncher.py
"""A launcher of one's own: it builds the WorkerSpec, configures the metrics and runs the agent.

It uses the rendezvous handler and the metrics handler of the two examples beside it:

    cd examples/custom_launcher
    PYTHONPATH=../custom_rendezvous:../metrics_in_memory python -m mylauncher --nproc-per-node=2
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic import metrics
from torch.distributed.elastic.rendezvous import RendezvousParameters

from dlrover_cli.agent import LocalElasticAgent, WorkerSpec

# isort: split
# After dlrover_cli, which brings the import path `torchelastic.metrics` that mymetrics uses.
import mymetrics
from myrdzv import MyRendezvousHandler


def trainer_entrypoint_fn(steps: int) -> float:
    """What every worker runs; its return value comes back to the launcher by rank."""
    dist.init_process_group("gloo")
    total = torch.zeros(1)
    for _ in range(steps):
        total += 1
        dist.all_reduce(total, dist.ReduceOp.MAX)
    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} took {steps} steps", flush=True)
    dist.destroy_process_group()
    return total.item()


def main() -> int:
    options = parse_arguments()
    params = RendezvousParameters(
        backend="myrdzv", endpoint="", run_id="mylauncher", min_nodes=1, max_nodes=1
    )
    spec = WorkerSpec(
        local_world_size=options.nproc_per_node,
        fn=trainer_entrypoint_fn,
        args=(options.steps,),
        rdzv_handler=MyRendezvousHandler(params),
        max_restarts=options.max_restarts,
        monitor_interval=options.monitor_interval,
    )
    metrics.initialize_metrics()
    handler = mymetrics.MyMetricHandler()
    metrics.configure(handler)

    elastic_agent = LocalElasticAgent(spec, start_method=options.start_method)
    try:
        result = elastic_agent.run(spec.role)
    except Exception as ex:  # noqa: BLE001 - handle exception
        print(f"mylauncher: the agent failed: {ex}", file=sys.stderr)
        return 1
    finally:
        spec.rdzv_handler.shutdown()
    if result.is_failed():
        print(f"mylauncher: ranks {sorted(result.failures)} failed", file=sys.stderr)
        return 1
    print(f"results by rank: {result.return_values}")
    print(f"metrics in memory: {', '.join(handler.names())}")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mylauncher")
    parser.add_argument("--nproc-per-node", type=int, default=2)
    parser.add_argument("--max-restarts", type=int, default=0)
    parser.add_argument("--monitor-interval", type=float, default=0.1)
    parser.add_argument("--start-method", default="spawn")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
