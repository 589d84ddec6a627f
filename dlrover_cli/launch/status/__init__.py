"""The status line: one quiet row at the bottom of the terminal while a run is in the foreground."""
