"""Asking services outside over HTTP: within a deadline, bounded, and without leaking a secret."""
