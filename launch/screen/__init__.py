"""Shows the user a running job: lines, and a table of its tasks."""
