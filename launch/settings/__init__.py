"""What one backend has to know beyond hosts and tasks, and how it is read from a cluster file."""
