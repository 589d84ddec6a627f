"""Measurements against torchrun: `python -m benchmarks.race`."""
