"""`dlrover-job rendezvous`: a place where the nodes of jobs meet, apart from all of them."""

import signal
import socket
from typing import Annotated

import typer

from dlrover_cli.cli.job_group import command, command_group

app = command_group("Host the store where the nodes of jobs meet.", name="rendezvous")


@command(app, "serve")
def serve(
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Listen on this address only, instead of all of the machine."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Listen on this port; 0 takes a free one.")
    ] = 29400,
) -> None:
    """Host a store until SIGTERM or Ctrl-C; any number of jobs may meet there.

    Jobs are told apart by --rdzv-id. Prints one line when it is ready: the endpoint.
    """
    from dlrover_cli.rendezvous.store_process import serve_in_foreground

    def ready(number: int) -> None:
        print(f"{host or socket.gethostname()}:{number}", flush=True)

    signals = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    serve_in_foreground(host, port, ready, lambda: signal.sigwait(signals))
