"""What a run leaves behind: its directory, its events, its metrics and its result."""
