"""Touching a live job: a socket that only its user can open, and what is said over it.

One line of JSON asks, one line of JSON answers, each bounded. Whoever may open the socket may ask:
it lies in a directory of the user's own, and the kernel tells who is at the other end.
"""
