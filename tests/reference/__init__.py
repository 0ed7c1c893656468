"""A reference training step in float64, written from the papers, to compare the pipeline with.

`networks`, `rules` and `trajectory` are the reference: numpy and basic TensorFlow ops, without code
of `cifar10`. `pipeline` takes the same steps with the pipeline's own training graph, `cases` lists
the settings, and `measure` compares the results. docs/correctness.md describes the method.
"""
