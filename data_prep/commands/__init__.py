"""The commands of `python -m data_prep`, one module each."""
