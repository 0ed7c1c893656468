"""The error of a testbed: this machine cannot provide it, or a task in it failed."""


class TestbedError(Exception):
    """A testbed failed; the message says what is missing or failed, and the way out if any."""

    __test__ = False  # Its name begins with "Test", so pytest would collect it.
