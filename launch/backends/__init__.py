"""Where a job runs: a folder a backend.

Each folder's `__init__` has a `KIND`, what the description of a cluster must know of the backend,
and `load`, which gives the backend itself and imports what that needs. To add one: write its folder
and its line in `launch.backends.registry`, or call `register` there from outside the tree.
"""
