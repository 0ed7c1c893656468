"""The agent: a process on each host that starts, watches and ends the tasks there.

Standard library only, Python 3.9 or newer, Linux: the launcher sends these modules to the host, so
that nothing needs to be there but Python. `launch.connect.bootstrap` names them, in the order of
their imports.
"""
