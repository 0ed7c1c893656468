"""The error that ends a benchmark with a one-line message."""


class BenchmarkError(Exception):
    """A user error: exit code 2. The message gives the value, the rule and the way out."""
