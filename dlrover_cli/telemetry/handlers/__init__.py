"""The metrics handlers that come with the launcher; each is an entry point, as anybody's is."""
