"""The error that ends a benchmark with one clear line."""


class BenchmarkError(Exception):
    """A mistake of the user's: exit code 2. The message gives the value, the rule, the way out."""
