"""What is kept of a run, and its outcome."""
