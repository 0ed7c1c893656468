"""Follows a job to its end, and decides which of its tasks are started, signalled or ended."""
