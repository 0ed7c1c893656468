"""Short programs that show the main ideas of the pipeline."""
