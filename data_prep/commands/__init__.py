"""What `python -m data_prep` can be asked to do, one module each."""
