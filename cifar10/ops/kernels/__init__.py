"""Convolutions and activations for CPUs in C++, compiled on the training machine: docs/kernels.md.

`winograd.cc` and `activations.cc` compute, `ops.cc` and `activation_ops.cc` define TensorFlow's
ops, `build` compiles them, and `library` loads them.
"""
