"""A Slurm job that is its own launcher."""
