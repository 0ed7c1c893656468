"""The backends, which run jobs: one folder for each.

The `__init__` of each folder defines a `KIND`, which imports the backend only when it is needed. To
add a backend, write its folder and a line in `launch.backends.registry`; a package outside this
tree calls `register` of that module instead.
"""
