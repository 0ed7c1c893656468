"""The line that shows how far training has come."""
