"""The agent: a process on each host that starts, watches and ends the tasks there.

It runs on Linux with Python 3.9 or newer and uses only the standard library. The launcher sends
these modules to the host, so the host needs nothing but Python.
"""
