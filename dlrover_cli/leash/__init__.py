"""The connection between an agent and its job's manager: each learns at once of the other's end.

An agent that its manager cannot reach, or that was taken out of the job, ends its workers by itself
before a lease is over. So whoever is replaced does not train in secret beside its successor.
"""
