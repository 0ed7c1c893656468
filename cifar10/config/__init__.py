"""The configuration of a run: its settings, their checks, command-line flags and recipes."""
