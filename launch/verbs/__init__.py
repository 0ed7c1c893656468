"""The commands of `python -m launch`: those that start runs, and those for existing ones."""
