"""The folder that is kept of a run, the progress of its tasks, and its result."""
