"""What integration tests stand on: real launcher processes, started fast and never left behind."""
