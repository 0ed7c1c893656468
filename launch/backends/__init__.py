"""The backends, which run jobs: a file or a small folder each.

To add a backend, write a subclass of `launch.backends.base.Backend`, and name it in the table of
`launch.backends.registry`; `tests/launch/backends/lsf.py` is an example from outside the tree.
"""
