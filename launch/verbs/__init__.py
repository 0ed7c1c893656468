"""Commands of `python -m launch`: `up`, `check` (with `facts`), and `runs` for existing runs."""
