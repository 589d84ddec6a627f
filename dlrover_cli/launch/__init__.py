"""The composition root: from settings to a running agent, and from its end to a result."""
