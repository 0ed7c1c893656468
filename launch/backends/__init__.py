"""Where a job runs: a folder for each backend.

The `__init__` of each folder has a `KIND`, which loads the backend when it is needed. To add one,
write its folder and its line in `launch.backends.registry`, or call `register` there from outside
the tree.
"""
