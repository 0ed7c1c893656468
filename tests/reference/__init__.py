"""A training step in float64, written from the papers, and tests that hold the pipeline's to it.

`networks`, `rules` and `trajectory` are the reference: plain numpy and `tf.nn`, nothing of
`cifar10`. `pipeline` takes the same steps with the pipeline's own training graph, `cases` says
which, `measure` compares. docs/correctness.md tells the rest.
"""
