"""Jobs on Kubernetes: a Job of its own or one of Volcano, whose pods are the nodes.

The client library is imported when it is used.
"""
