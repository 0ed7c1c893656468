"""What an output folder holds, and what people see of a run."""
