"""Jobs beyond one command line: job files, the life of a run, and the ledger of all runs."""
