"""What each task does from its start to its exit code."""
