"""A training step: from a batch to new weights, with several towers and processes."""
