"""Shows people a running job."""
