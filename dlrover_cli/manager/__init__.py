"""The job-level half of failover, one per job and the same for every engine.

It places agents on nodes, hosts the store where they meet, and replaces the nodes that are lost.
"""
