"""Starts `dlrover-run` by this file's name: its folder, first on `sys.path`, holds nothing else.

`python -m` would put the current directory there, whose files could then hide the launcher's own
modules; `-P` is no way out, since warm workers would have its effects too.
"""

from dlrover_cli.cli.run import console

if __name__ == "__main__":
    console()
