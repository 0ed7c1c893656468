"""What `python -m launch` can be asked to do, one module each."""
