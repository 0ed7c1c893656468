"""A training step: from a batch to new weights, over towers and processes."""
