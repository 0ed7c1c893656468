"""The error of a testbed: this machine cannot provide it, or a task in it failed."""


class TestbedError(Exception):
    """A testbed failed; the message says what is missing or failed, with a hint if there is one."""

    __test__ = False  # Its name begins with "Test", so pytest would collect it.
