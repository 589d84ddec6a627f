"""Helper processes that are forked from the launcher while it has one thread and nothing open.

A fork shares all that torch has loaded; an interpreter of its own would take a second and a hundred
megabytes.
"""

import os
import socket

from dlrover_cli.launch.worker_start import WorkerStart
from dlrover_cli.workers.commands import ForkedProcess, NurseryClient
from dlrover_cli.workers.zygote import become_zygote, is_single_threaded


def fork_zygote(worker_start: WorkerStart) -> NurseryClient | socket.socket | None:
    """The zygote's client; in the zygote itself its socket. None where nothing can be forked."""
    if not worker_start.warm or not is_single_threaded():
        return None
    try:
        ours, theirs = socket.socketpair()
        pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        ours.close()
        return theirs
    theirs.close()
    return NurseryClient(ours, ForkedProcess(pid))


def serve_as_zygote(sock: socket.socket, worker_start: WorkerStart) -> None:
    """Never returns in the zygote. Returns in a worker, when its script has ended."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    become_zygote(sock, worker_start.preloads)
