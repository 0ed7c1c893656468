"""The line that shows the progress of training."""
