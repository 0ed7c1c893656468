"""The backends, which run jobs: a file or a small folder each.

To add a backend, write a subclass of `launch.backends.base.Backend`, and name it in the table of
`launch.backends.registry`. A scheduler that takes batch scripts derives from
`launch.backends.batch.Batch`, which follows and ends its jobs.
"""
