"""What a failure means to a person: the user's own lines, a likely cause, and what to do."""
