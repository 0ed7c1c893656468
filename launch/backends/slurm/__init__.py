"""Runs tasks in a Slurm batch job, which starts and supervises them itself."""
