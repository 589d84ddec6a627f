"""The check of the nodes before workers start."""
