"""The error of a testbed: this machine cannot have one, or a task in it failed."""


class TestbedError(Exception):
    """The message says what is missing or what failed, and the way out where there is one."""

    __test__ = False  # By its name, pytest would take it for tests.
