"""What a run shall do: its settings, their checks, the command-line flags and the recipes."""
