"""Learning rates, update rules and averages of weights."""
