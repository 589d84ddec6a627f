"""The check of the nodes before workers start: who is slow or faulty, and what follows from it."""
