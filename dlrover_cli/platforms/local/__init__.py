"""The local platform: jobs are processes of this machine, each in a session of its own."""
