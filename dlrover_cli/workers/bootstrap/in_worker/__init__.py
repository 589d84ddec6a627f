"""What runs inside a worker. Standard library only, and as little of that as possible at start-up.

A fresh worker has it under a private name, so modules in here import each other relatively and
nothing else of the project. ``install.install`` puts everything in place.
"""
