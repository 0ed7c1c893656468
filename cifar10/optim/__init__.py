"""From gradients to a step of the weights: schedules, update rules, averages of weights."""
