"""The command line: Typer in, Rich out, no decisions."""

PROG = "dlrover-run"
COMPLETE_VARIABLE = "_DLROVER_RUN_COMPLETE"
