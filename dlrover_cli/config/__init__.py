"""Settings: each declared once, read from flags, environment, file or default, with provenance."""
