"""Replace lost bare machines: run a command for each, such as one that switches its power.

    export DLROVER_POWER_CYCLE='ssh bmc.{hostname} chassis power cycle'

`{id}`, `{hostname}` and `{ip_address}` stand for the node's. A command that exits with 0 has
replaced the node. Without the variable, and where nodes are pods, others are asked.
"""

import asyncio
import os
import shlex

from dlrover_cli.contracts.manager import Ground, ManagerExtension, NodeInfo


class PowerCycle(ManagerExtension):
    async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:
        command = os.environ.get("DLROVER_POWER_CYCLE")
        if command is None or self.manager.deployment.ground is Ground.KUBERNETES:
            return await super().relaunch_nodes_impl(nodes)
        codes = await asyncio.gather(*(_run(command, node) for node in nodes))
        return [node for node, code in zip(nodes, codes, strict=True) if code == 0]


async def _run(command: str, node: NodeInfo) -> int:
    # Split first, so that whatever a node is called stays one word.
    words = [
        word.format(id=node.id, hostname=node.hostname, ip_address=node.ip_address)
        for word in shlex.split(command)
    ]
    process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL)
    return await process.wait()
