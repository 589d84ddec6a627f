"""What is wrong with this machine: small checks, each of which says what it saw and what to do."""
