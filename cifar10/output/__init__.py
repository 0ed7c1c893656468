"""The contents of an output folder, the report and the progress line of a run."""
