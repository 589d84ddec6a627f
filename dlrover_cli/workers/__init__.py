"""Starting, watching and ending the worker processes of one node."""
