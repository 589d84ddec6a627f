"""`python -m dlrover_cli` is `dlrover-run`, whatever else has installed a script of that name."""

from dlrover_cli.entry import dlrover_run

if __name__ == "__main__":
    dlrover_run()
