"""Commands of `python -m launch`: `up`, `check` (with `facts`), and those for existing runs."""
