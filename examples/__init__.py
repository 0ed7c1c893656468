"""Short programs to read beside the pipeline."""
