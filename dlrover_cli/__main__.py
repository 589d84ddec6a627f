"""`python -m dlrover_cli` is `dlrover-run`, whatever else has installed a script of that name."""

from dlrover_cli.cli.run import console

if __name__ == "__main__":
    console()
