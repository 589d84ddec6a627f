"""What to do about a failure: budgets, the pure decision, and who is asked."""
