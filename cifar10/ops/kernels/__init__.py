"""Convolutions, activations and normalisation for CPUs in C++: docs/kernels.md.

They are compiled on the training machine. `winograd.cc`, `small_images.cc`, `activations.cc` and
`normalisation.cc` compute, the files `*ops.cc` define TensorFlow's ops, `build` compiles them, and
`library` loads them.
"""
