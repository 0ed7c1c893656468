"""Follows a job to its end, and decides which of its tasks to start, signal or give up."""
