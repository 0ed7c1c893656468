"""From records to batches of images."""
